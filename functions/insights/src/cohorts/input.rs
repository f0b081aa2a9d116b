//! Validation of the bodies of writes of cohorts. Rules are validated by the engine in `write`.
//!
//! Must stay true: the first invalid field is reported, in the order of [`CohortInput`].

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Fields;
use pennon_filters::body::fields::{self, BodyField};
use pennon_filters::body::{FieldError, json};
use serde_json::Value;
use uuid::Uuid;

use crate::limits;
use crate::resource::body::{Body, check_limits, invalid};

/// The writable fields of a body; `None` is absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct CohortInput {
    /// `name`
    pub name: Option<Option<String>>,
    /// `description`
    pub description: Option<String>,
    /// `groups`; null if empty.
    pub groups: Option<Value>,
    /// `deleted`
    pub deleted: Option<bool>,
    /// `filters`; null if empty.
    pub filters: Option<Value>,
    /// `is_static`
    pub is_static: Option<bool>,
    /// `_create_static_person_ids`, of a new cohort: persons on its list.
    pub person_ids: BTreeSet<Uuid>,
    /// `distinct_ids` to add to the list.
    pub distinct_ids: Vec<String>,
}

impl CohortInput {
    /// Validates the body of an update, or of a new cohort. `was_static`: whether the cohort is static before the update;
    /// `None` for a new one.
    pub fn parse(fields: &Fields, was_static: Option<bool>) -> ApiResult<CohortInput> {
        let body = Body(fields);
        body.reject_unsupported(&["query"])?;
        let (name, description) = (body.name(true)?, body.text("description", limits::DESCRIPTION_CHARS)?);
        let groups = nullable(fields, "groups", |value| fields::list("groups", value).map(|_| ()))?;
        let deleted = body.boolean("deleted")?;
        let is_static = body.boolean("is_static")?;
        let is_static_cohort = is_static.or(was_static).unwrap_or(false);
        let filters = nullable(fields, "filters", |value| rules(value, is_static_cohort))?;
        let mut input =
            CohortInput { name, description, groups, deleted, filters, is_static, ..CohortInput::default() };
        if was_static.is_none()
            && let Some(list) = body.list("_create_static_person_ids")?
        {
            input.person_ids = uuids("_create_static_person_ids", &list)?;
        }
        if let Some(list) = body.list("distinct_ids")? {
            input.distinct_ids = distinct_ids(&list)?;
        }
        if !is_static_cohort && !input.person_ids.is_empty() {
            return Err(not_static("_create_static_person_ids"));
        }
        if !is_static_cohort && !input.distinct_ids.is_empty() {
            return Err(not_static("distinct_ids"));
        }
        Ok(input)
    }
}

/// The 400 for members of a dynamic cohort.
pub fn not_static(attr: &str) -> ApiError {
    ApiError::invalid("invalid_input", "Only static cohorts have a list of members.", Some(attr))
}

/// A field that may be null; in a form it is JSON text.
fn nullable(
    body: &Fields,
    name: &str,
    validate: impl FnOnce(&Value) -> Result<(), FieldError>,
) -> ApiResult<Option<Value>> {
    let Some(sent) = body.get(name) else { return Ok(None) };
    let value = match sent {
        Value::String(text) => serde_json::from_str(text)
            .map_err(|_| invalid(FieldError::invalid(name, "The text is not valid JSON.")))?,
        other => other.clone(),
    };
    if value.is_null() {
        return Ok(Some(Value::Null));
    }
    check_limits(name, &value).and_then(|()| validate(&value)).map_err(invalid)?;
    Ok(Some(value))
}

/// Rules are under `properties`. The filters of a static cohort have no effect and need none.
fn rules(value: &Value, is_static_cohort: bool) -> Result<(), FieldError> {
    let rules = fields::object("filters", value)?;
    if !is_static_cohort && !rules.contains_key("properties") {
        let detail = "Must contain a 'properties' key with type and values";
        return Err(FieldError::invalid("filters", detail));
    }
    Ok(())
}

