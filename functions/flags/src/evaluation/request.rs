//! Validates an evaluation request.
//!
//! Must stay true: of two spellings of a field the first has precedence; null counts as absent; a value of the wrong
//! type is an error that names the field as the client spelled it.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Fields, nesting};
use pennon_core::limits::evaluation::{DISTINCT_ID_CHARS_MAX, FLAG_KEYS_MAX, ID_CHARS_MAX, NESTING_MAX};
use pennon_filters::body::json::Object;
use serde_json::Value;

/// An evaluation request for one person.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvaluationRequest {
    /// The distinct id of the person.
    pub distinct_id: String,
    /// The anonymous distinct id from before a login.
    pub anonymous_id: Option<String>,
    /// The device id.
    pub device_id: Option<String>,
    /// Group keys by group type name.
    pub groups: BTreeMap<String, String>,
    /// Person properties; they override the stored ones.
    pub person_properties: Object,
    /// Group properties by group type name; they override the stored ones.
    pub group_properties: BTreeMap<String, Object>,
    /// The requested flag keys; `None` means all.
    pub flag_keys: Option<BTreeSet<String>>,
    /// The evaluation runtime that the body states.
    pub runtime: Option<String>,
    /// Whether the client wants no flags.
    pub disable_flags: bool,
}

impl EvaluationRequest {
    /// Parses a body.
    pub fn parse(mut fields: Fields) -> ApiResult<Self> {
        let mut request = Self::parse_person(&mut fields)?;
        request.flag_keys = match take_field(&mut fields, &["flag_keys", "flag_keys_to_evaluate"]) {
            None => None,
            Some((name, keys)) => {
                let keys: BTreeSet<String> = parse_texts(name, keys)?.into_iter().collect();
                if keys.len() > FLAG_KEYS_MAX {
                    let detail = format!("{name} must not have more than {FLAG_KEYS_MAX} keys.");
                    return Err(invalid(name, detail));
                }
                Some(keys)
            }
        };
        if let Some((name, contexts)) =
            take_field(&mut fields, &["evaluation_contexts", "evaluation_environments"])
        {
            parse_texts(name, contexts)?;
        }
        request.runtime = take_text(&mut fields, &["evaluation_runtime"])?.map(|(_, runtime)| runtime);
        request.disable_flags = match take_field(&mut fields, &["disable_flags"]) {
            None => false,
            Some((_, Value::Bool(disabled))) => disabled,
            Some((name, _)) => return Err(invalid(name, format!("{name} must be true or false."))),
        };
        if !request.disable_flags {
            request.distinct_id = parse_distinct_id(&mut fields)?;
        }
        Ok(request)
    }

    /// Parses the fields about the person, except its id.
    fn parse_person(fields: &mut Fields) -> ApiResult<Self> {
        let person_properties = match take_field(fields, &["person_properties", "$properties"]) {
            None => Object::new(),
            Some((name, properties)) => parse_properties(name, properties)?,
        };
        let groups = match take_field(fields, &["groups", "$groups"]) {
            None => BTreeMap::new(),
            Some((name, groups)) => parse_group_keys(name, groups)?,
        };
        let group_properties = take_field(fields, &["group_properties", "$group_properties"])
            .map_or(Ok(BTreeMap::new()), parse_group_properties)?;
        let anonymous_id = parse_id(fields, ["$anon_distinct_id", "anon_distinct_id"], &person_properties)?;
        let device_id = parse_id(fields, ["$device_id", "device_id"], &person_properties)?;
        Ok(Self { anonymous_id, device_id, groups, person_properties, group_properties, ..Self::default() })
    }

    /// Parses an OpenFeature context, without `targetingKey`, which is passed as `distinct_id`.
    pub fn parse_context(distinct_id: &str, mut context: Fields) -> ApiResult<Self> {
        let groups = take_field(&mut context, &["groups"])
            .map_or(Ok(BTreeMap::new()), |(name, groups)| parse_group_keys(name, groups))?;
        let group_properties = take_field(&mut context, &["group_properties", "groupProperties"])
            .map_or(Ok(BTreeMap::new()), parse_group_properties)?;
        let no_properties = Object::new();
        let anonymous_id = parse_id(&mut context, ["$anon_distinct_id"; 2], &no_properties)?;
        let device_id = parse_id(&mut context, ["$device_id"; 2], &no_properties)?;
        let person_properties = parse_properties("context", Value::Object(context))?;
        Ok(Self {
            distinct_id: truncate_distinct_id(distinct_id),
            anonymous_id,
            device_id,
            groups,
            person_properties,
            group_properties,
            ..Self::default()
        })
    }
}

