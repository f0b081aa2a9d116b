//! Dictionary encoding of JSON values: equal values share a code.
//!
//! Must stay true: two values are equal if their JSON text is equal. Objects with the same members in another order are
//! different values, because breakdowns and filters see their text; otherwise the result would depend on which of them
//! came first.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use serde_json::Value;

/// Assigns codes from 0 on to distinct values. `K` is `Value` or `&Value`.
#[derive(Debug)]
pub struct DictionaryEncoder<K> {
    plain: HashMap<K, u32>,
    /// Objects and lists by their JSON text, because `Value` equality ignores the order of object members.
    nested: HashMap<String, u32>,
}

impl<K> Default for DictionaryEncoder<K> {
    fn default() -> Self {
        Self { plain: HashMap::new(), nested: HashMap::new() }
    }
}

impl<K: Borrow<Value> + Eq + Hash> DictionaryEncoder<K> {
    /// The code of a value; none if it has no code yet.
    pub fn get(&self, value: &Value) -> Option<u32> {
        if is_nested(value) { self.nested.get(&value.to_string()) } else { self.plain.get(value) }.copied()
    }

    /// The code of a value, and whether it was assigned by this call.
    pub fn code(&mut self, value: K) -> (u32, bool) {
        // At most one code per row, and row counts fit into 32 bits.
        let next = u32::try_from(self.plain.len() + self.nested.len()).unwrap_or(u32::MAX);
        if is_nested(value.borrow()) {
            let text = value.borrow().to_string();
            get_or_insert(self.nested.entry(text), next)
        } else {
            get_or_insert(self.plain.entry(value), next)
        }
    }
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

fn get_or_insert<Q>(entry: Entry<'_, Q, u32>, next: u32) -> (u32, bool) {
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
    fn values_with_equal_json_text_share_a_code() {
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
        let mut codes = DictionaryEncoder::default();
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