fn distinct_ids(list: &[Value]) -> ApiResult<Vec<String>> {
    let id = |value: &Value| match value {
        Value::String(id) if !id.is_empty() && id.len() <= limits::DISTINCT_ID_BYTES => Ok(id.clone()),
        Value::String(_) => {
            let detail = format!("A distinct id has 1 to {} bytes.", limits::DISTINCT_ID_BYTES);
            Err(ApiError::invalid("invalid_input", detail, Some("distinct_ids")))
        }
        _ => Err(ApiError::invalid("invalid_input", "Not a valid string.", Some("distinct_ids"))),
    };
    list.iter().map(id).collect()
}

fn uuids(name: &str, list: &[Value]) -> ApiResult<BTreeSet<Uuid>> {
    list.iter().map(|value| fields::uuid_key(name, value).map_err(invalid)).collect()
}

/// `person_ids` to add.
pub fn person_ids(body: &Fields) -> ApiResult<BTreeSet<Uuid>> {
    let invalid_input = |detail: &str| Err(ApiError::invalid("invalid_input", detail, Some("person_ids")));
    let list = match body.get("person_ids") {
        Some(Value::Array(list)) => list,
        _ => return invalid_input("person_ids must be a list"),
    };
    if list.is_empty() {
        return invalid_input("person_ids cannot be empty");
    }
    if list.len() > limits::PERSONS_AT_ONCE {
        return invalid_input("List size exceeds limit");
    }
    uuids("person_ids", list)
}

/// `person_id` to remove.
pub fn person_id(body: &Fields) -> ApiResult<Uuid> {
    let invalid_input = |detail: &str| Err(ApiError::invalid("invalid_input", detail, Some("person_id")));
    match body.get("person_id") {
        None => invalid_input("person_id is required"),
        Some(value) if json::is_nothing(value) => invalid_input("person_id is required"),
        Some(Value::String(text)) => match text.trim().parse() {
            Ok(id) => Ok(id),
            Err(_) => invalid_input("person_id must be a valid UUID"),
        },
        Some(_) => BodyField::of(body, "person_id")
            .required(|name, _| Err(FieldError::invalid(name, "person_id must be a string")))
            .map_err(invalid),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(body: Value) -> ApiResult<CohortInput> {
        CohortInput::parse(body.as_object().unwrap(), None)
    }

    #[test]
    fn a_wrong_field_is_named() {
        let ids = |key: &str, value: Value| json!({"is_static": true, key: value});
        for (body, code, attr) in [
            (json!({"name": "x".repeat(401)}), "max_length", "name"),
            (json!({"description": []}), "invalid_input", "description"),
            (json!({"groups": {}}), "not_a_list", "groups"),
            (json!({"groups": "x"}), "invalid_input", "groups"),
            (json!({"deleted": "x"}), "invalid_input", "deleted"),
            (json!({"is_static": null}), "null", "is_static"),
            (json!({"filters": []}), "not_a_dict", "filters"),
            (json!({"filters": {}}), "invalid_input", "filters"),
            (json!({"filters": {"properties": "x".repeat(limits::QUERY_BYTES)}}), "invalid_input", "filters"),
            (json!({"query": {"kind": "HogQLQuery"}}), "invalid_input", "query"),
            (ids("_create_static_person_ids", json!(["x"])), "invalid_input", "_create_static_person_ids"),
            (ids("_create_static_person_ids", json!({})), "not_a_list", "_create_static_person_ids"),
            (ids("distinct_ids", json!([1])), "invalid_input", "distinct_ids"),
            (ids("distinct_ids", json!([""])), "invalid_input", "distinct_ids"),
            (json!({"distinct_ids": ["a"]}), "invalid_input", "distinct_ids"),
            (
                json!({"_create_static_person_ids": [Uuid::nil()]}),
                "invalid_input",
                "_create_static_person_ids",
            ),
        ] {
            let error = parse(body.clone()).unwrap_err().body();
            assert_eq!((&error["code"], &error["attr"]), (&json!(code), &json!(attr)), "{body}");
        }
        assert_eq!(parse(json!({"is_static": true, "filters": {}})).unwrap().filters, Some(json!({})));
        assert_eq!(parse(json!({"filters": null, "groups": null})).unwrap().filters, Some(Value::Null));
    }
}
