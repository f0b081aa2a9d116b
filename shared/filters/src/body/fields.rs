//! Parsers of single body fields, with the error messages that all endpoints share.
//!
//! Must stay true: a parser accepts the JSON form of a value and its string form (bodies of HTML forms contain only
//! strings); absent, null and present are distinct, see [`BodyField`].

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::json::Object;
use super::{FieldError, python, timestamp};
use crate::limits;

/// A field of a body: its name, and its value if present.
#[derive(Debug, Clone, Copy)]
pub struct BodyField<'a> {
    name: &'a str,
    value: Option<&'a Value>,
}

impl<'a> BodyField<'a> {
    /// The field `name` with a value from anywhere.
    pub fn new(name: &'a str, value: Option<&'a Value>) -> Self {
        Self { name, value }
    }

    /// The field `name` of a body.
    pub fn of(body: &'a Object, name: &'a str) -> Self {
        Self::new(name, body.get(name))
    }

    /// Parses a field that must be present and not null.
    pub fn required<T>(
        self,
        parse: impl FnOnce(&str, &Value) -> Result<T, FieldError>,
    ) -> Result<T, FieldError> {
        self.sent(parse)?.ok_or_else(|| FieldError::required(self.name))
    }

    /// Parses an optional field that must not be null; absent is `None`.
    pub fn sent<T>(
        self,
        parse: impl FnOnce(&str, &Value) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        match self.value {
            None => Ok(None),
            Some(Value::Null) => Err(FieldError::null(self.name)),
            Some(value) => parse(self.name, value).map(Some),
        }
    }

    /// Parses an optional nullable field: absent is `None`, null is `Some(None)`.
    pub fn nullable<T>(
        self,
        parse: impl FnOnce(&str, &Value) -> Result<T, FieldError>,
    ) -> Result<Option<Option<T>>, FieldError> {
        match self.value {
            Some(Value::Null) => Ok(Some(None)),
            _ => Ok(self.sent(parse)?.map(Some)),
        }
    }
}

/// The rules of a string field.
#[derive(Debug, Clone, Copy)]
pub struct TextRule {
    /// Longest value in characters.
    pub max_chars: usize,
    /// Whether an empty or blank value is accepted.
    pub blank: bool,
    /// Whether surrounding white space is removed.
    pub trim: bool,
}

/// Parses a string. Numbers are converted; booleans, lists and objects are refused.
pub fn string(name: &str, value: &Value, rule: TextRule) -> Result<String, FieldError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) => python::text(value),
        _ => return Err(FieldError::invalid(name, "Not a valid string.")),
    };
    let text = if rule.trim { text.trim().to_owned() } else { text };
    if !rule.blank && text.trim().is_empty() {
        return Err(FieldError::new(name, "blank", "This field may not be blank."));
    }
    if text.chars().count() > rule.max_chars {
        let detail = format!("Ensure this field has no more than {} characters.", rule.max_chars);
        return Err(FieldError::new(name, "max_length", detail));
    }
    Ok(text)
}

/// Parses a boolean: `true`, 1, and the strings `true t yes y on 1` in any case, and their opposites.
pub fn boolean(name: &str, value: &Value) -> Result<bool, FieldError> {
    let word = match value {
        Value::Bool(boolean) => return Ok(*boolean),
        Value::Number(number) if number.as_f64() == Some(1.0) => return Ok(true),
        Value::Number(number) if number.as_f64() == Some(0.0) => return Ok(false),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        _ => String::new(),
    };
    match word.as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err(FieldError::invalid(name, "Must be a valid boolean.")),
    }
}

/// Parses a 64-bit integer, as a number without a fraction or as digits in a string.
pub fn integer(name: &str, value: &Value, minimum: Option<i64>) -> Result<i64, FieldError> {
    let integer =
        as_integer(value).ok_or_else(|| FieldError::invalid(name, "A valid integer is required."))?;
    match minimum {
        Some(minimum) if integer < minimum => {
            let detail = format!("Ensure this value is greater than or equal to {minimum}.");
            Err(FieldError::new(name, "min_value", detail))
        }
        _ => Ok(integer),
    }
}

