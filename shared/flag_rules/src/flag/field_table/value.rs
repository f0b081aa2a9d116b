//! The value of one field of a flag, borrowed, so that rendering and comparing copy nothing.

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::body::timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::flag::UserRef;

/// A value of a field. It serializes as responses and records contain it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the variants are named after the types that they hold")]
pub enum FieldValue<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(&'a str),
    Instant(#[serde(serialize_with = "timestamp::serialize")] DateTime<Utc>),
    Texts(&'a [String]),
    Integers(&'a [i64]),
    Json(&'a Value),
    Object(&'a Object),
    User(&'a UserRef),
}

impl FieldValue<'_> {
    /// The value as JSON.
    pub fn to_json(self) -> Value {
        // Every variant is JSON already, so this cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether the field was never set: null, false, or an empty object.
    pub fn is_unset(self) -> bool {
        match self {
            FieldValue::Null | FieldValue::Boolean(false) => true,
            FieldValue::Object(object) => object.is_empty(),
            _ => false,
        }
    }
}

impl From<&bool> for FieldValue<'_> {
    fn from(value: &bool) -> Self {
        Self::Boolean(*value)
    }
}

impl From<&i64> for FieldValue<'_> {
    fn from(value: &i64) -> Self {
        Self::Integer(*value)
    }
}

impl From<&DateTime<Utc>> for FieldValue<'_> {
    fn from(value: &DateTime<Utc>) -> Self {
        Self::Instant(*value)
    }
}

impl<'a> From<&'a String> for FieldValue<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a Vec<String>> for FieldValue<'a> {
    fn from(value: &'a Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl<'a> From<&'a Vec<i64>> for FieldValue<'a> {
    fn from(value: &'a Vec<i64>) -> Self {
        Self::Integers(value)
    }
}

impl<'a> From<&'a Object> for FieldValue<'a> {
    fn from(value: &'a Object) -> Self {
        Self::Object(value)
    }
}

impl<'a> From<&'a UserRef> for FieldValue<'a> {
    fn from(value: &'a UserRef) -> Self {
        Self::User(value)
    }
}

impl<'a> From<&'a Value> for FieldValue<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Boolean(*value),
            other => Self::Json(other),
        }
    }
}

macro_rules! null_if_none {
    ($($kind:ty),*) => {$(
        impl<'a> From<&'a Option<$kind>> for FieldValue<'a> {
            fn from(value: &'a Option<$kind>) -> Self {
                match value {
                    Some(value) => value.into(),
                    None => Self::Null,
                }
            }
        }
    )*};
}

null_if_none!(bool, i64, String, DateTime<Utc>, UserRef);
