//! Validation of the bodies of writes.
//!
//! Must stay true: absent, null and a value are different; read-only and unknown fields are ignored, except misspelled
//! writable fields; the first invalid field is reported, in the order of [`InsightInput`].

use pennon_analytics::kinds::decode_and_validate_query;
use pennon_calculation::engine_error;
use pennon_core::error::ApiResult;
use pennon_core::http::Fields;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule};
use pennon_filters::body::spelling::check_spelling;
use serde_json::{Map, Value};

use super::fields::{FieldWrite, INSIGHT_FIELDS, InsightField};
use crate::limits;
use crate::resource::body::{check_limits, invalid};

const TEXT: TextRule = TextRule { max_chars: limits::TEXT_CHARS, blank: true, trim: false };

/// The writable fields of a body; `None` is absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct InsightInput {
    /// `name`
    pub name: Option<Option<String>>,
    /// `derived_name`
    pub derived_name: Option<Option<String>>,
    /// `description`
    pub description: Option<Option<String>>,
    /// `filters`
    pub filters: Option<Map<String, Value>>,
    /// `query`
    pub query: Option<Option<Value>>,
    /// `order`
    pub order: Option<Option<i64>>,
    /// `deleted`
    pub deleted: Option<bool>,
    /// `favorited`
    pub favorited: Option<bool>,
    /// `saved`
    pub saved: Option<bool>,
    /// `tags`, trimmed, lower case, sorted, without duplicates.
    pub tags: Option<Vec<String>>,
    /// `dashboards`, without duplicates; their existence is not checked here. `None` in a deletion, where it has no effect.
    pub dashboards: Option<Vec<u64>>,
}

impl InsightInput {
    /// Validates a body.
    pub fn parse(body: &Fields) -> ApiResult<InsightInput> {
        let (writable, others): (Vec<&InsightField>, Vec<&InsightField>) =
            INSIGHT_FIELDS.iter().partition(|field| field.write != FieldWrite::Ignored);
        check_spelling(body, &names(&writable), &names(&others)).map_err(invalid)?;
        let field = |name| BodyField::of(body, name);
        let text =
            |name| field(name).nullable(|name, value| fields::string(name, value, TEXT)).map_err(invalid);
        let boolean = |name| field(name).sent(fields::boolean).map_err(invalid);
        let mut input = InsightInput {
            name: text("name")?,
            derived_name: text("derived_name")?,
            description: text("description")?,
            filters: body.get("filters").map(filters).transpose().map_err(invalid)?,
            query: body.get("query").map(query).transpose()?,
            order: field("order")
                .nullable(|name, value| fields::integer(name, value, None))
                .map_err(invalid)?,
            deleted: boolean("deleted")?,
            favorited: boolean("favorited")?,
            saved: boolean("saved")?,
            tags: field("tags")
                .sent(|name, value| fields::tags(name, value, "An insight"))
                .map_err(invalid)?,
            dashboards: field("dashboards").sent(dashboards).map_err(invalid)?,
        };
        if input.deleted == Some(true) {
            input.dashboards = None;
        }
        Ok(input)
    }

    /// Whether it has a field of the insight's content. A new field does not compile until it is decided whether it is one.
    pub fn has_content(&self) -> bool {
        let InsightInput {
            name,
            derived_name: _,
            description,
            filters,
            query,
            order: _,
            deleted: _,
            favorited: _,
            saved: _,
            tags: _,
            dashboards: _,
        } = self;
        name.is_some() || description.is_some() || filters.is_some() || query.is_some()
    }
}

fn names(fields: &[&InsightField]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

/// An object, or JSON text of one. Of a list, which old clients send, the first entry is used.
fn filters(value: &Value) -> Result<Map<String, Value>, FieldError> {
    let decoded;
    let mut value = value;
    if let Value::String(text) = value {
        decoded = serde_json::from_str::<Value>(text)
            .map_err(|_| FieldError::invalid("filters", "The text is not valid JSON."))?;
        value = &decoded;
    }
    if let Value::Array(list) = value {
        value = list.first().unwrap_or(&Value::Null);
    }
    if value.is_null() {
        return Ok(Map::new());
    }
    let filters = fields::object("filters", value)?.clone();
    check_limits("filters", value)?;
    Ok(filters)
}

fn query(value: &Value) -> ApiResult<Option<Value>> {
    // The limits apply to the value as sent, and to the accepted query.
    check_limits("query", value).map_err(invalid)?;
    let query = decode_and_validate_query(value).map_err(engine_error)?;
    check_limits("query", query.as_ref().unwrap_or(&Value::Null)).map_err(invalid)?;
    Ok(query)
}

fn dashboards(name: &str, value: &Value) -> Result<Vec<u64>, FieldError> {
    let sent = fields::list(name, value)?;
    let mut ids = Vec::new();
    for value in sent {
        let id = fields::integer_key(name, value)?;
        let id = u64::try_from(id).map_err(|_| fields::does_not_exist(name, id))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
        if ids.len() > limits::DASHBOARDS {
            let detail = format!("An insight must not be on more than {} dashboards.", limits::DASHBOARDS);
            return Err(FieldError::invalid(name, detail));
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests;
