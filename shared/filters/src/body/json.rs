//! Helpers for JSON values: semantic equality, emptiness, nesting depth, encoded size.
//!
//! Must stay true: 50 and 50.0 are equal; the order of an object's keys is irrelevant.

use serde_json::{Map, Value};

/// A JSON object; keys keep the order in which they were sent.
pub type Object = Map<String, Value>;

/// Whether two values are equal: numbers by value, objects regardless of key order.
pub fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(left, right)| same(left, right))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, left)| b.get(key).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}

/// Whether a value counts as empty in the activity log: null, and empty strings, lists and objects, but not false and
/// not 0.
pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Nesting depth: 0 for a scalar, 1 for `[]`, 2 for `[[]]`.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Bytes of the compact JSON text, counted without building it.
pub fn text_bytes(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither the counter nor a `Value` can fail; a failure would only make the count too small.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_key_order_do_not_matter_to_equality() {
        assert!(same(&json!({"a": 50, "b": [1.5]}), &json!({"b": [1.5], "a": 50.0})));
        assert!(!same(&json!(50), &json!("50")));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
        assert!(!same(&json!([1, 2]), &json!([2, 1])));
    }

    #[test]
    fn false_and_zero_are_not_empty() {
        for nothing in [json!(null), json!(""), json!([]), json!({})] {
            assert!(is_nothing(&nothing));
        }
        assert!(!is_nothing(&json!(false)) && !is_nothing(&json!(0)));
    }

    #[test]
    fn depth_and_length() {
        assert_eq!(depth(&json!(1)), 0);
        assert_eq!(depth(&json!({"a": [[1]], "b": {}})), 3);
        assert_eq!(text_bytes(&json!({"é": [1, true]})), "{\"é\":[1,true]}".len());
    }
}
