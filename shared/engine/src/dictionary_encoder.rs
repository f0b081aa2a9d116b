//! The codes of values: equal values share one.
//!
//! Must stay true: values are equal when they are written alike. Objects whose members are the same in another order
//! are two values, because the texts that breakdowns and filters make of them differ; were they one, which of the texts
//! is shown would depend on which of them came first.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use serde_json::Value;

/// Codes that are given from 0 on, one to each value. Keys are values, or references to them.
#[derive(Debug)]
pub struct Codes<K> {
    plain: HashMap<K, u32>,
    /// Objects and lists by their text: as values, objects are compared without the order of their members.
    nested: HashMap<String, u32>,
}

impl<K> Default for Codes<K> {
    fn default() -> Self {
        Self { plain: HashMap::new(), nested: HashMap::new() }
    }
}

impl<K: Borrow<Value> + Eq + Hash> Codes<K> {
    /// The code of a value that was met before.
    pub fn get(&self, value: &Value) -> Option<u32> {
        if is_nested(value) { self.nested.get(&value.to_string()) } else { self.plain.get(value) }.copied()
    }

    /// The code of a value, and whether it is the first of its kind.
    pub fn code(&mut self, value: K) -> (u32, bool) {
        // No more than there are rows, which are counted in 32 bits.
        let next = u32::try_from(self.plain.len() + self.nested.len()).unwrap_or(u32::MAX);
        if is_nested(value.borrow()) {
            let text = value.borrow().to_string();
            given(self.nested.entry(text), next)
        } else {
            given(self.plain.entry(value), next)
        }
    }
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

fn given<Q>(entry: Entry<'_, Q, u32>, next: u32) -> (u32, bool) {
    match entry {
        Entry::Occupied(known) => (*known.get(), false),
        Entry::Vacant(place) => (*place.insert(next), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_are_written_alike_share_a_code_and_others_do_not() {
        let values = [
            json!({"a": 1, "b": 2}),
            json!({"b": 2, "a": 1}),
            json!([{"a": 1, "b": 2}]),
            json!([{"b": 2, "a": 1}]),
            json!("{\"a\":1,\"b\":2}"),
            json!(1),
            json!(1.0),
            json!("1"),
            json!(null),
        ];
        let mut codes = Codes::default();
        for (code, value) in (0..).zip(&values) {
            assert_eq!(codes.get(value), None, "{value}");
            assert_eq!(codes.code(value), (code, true), "{value}");
        }
        for (code, value) in (0..).zip(&values) {
            assert_eq!(codes.get(value), Some(code), "{value}");
            assert_eq!(codes.code(value), (code, false), "{value}");
        }
    }
}
