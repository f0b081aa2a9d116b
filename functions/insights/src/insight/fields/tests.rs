#![allow(clippy::unwrap_used)]
//! Every field of an insight has a row, and every row reads and writes its own field and is in the API document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Map;

use super::*;
use crate::insight::InsightInput;
use crate::insight::record::tests::insight;

/// The names of all fields of a struct. A field that is missing here does not compile.
macro_rules! names_of {
    ($type:ident, $value:expr, [$($name:ident),* $(,)?]) => {{
        let $type { $($name: _),* } = $value;
        [$(stringify!($name)),*]
    }};
}

/// The properties of a schema of the API document.
fn documented(schema: &str) -> Map<String, Value> {
    let components = pennon_openapi::components();
    let (_, schema) = components.into_iter().find(|(name, _)| *name == schema).unwrap();
    schema["properties"].as_object().unwrap().clone()
}

#[test]
fn each_field_of_the_record_has_a_row() {
    let record = names_of!(
        Insight,
        insight(1, json!({})),
        [
            id,
            short_id,
            name,
            derived_name,
            description,
            filters,
            query,
            order,
            deleted,
            favorited,
            saved,
            tags,
            tiles,
            created_at,
            created_by,
            updated_at,
            last_modified_at,
            last_modified_by,
            row_version,
        ]
    );
    for name in record {
        let row = INSIGHT_FIELDS.iter().find(|field| field.name == name);
        assert!(row.is_some_and(|field| field.value.is_some()), "no row in INSIGHT_FIELDS: {name}");
    }
    let stored = INSIGHT_FIELDS.iter().filter(|field| field.value.is_some());
    assert_eq!(stored.count(), record.len(), "a row for a field that the record does not have");
    let names: BTreeSet<&str> = INSIGHT_FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), INSIGHT_FIELDS.len(), "two rows for one field");
}

#[test]
fn each_writable_field_of_the_record_is_written() {
    let body = json!({
        "name": "a", "derived_name": "b", "description": "c", "filters": {"insight": "FUNNELS"},
        "query": {"kind": "TrendsQuery", "series": []}, "order": 3, "deleted": true, "favorited": true,
        "saved": true, "tags": ["x"],
    });
    let written = insight(1, body.clone());
    for field in INSIGHT_FIELDS.iter().filter(|field| field.write != Ignored) {
        let Some(value) = field.value else { continue };
        assert_eq!(Some(&value(&written)), body.get(field.name), "not written: {}", field.name);
    }
    for field in INSIGHT_FIELDS.iter().filter(|field| field.write == Stored) {
        assert!(field.value.is_some(), "stored, but not in the record: {}", field.name);
    }
}

#[test]
fn each_writable_field_is_in_the_input_and_in_the_api_document() {
    let input = names_of!(
        InsightInput,
        InsightInput::default(),
        [name, derived_name, description, filters, query, order, deleted, favorited, saved, tags, dashboards,]
    );
    let documented = documented("InsightInput");
    for field in &INSIGHT_FIELDS {
        let is_writable = matches!(field.write, Tiles | Stored);
        assert_eq!(input.contains(&field.name), is_writable, "in InsightInput: {}", field.name);
        assert_eq!(
            documented.contains_key(field.name),
            is_writable,
            "in the schema InsightInput: {}",
            field.name
        );
    }
    for name in input {
        assert!(INSIGHT_FIELDS.iter().any(|field| field.name == name), "no row in INSIGHT_FIELDS: {name}");
    }
}

#[test]
fn each_field_of_responses_is_in_the_api_document() {
    for (form, schema) in [(ResponseForm::Full, "Insight"), (ResponseForm::Short, "InsightRow")] {
        let mut documented = documented(schema);
        // Only an insight on a dashboard has these.
        documented.retain(|name, _| !["color", "layouts"].contains(&name.as_str()));
        for field in &INSIGHT_FIELDS {
            let is_documented = documented.contains_key(field.name);
            assert_eq!(is_documented, field.is_in(form), "in the schema {schema}: {}", field.name);
        }
    }
}

#[test]
fn positions_in_the_log_are_unique() {
    let mut positions = BTreeMap::new();
    for field in &INSIGHT_FIELDS {
        let LoggedAt(position) = field.log else { continue };
        let other = positions.insert(position, field.name);
        assert_eq!(other, None, "two fields at the position of {}", field.name);
        assert!(field.value.is_some(), "logged, but not in the record: {}", field.name);
    }
}
