//! Validation of the fields that the bodies of all kinds have.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Fields;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule};
use pennon_filters::body::json;
use serde_json::{Map, Value};

use crate::limits;

/// The 400 for an invalid field.
pub fn invalid(error: FieldError) -> ApiError {
    ApiError::invalid(error.code, error.detail, error.attr.as_deref())
}

/// A body. Each method validates one field.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a>(pub &'a Fields);

impl Body<'_> {
    fn field<'a>(&'a self, name: &'a str) -> BodyField<'a> {
        BodyField::of(self.0, name)
    }

    /// A name, which may be null. `blank`: it may be empty.
    #[expect(clippy::option_option, reason = "absent and null are different")]
    pub fn name(&self, blank: bool) -> ApiResult<Option<Option<String>>> {
        let rule = TextRule { max_chars: limits::TEXT_CHARS, blank, trim: true };
        self.field("name").nullable(|name, value| fields::string(name, value, rule)).map_err(invalid)
    }

    /// A text that may be empty; null is an empty text.
    pub fn text(&self, name: &str, max_chars: usize) -> ApiResult<Option<String>> {
        let rule = TextRule { max_chars, blank: true, trim: false };
        let text = self.field(name).nullable(|name, value| fields::string(name, value, rule));
        Ok(text.map_err(invalid)?.map(Option::unwrap_or_default))
    }

    /// A boolean.
    pub fn boolean(&self, name: &str) -> ApiResult<Option<bool>> {
        self.field(name).sent(fields::boolean).map_err(invalid)
    }

    /// Tags; `owner` is for error texts. In a form they are JSON text of a list.
    pub fn tags(&self, owner: &str) -> ApiResult<Option<Vec<String>>> {
        let tags = |name: &str, value: &Value| match parse_form_value(name, value) {
            Ok(list @ Value::Array(_)) => fields::tags(name, &list, owner),
            _ => fields::tags(name, value, owner),
        };
        self.field("tags").sent(tags).map_err(invalid)
    }

    /// An object within the limits of a query; in a form it is JSON text.
    pub fn object(&self, name: &str) -> ApiResult<Option<Map<String, Value>>> {
        let object = |name: &str, value: &Value| {
            let value = parse_form_value(name, value)?;
            check_limits(name, &value)?;
            fields::object(name, &value).cloned()
        };
        self.field(name).sent(object).map_err(invalid)
    }

    /// A list within the limits of a query; in a form it is JSON text.
    pub fn list(&self, name: &str) -> ApiResult<Option<Vec<Value>>> {
        let list = |name: &str, value: &Value| {
            let value = parse_form_value(name, value)?;
            check_limits(name, &value)?;
            fields::list(name, &value).map(<[Value]>::to_vec)
        };
        self.field(name).sent(list).map_err(invalid)
    }

    /// 400 where the body has one of these unsupported fields.
    pub fn reject_unsupported(&self, names: &[&str]) -> ApiResult<()> {
        let is_sent = |name: &&&str| self.0.get(**name).is_some_and(|value| !json::is_nothing(value));
        match names.iter().find(is_sent) {
            Some(name) => {
                let detail = format!("Not supported yet: {name}.");
                Err(ApiError::invalid("invalid_input", detail, Some(name)))
            }
            None => Ok(()),
        }
    }
}

/// The value of a field; JSON text, as forms have it, is parsed.
fn parse_form_value(name: &str, value: &Value) -> Result<Value, FieldError> {
    match value {
        Value::String(text) => {
            serde_json::from_str(text).map_err(|_| FieldError::invalid(name, "The text is not valid JSON."))
        }
        other => Ok(other.clone()),
    }
}

/// Checks the limits of size and depth of a stored query.
pub fn check_limits(name: &str, value: &Value) -> Result<(), FieldError> {
    if json::text_bytes(value) > limits::QUERY_BYTES {
        let detail = format!("{name} must not be larger than {} KiB as JSON.", limits::QUERY_BYTES / 1024);
        return Err(FieldError::invalid(name, detail));
    }
    if json::depth(value) > limits::NESTING {
        let detail = format!("{name} must not be nested deeper than {} levels.", limits::NESTING);
        return Err(FieldError::invalid(name, detail));
    }
    Ok(())
}
