//! Converts JSON values to text and numbers for comparisons.
//!
//! Must stay true: filter values and property values are converted by the same functions, so that `5` equals `"5"` and
//! `true` equals `"true"`.

use std::borrow::Cow;

use serde_json::{Number, Value};

use crate::body::json::text_bytes;

/// Converts a value to text: strings unchanged, booleans as `true` and `false`, whole numbers without a fraction, the rest
/// as compact JSON. None for null.
#[inline]
pub fn text_of(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(true) => Some(Cow::Borrowed("true")),
        Value::Bool(false) => Some(Cow::Borrowed("false")),
        Value::Number(number) => Some(Cow::Owned(number_text(number))),
        other => Some(Cow::Owned(other.to_string())),
    }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        // Below 2^53 a whole float is an exact integer.
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
            format!("{}", float as i64)
        }
        _ => number.to_string(),
    }
}

/// Length of the text form in bytes, without building it. Approximate for values other than strings.
#[inline]
pub fn text_length(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => text_bytes(value),
    }
}

/// The number of a JSON number or numeric string. None for booleans.
#[inline]
pub fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => numeric(text),
        _ => None,
    }
}

/// Parses a finite decimal number.
pub fn numeric(text: &str) -> Option<f64> {
    let spelled =
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'));
    let number = if spelled { text.parse::<f64>().ok()? } else { return None };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_one_text_form() {
        let cases = [
            (json!("a"), "a"),
            (json!(true), "true"),
            (json!(5), "5"),
            (json!(5.0), "5"),
            (json!(-0.25), "-0.25"),
            (json!(18_446_744_073_709_551_615_u64), "18446744073709551615"),
            (json!([1, "x"]), "[1,\"x\"]"),
            (json!({"a": null}), "{\"a\":null}"),
        ];
        for (value, text) in cases {
            assert_eq!(text_of(&value).unwrap(), text);
        }
        assert!(text_of(&Value::Null).is_none());
    }

    #[test]
    fn numbers_are_read_from_numeric_text_only() {
        assert_eq!(number_of(&json!("1.5")), Some(1.5));
        assert_eq!(number_of(&json!(2)), Some(2.0));
        for other in
            [json!("inf"), json!("nan"), json!(""), json!("1x"), json!(true), json!(null), json!("1e999")]
        {
            assert_eq!(number_of(&other), None, "{other}");
        }
    }
}