fn invalid(name: &str, detail: impl Into<String>) -> ApiError {
    ApiError::invalid("invalid_input", detail, Some(name))
}

/// Takes the field under the first of its names that is present and not null.
fn take_field(fields: &mut Fields, names: &[&'static str]) -> Option<(&'static str, Value)> {
    let found = names.iter().find(|name| fields.get(**name).is_some_and(|value| !value.is_null()))?;
    Some((found, fields.remove(*found)?))
}

fn take_text(fields: &mut Fields, names: &[&'static str]) -> ApiResult<Option<(&'static str, String)>> {
    match take_field(fields, names) {
        None => Ok(None),
        Some((name, Value::String(text))) => Ok(Some((name, text))),
        Some((name, _)) => Err(invalid(name, format!("{name} must be a string."))),
    }
}

fn parse_texts(name: &str, list: Value) -> ApiResult<Vec<String>> {
    let invalid_type = || invalid(name, format!("{name} must be a list of strings."));
    let Value::Array(items) = list else { return Err(invalid_type()) };
    let text = |item| if let Value::String(text) = item { Ok(text) } else { Err(invalid_type()) };
    items.into_iter().map(text).collect()
}

fn parse_distinct_id(fields: &mut Fields) -> ApiResult<String> {
    match take_field(fields, &["distinct_id", "$distinct_id"]) {
        None => Err(ApiError::invalid("required", "This field is required.", Some("distinct_id"))),
        Some((_, Value::String(id))) => Ok(truncate_distinct_id(&id)),
        Some((_, Value::Number(id))) => Ok(truncate_distinct_id(&id.to_string())),
        Some(_) => Err(invalid("distinct_id", "distinct_id must be a string or a number.")),
    }
}

/// Truncates a distinct id to the stored length.
fn truncate_distinct_id(id: &str) -> String {
    id.chars().take(DISTINCT_ID_CHARS_MAX).collect()
}

/// An id that may also be a person property. Empty counts as absent.
fn parse_id(
    fields: &mut Fields,
    names: [&'static str; 2],
    person_properties: &Object,
) -> ApiResult<Option<String>> {
    let inner = || Some((names[0], person_properties.get(names[0])?.as_str()?.to_owned()));
    let Some((name, id)) = take_text(fields, &names)?.or_else(inner) else { return Ok(None) };
    check_length(name, &id)?;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

fn check_length(name: &str, id: &str) -> ApiResult<()> {
    // A character has at least one byte.
    if id.len() <= ID_CHARS_MAX || id.chars().count() <= ID_CHARS_MAX {
        return Ok(());
    }
    Err(invalid(name, format!("{name} must not have more than {ID_CHARS_MAX} characters.")))
}

/// Group keys: strings and numbers. Anything else, and the empty string, names no group.
fn parse_group_keys(name: &'static str, groups: Value) -> ApiResult<BTreeMap<String, String>> {
    let Value::Object(groups) = groups else {
        return Err(invalid(name, format!("{name} must be an object of keys by group type.")));
    };
    let mut keys = BTreeMap::new();
    for (of, key) in groups {
        let key = match key {
            Value::String(key) => key,
            Value::Number(key) => key.to_string(),
            _ => continue,
        };
        check_length(name, &key)?;
        if !key.is_empty() {
            keys.insert(of, key);
        }
    }
    Ok(keys)
}

fn parse_group_properties((name, properties): (&'static str, Value)) -> ApiResult<BTreeMap<String, Object>> {
    let invalid_type = || invalid(name, format!("{name} must be an object of objects by group type."));
    let Value::Object(types) = properties else { return Err(invalid_type()) };
    let mut parse_group_properties = BTreeMap::new();
    for (of, properties) in types {
        match properties {
            Value::Null => {}
            Value::Object(_) => drop(parse_group_properties.insert(of, parse_properties(name, properties)?)),
            _ => return Err(invalid_type()),
        }
    }
    Ok(parse_group_properties)
}

fn parse_properties(name: &str, properties: Value) -> ApiResult<Object> {
    let Value::Object(properties) = properties else {
        return Err(invalid(name, format!("{name} must be an object.")));
    };
    if properties.values().any(|value| nesting(value) > NESTING_MAX) {
        let detail = format!("{name} must not have values that are nested deeper than {NESTING_MAX} levels.");
        return Err(invalid(name, detail));
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(body: Value) -> Result<EvaluationRequest, Value> {
        let Value::Object(fields) = body else { unreachable!() };
        EvaluationRequest::parse(fields).map_err(|error| error.body())
    }

    #[test]
    fn both_spellings_are_read_and_the_first_counts() {
        let first = parse(json!({
            "distinct_id": 8_675_309, "$distinct_id": "x", "$anon_distinct_id": "anon", "anon_distinct_id": "y",
            "device_id": "device", "$device_id": null, "groups": {"a": 1.5, "b": "", "c": true}, "$groups": 5,
            "flag_keys_to_evaluate": ["k", "k"], "evaluation_runtime": "SERVER", "disable_flags": false,
            "person_properties": {"a": null}, "group_properties": {"a": {"b": 1}, "c": null}, "timezone": 5,
        }));
        let first = first.unwrap();
        assert_eq!(first.distinct_id, "8675309");
        assert_eq!(first.anonymous_id.as_deref(), Some("anon"));
        assert_eq!(first.device_id.as_deref(), Some("device"));
        assert_eq!(first.groups, BTreeMap::from([("a".to_owned(), "1.5".to_owned())]));
        assert_eq!(first.flag_keys, Some(BTreeSet::from(["k".to_owned()])));
        assert_eq!(first.runtime.as_deref(), Some("SERVER"));
        assert!(first.person_properties.contains_key("a") && first.group_properties.len() == 1);
        let inner =
            json!({"distinct_id": "", "person_properties": {"$device_id": "d", "$anon_distinct_id": 5}});
        let inner = parse(inner).unwrap();
        assert_eq!((inner.device_id.as_deref(), inner.anonymous_id), (Some("d"), None));
        assert!(parse(json!({"disable_flags": true, "distinct_id": [1]})).unwrap().disable_flags);
    }

    #[test]
    fn fields_of_the_wrong_type_are_named_as_they_were_spelt() {
        for (body, attr, code) in [
            (json!({}), "distinct_id", "required"),
            (json!({"distinct_id": null}), "distinct_id", "required"),
            (json!({"distinct_id": true}), "distinct_id", "invalid_input"),
            (json!({"$distinct_id": {}}), "distinct_id", "invalid_input"),
            (json!({"distinct_id": "u", "$groups": []}), "$groups", "invalid_input"),
            (json!({"distinct_id": "u", "$properties": 1}), "$properties", "invalid_input"),
            (json!({"distinct_id": "u", "group_properties": {"a": 1}}), "group_properties", "invalid_input"),
            (json!({"distinct_id": "u", "flag_keys": [1]}), "flag_keys", "invalid_input"),
            (json!({"flag_keys_to_evaluate": {}}), "flag_keys_to_evaluate", "invalid_input"),
            (json!({"distinct_id": "u", "disable_flags": "true"}), "disable_flags", "invalid_input"),
            (json!({"distinct_id": "u", "device_id": 5}), "device_id", "invalid_input"),
            (json!({"distinct_id": "u", "evaluation_runtime": 5}), "evaluation_runtime", "invalid_input"),
            (json!({"distinct_id": "u", "evaluation_contexts": "x"}), "evaluation_contexts", "invalid_input"),
        ] {
            let error = parse(body.clone()).unwrap_err();
            assert_eq!((&error["attr"], &error["code"]), (&json!(attr), &json!(code)), "{body}");
        }
    }

    #[test]
    fn limits_hold_at_the_limit_and_one_past_it() {
        let keys = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert!(parse(json!({"distinct_id": "u", "flag_keys": keys(1000)})).is_ok());
        assert_eq!(
            parse(json!({"distinct_id": "u", "flag_keys": keys(1001)})).unwrap_err()["attr"],
            "flag_keys"
        );
        for name in ["$anon_distinct_id", "$device_id"] {
            assert!(parse(json!({"distinct_id": "u", name: "ü".repeat(400)})).is_ok());
            assert_eq!(parse(json!({"distinct_id": "u", name: "a".repeat(401)})).unwrap_err()["attr"], name);
        }
        assert!(parse(json!({"distinct_id": "u", "groups": {"a": "k".repeat(400)}})).is_ok());
        assert!(parse(json!({"distinct_id": "u", "groups": {"a": "k".repeat(401)}})).is_err());
        assert_eq!(parse(json!({"distinct_id": "ü".repeat(201)})).unwrap().distinct_id, "ü".repeat(200));
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        for name in ["person_properties", "group_properties"] {
            let body = |value: Value| {
                let properties = if name == "person_properties" {
                    json!({"a": value})
                } else {
                    json!({"g": {"a": value}})
                };
                json!({"distinct_id": "u", name: properties})
            };
            assert!(parse(body(nested(64))).is_ok());
            assert_eq!(parse(body(nested(65))).unwrap_err()["attr"], name);
        }
    }
}
