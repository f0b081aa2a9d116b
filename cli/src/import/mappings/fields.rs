//! The fields of a record. A mapping removes those that it knows; the rest is unknown.

use serde_json::{Map, Value};

use super::{MappedRecord, MappingContext};
use crate::import::ExtraFields;
use crate::import::record::parse_id;

/// The fields that were not read yet.
pub(crate) struct UnreadFields(pub Map<String, Value>);

impl UnreadFields {
    /// Removes a field; `None` if it is absent or null.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field).filter(|value| !value.is_null())
    }

    /// Removes a text that is not empty; a number is converted.
    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(format!("{field} must be a text")),
        }
    }

    /// Removes a distinct id; `None` if it is absent or blank.
    pub(crate) fn id(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            value => parse_id(value, field).map(Some),
        }
    }

    /// Removes an object, or a text with one as JSON; empty if it is absent.
    pub(crate) fn object(&mut self, field: &str) -> Result<Map<String, Value>, String> {
        match self.take(field) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(Map::new()),
            Some(Value::String(text)) => match serde_json::from_str(&text) {
                Ok(Value::Object(object)) => Ok(object),
                Ok(Value::Null) => Ok(Map::new()),
                Ok(_) => Err(format!("{field} must be an object")),
                Err(error) => Err(format!("{field} is not valid JSON: {error}")),
            },
            Some(_) => Err(format!("{field} must be an object")),
        }
    }

    /// Removes fields that are dropped, and adds `rule` if there were any.
    pub(crate) fn ignore(&mut self, fields: &[&str], rule: &'static str, mapped: &mut MappedRecord) {
        let mut has_any = false;
        for field in fields {
            has_any |= self.0.remove(*field).is_some();
        }
        if has_any {
            mapped.ignored.push(rule);
        }
    }

    /// Handles the remaining, unknown fields according to `--extra`. `what` is the kind of record in messages, such as "an event".
    pub(crate) fn finish(
        self,
        what: &str,
        properties: &mut Map<String, Value>,
        context: &MappingContext<'_>,
        mapped: &mut MappedRecord,
    ) -> Result<(), String> {
        for (key, value) in self.0 {
            match context.extra {
                ExtraFields::Refuse => {
                    return Err(format!(
                        "`{key}` is not a field of {what}; put it into `properties`, or pass --extra properties"
                    ));
                }
                ExtraFields::Properties if properties.contains_key(&key) => {
                    return Err(format!("`{key}` is there twice: beside `properties` and in it"));
                }
                ExtraFields::Properties => {
                    properties.insert(key, value);
                }
                ExtraFields::Ignore => mapped.ignored.push("unknown fields (--extra ignore)"),
            }
        }
        Ok(())
    }
}
