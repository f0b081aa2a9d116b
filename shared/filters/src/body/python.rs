//! Formats JSON values as Python does, because values and type names appear that way in error details.
//!
//! Must stay true: [`repr`] of any JSON value equals Python's `repr` of the decoded value; [`text`] differs only for a
//! bare string, which stays unquoted.

use serde_json::{Number, Value};

/// Python's type name of a decoded JSON value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// Formats as `str()`: a string as it is, anything else as in [`repr`].
pub fn text(value: &Value) -> String {
    match value {
        Value::String(string) => string.clone(),
        other => repr(other),
    }
}

/// Formats as `repr()`: quoted strings, `True`, `False`, `None`, lists and dictionaries with `, ` and `: `.
pub fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number_repr(number),
        Value::String(string) => quoted(string),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{}: {}", quoted(key), repr(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn number_repr(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_repr(float),
        _ => number.to_string(),
    }
}

/// The shortest digits that parse back to the same float; with an exponent below 1e-4 and from 1e16 on.
fn float_repr(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A quoted string: single quotes, unless it contains such a quote and no double one.
fn quoted(string: &str) -> String {
    let quote = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(string.len() + 2);
    out.push(quote);
    for character in string.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_in_python() {
        // Right-hand sides were printed by CPython 3.11 from the same JSON texts.
        for (value, expected) in [
            (json!(["@posthog.com"]), "['@posthog.com']"),
            (json!([1, 2]), "[1, 2]"),
            (json!({"a": 1}), "{'a': 1}"),
            (json!([true, false, null]), "[True, False, None]"),
            (json!(["it's"]), "[\"it's\"]"),
            (json!(["it's \"x\""]), "['it\\'s \"x\"']"),
            (json!(["a\\b\n\t\u{1}"]), "['a\\\\b\\n\\t\\x01']"),
            (json!(50.0), "50.0"),
            (json!(12.5), "12.5"),
            (json!(-0.25), "-0.25"),
            (json!(1e16), "1e+16"),
            (json!(1e15), "1000000000000000.0"),
            (json!(0.0001), "0.0001"),
            (json!(0.00001), "1e-05"),
            (json!(1.5e-7), "1.5e-07"),
            (json!(1e300), "1e+300"),
            (json!([]), "[]"),
            (json!({}), "{}"),
            (json!(["é"]), "['é']"),
        ] {
            assert_eq!(repr(&value), expected);
        }
        assert_eq!(text(&json!("bare")), "bare");
        assert_eq!(text(&json!(true)), "True");
    }

    #[test]
    fn type_names_are_those_of_python() {
        for (value, expected) in [
            (json!("a"), "str"),
            (json!(1), "int"),
            (json!(1.0), "float"),
            (json!(true), "bool"),
            (json!([]), "list"),
            (json!({}), "dict"),
            (json!(null), "NoneType"),
        ] {
            assert_eq!(type_name(&value), expected);
        }
    }
}
