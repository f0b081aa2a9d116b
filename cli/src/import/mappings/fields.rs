//! The fields of a record, taken out one by one; what is left at the end is unknown.

use serde_json::{Map, Value};

use super::{Context, Mapped};
use crate::import::ExtraFields;
use crate::import::record::id;

/// The fields that nothing took yet.
pub(crate) struct Fields(pub Map<String, Value>);

impl Fields {
    /// A value that is there and not null.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field).filter(|value| !value.is_null())
    }

    /// A text that is not empty; a number as its text.
    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(format!("{field} must be a text")),
        }
    }

    /// A distinct id, where there is one.
    pub(crate) fn id(&mut self, field: &str) -> Result<Option<String>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            value => id(value, field).map(Some),
        }
    }

    /// An object, or a text that holds one as JSON; empty where there is none.
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

    /// Takes fields that are not kept, and notes it.
    pub(crate) fn ignore(&mut self, fields: &[&str], rule: &'static str, mapped: &mut Mapped) {
        let mut is_any = false;
        for field in fields {
            is_any |= self.0.remove(*field).is_some();
        }
        if is_any {
            mapped.ignored.push(rule);
        }
    }

    /// What is left is refused, or taken as the command line says. `what` has these fields: "an event".
    pub(crate) fn finish(
        self,
        what: &str,
        properties: &mut Map<String, Value>,
        context: &Context<'_>,
        mapped: &mut Mapped,
    ) -> Result<(), String> {
        for (key, value) in self.0 {
            match context.extra {
                ExtraFields::Refuse => {
                    return Err(format!(
                        "`{key}` is no field of {what}; put it into `properties`, or pass --extra properties"
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
