//! Typed access to request and node fields: a raw value together with the field name for error messages.
//!
//! Must stay true: null and absent are the same; numbers and booleans may be strings, because query strings send them so;
//! every error names the field as the caller spelled it.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::number_of;
use serde_json::{Map, Value};

use crate::limits;

/// One field of a request.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    /// The name that errors report as `attr`; nested fields are joined with `__`.
    pub attr: &'static str,
    /// The value; `None` if absent, null or a blank string (which query strings send for an empty field).
    pub value: Option<Cow<'a, Value>>,
}

impl<'a> Field<'a> {
    /// Gets a field of an object.
    pub fn of(object: &'a Map<String, Value>, key: &str, attr: &'static str) -> Self {
        let blank =
            |value: &Value| value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
        let value = object.get(key).filter(|value| !blank(value)).map(Cow::Borrowed);
        Self { attr, value }
    }

    /// Gets a field of an optional nested object.
    pub fn inside(object: Option<&'a Map<String, Value>>, key: &str, attr: &'static str) -> Self {
        object.map_or(Self { attr, value: None }, |object| Self::of(object, key, attr))
    }

    /// This field if it has a value, else `other`.
    pub fn or(self, other: Self) -> Self {
        if self.value.is_some() { self } else { other }
    }

    /// False if the field is absent, null, false, or an empty string, list or object.
    pub fn has_content(&self) -> bool {
        match self.value.as_deref() {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::String(text)) => !matches!(text.trim(), "" | "[]" | "{}" | "null"),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(object)) => !object.is_empty(),
            Some(_) => true,
        }
    }

    /// The value as a string; a blank one is absent.
    pub fn text(&self) -> CalcResult<Option<&str>> {
        match self.value.as_deref() {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) if text.len() > limits::NAME_BYTES => {
                Err(limits::too_long(self.attr, "text", limits::NAME_BYTES))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(CalcError::invalid(self.attr, "Not a valid string.")),
        }
    }

    /// The value as a boolean; absent is false.
    pub fn boolean(&self) -> CalcResult<bool> {
        self.value.as_deref().map_or(Ok(false), |value| parse_boolean(value, self.attr))
    }

    /// The value as the index of a group type.
    pub fn group_type_index(&self) -> CalcResult<Option<u8>> {
        let Some(index) = self.integer()? else { return Ok(None) };
        match u8::try_from(index) {
            Ok(index) if u64::from(index) < limits::GROUP_TYPES => Ok(Some(index)),
            _ => Err(limits::invalid_group_type(self.attr, &index.into())),
        }
    }

    /// The value as an integer, which may be a string; a blank one is absent.
    pub fn integer(&self) -> CalcResult<Option<i64>> {
        let invalid = || CalcError::invalid(self.attr, "A valid integer is required.");
        match self.value.as_deref() {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(value) => parse_integer(value).ok_or_else(invalid).map(Some),
        }
    }
}

/// Parses a boolean. True are `true`, 1, and the strings true, 1, yes, on, y and t in any case; any other string or number
/// is false.
pub fn parse_boolean(value: &Value, attr: &str) -> CalcResult<bool> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(on) => Ok(*on),
        Value::Number(number) => Ok(number.as_i64() == Some(1)),
        Value::String(text) => {
            let text = text.trim().to_ascii_lowercase();
            Ok(matches!(text.as_str(), "true" | "1" | "yes" | "on" | "y" | "t"))
        }
        _ => Err(CalcError::invalid(attr, "Must be a valid boolean.")),
    }
}

/// Parses an integer from a number without a fraction or from a string of digits.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
pub fn parse_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) if number.is_i64() => number.as_i64(),
        Value::String(text) if text.trim().parse::<i64>().is_ok() => text.trim().parse().ok(),
        Value::Number(_) => number_of(value)
            .filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
            .map(|number| number as i64),
        _ => None,
    }
}

/// An event or action of a request, not parsed yet.
#[derive(Debug, Clone)]
pub struct RawSeries<'a> {
    /// The request list it was in, for error messages.
    pub attr: &'static str,
    /// Whether this is an action rather than an event.
    pub action: bool,
    /// The event's name or the action's id.
    pub id: Option<Value>,
    /// All fields of the entry.
    pub fields: Cow<'a, Map<String, Value>>,
}

/// The unparsed breakdown fields of a request.
#[derive(Debug, Clone)]
pub struct RawBreakdown<'a> {
    pub breakdown: Field<'a>,
    pub kind: Field<'a>,
    pub breakdowns: Field<'a>,
    pub limit: Field<'a>,
    pub group_index: Field<'a>,
    pub normalize_url: Field<'a>,
    pub bins: Field<'a>,
    pub hide_other: Field<'a>,
}

/// The unparsed fields that all kinds share.
#[derive(Debug, Clone)]
pub struct RawCommon<'a> {
    pub series: Vec<RawSeries<'a>>,
    pub properties: Field<'a>,
    pub filter_test_accounts: Field<'a>,
    pub date_from: Field<'a>,
    pub date_to: Field<'a>,
    pub explicit_date: Field<'a>,
    pub interval: Field<'a>,
    pub breakdown: RawBreakdown<'a>,
}