/// An integer in any accepted form: 5, 5.0, "5", " 5 ", "5.0".
pub fn as_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            let text = match text.split_once('.') {
                Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole,
                _ => text,
            };
            text.parse().ok()
        }
        _ => None,
    }
}

/// A float without a fraction, in the range where floats are exact.
fn whole(float: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    // The cast is exact in this range.
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
}

/// Parses one of a fixed set of strings.
pub fn choice(name: &str, value: &Value, choices: &[&'static str]) -> Result<&'static str, FieldError> {
    let text = python::text(value);
    match choices.iter().find(|choice| **choice == text) {
        Some(choice) if matches!(value, Value::String(_)) => Ok(choice),
        _ => Err(invalid_choice(name, &text)),
    }
}

/// The error for a value that is not among the choices.
pub fn invalid_choice(name: &str, word: &str) -> FieldError {
    FieldError::new(name, "invalid_choice", format!("\"{word}\" is not a valid choice."))
}

/// A JSON object.
pub fn object<'a>(name: &str, value: &'a Value) -> Result<&'a Object, FieldError> {
    value.as_object().ok_or_else(|| {
        let got = python::type_name(value);
        FieldError::new(name, "not_a_dict", format!("Expected a dictionary of items but got type \"{got}\"."))
    })
}

/// A JSON list.
pub fn list<'a>(name: &str, value: &'a Value) -> Result<&'a [Value], FieldError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| {
        let got = python::type_name(value);
        FieldError::new(name, "not_a_list", format!("Expected a list of items but got type \"{got}\"."))
    })
}

/// Parses tags: trimmed, lower case, without duplicates and empty ones, sorted. `owner` is the subject of the error for
/// too many tags.
pub fn tags(name: &str, value: &Value, owner: &str) -> Result<Vec<String>, FieldError> {
    let mut tags = BTreeSet::new();
    for tag in list(name, value)? {
        let Value::String(tag) = tag else { return Err(FieldError::invalid(name, "Not a valid string.")) };
        let tag = tag.trim().to_lowercase();
        if tag.chars().count() > limits::TAG_CHARS {
            let detail = format!("Ensure this field has no more than {} characters.", limits::TAG_CHARS);
            return Err(FieldError::new(name, "max_length", detail));
        }
        if !tag.is_empty() {
            tags.insert(tag);
        }
    }
    if tags.len() > limits::TAGS {
        let detail = format!("{owner} must not have more than {} tags.", limits::TAGS);
        return Err(FieldError::invalid(name, detail));
    }
    Ok(tags.into_iter().collect())
}

/// Parses an integer id, as a number or digits. Existence is checked elsewhere.
pub fn integer_key(name: &str, value: &Value) -> Result<i64, FieldError> {
    as_integer(value).ok_or_else(|| incorrect_type(name, value))
}

/// Parses a UUID. Existence is checked elsewhere.
pub fn uuid_key(name: &str, value: &Value) -> Result<Uuid, FieldError> {
    if !matches!(value, Value::String(_) | Value::Number(_)) {
        return Err(incorrect_type(name, value));
    }
    let text = python::text(value);
    Uuid::parse_str(text.trim())
        .map_err(|_| FieldError::invalid(name, format!("\u{201c}{text}\u{201d} is not a valid UUID.")))
}

fn incorrect_type(name: &str, value: &Value) -> FieldError {
    let got = python::type_name(value);
    FieldError::new(name, "incorrect_type", format!("Incorrect type. Expected pk value, received {got}."))
}

/// The error for an id without a record.
pub fn does_not_exist(name: &str, key: impl std::fmt::Display) -> FieldError {
    FieldError::new(name, "does_not_exist", format!("Invalid pk \"{key}\" - object does not exist."))
}

/// Parses a timestamp; without an offset it is in UTC.
pub fn datetime(name: &str, value: &Value) -> Result<DateTime<Utc>, FieldError> {
    value.as_str().and_then(timestamp::parse).ok_or_else(|| {
        let detail = "Datetime has wrong format. Use one of these formats instead: \
                      YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
        FieldError::invalid(name, detail)
    })
}

#[cfg(test)]
mod tests;
