#![allow(clippy::unwrap_used)]
//! Every field of a flag has a row, and every row reads, writes and validates its own field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::*;
use crate::flag::UserRef;
use crate::testing::{created, flag, object, parse_input, user};

/// The names of all fields of [`Flag`]. A new field does not compile here until it is added.
fn record_fields(flag: Flag) -> Vec<&'static str> {
    macro_rules! names_of {
        ($($name:ident),* $(,)?) => {{
            let Flag { $($name: _),* } = flag;
            vec![$(stringify!($name)),*]
        }};
    }
    names_of![
        id,
        key,
        name,
        filters,
        deleted,
        active,
        created_by,
        created_at,
        updated_at,
        version,
        last_modified_by,
        ensure_experience_continuity,
        rollback_conditions,
        performed_rollback,
        tags,
        usage_dashboard,
        analytics_dashboards,
        has_enriched_analytics,
        creation_context,
        is_remote_configuration,
        has_encrypted_payloads,
        evaluation_runtime,
        bucketing_identifier,
        last_called_at,
    ]
}

/// A flag in which every field differs from its default.
fn unusual_flag() -> Flag {
    let body = json!({
        "key": "k", "name": "a name", "filters": {"groups": [{"rollout_percentage": 5}]}, "deleted": true,
        "active": false, "created_at": "2020-01-01T00:00:00Z", "ensure_experience_continuity": true,
        "rollback_conditions": [1], "performed_rollback": true, "tags": ["t"], "analytics_dashboards": [1],
        "has_enriched_analytics": true, "creation_context": "surveys", "is_remote_configuration": true,
        "has_encrypted_payloads": true, "evaluation_runtime": "server", "bucketing_identifier": null,
        "last_called_at": "2021-01-01T00:00:00.5Z",
    });
    let usual = created(body);
    Flag {
        version: 3,
        usage_dashboard: Some(9),
        last_modified_by: Some(UserRef { id: 2, ..user() }),
        ..usual
    }
}

fn row(name: &str) -> &'static FlagField {
    FLAG_FIELDS.iter().find(|field| field.name == name).unwrap_or_else(|| panic!("{name} has no row"))
}

#[test]
fn every_field_of_the_record_has_a_row_that_reads_it() {
    let (flag, defaults) = (unusual_flag(), Flag::with_defaults());
    let (record, usual) = (serde_json::to_value(&flag).unwrap(), serde_json::to_value(&defaults).unwrap());
    let names = record_fields(flag.clone());
    assert_eq!(names.len(), record.as_object().unwrap().len());
    for name in names {
        assert_ne!(record[name], usual[name], "{name}: the flag of this test needs another value");
        assert_eq!((row(name).stored)(&flag).to_json(), record[name], "{name}: `stored` reads another field");
    }
    let unique: BTreeSet<&str> = FLAG_FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(unique.len(), FLAG_FIELDS.len(), "a name stands twice in the table");
}

#[test]
fn every_stored_field_is_applied_and_no_other() {
    let (values, mut names) = (unusual_flag(), BTreeSet::new());
    for field in &FLAG_FIELDS {
        let FieldWrite::Stored { apply, .. } = field.write else { continue };
        names.insert(field.name);
        let (before, mut after) = (Flag::with_defaults(), Flag::with_defaults());
        apply(&mut after, &values);
        let [before, mut after] = [before, after].map(|flag| object(serde_json::to_value(flag).unwrap()));
        assert_eq!(after[field.name], (field.stored)(&values).to_json(), "{}: not applied", field.name);
        after.insert(field.name.to_owned(), before[field.name].clone());
        assert_eq!(after, before, "{}: another field changed", field.name);
    }
    let by_the_service = ["id", "created_by", "updated_at", "version", "last_modified_by", "usage_dashboard"];
    for name in record_fields(flag()) {
        assert_ne!(names.contains(name), by_the_service.contains(&name), "{name}: must a body set it?");
    }
}

#[test]
fn fields_accept_null_exactly_if_their_row_is_nullable() {
    for field in FLAG_FIELDS.iter().filter(|field| field.write.parse().is_some()) {
        let mut body = object(json!({"key": "k"}));
        body.insert(field.name.to_owned(), Value::Null);
        let result = parse_input(Value::Object(body), None);
        let is_accepted = result.is_ok();
        // Any JSON includes null.
        let expected = field.nullable || matches!(field.kind, FieldKind::AnyJson);
        assert_eq!(is_accepted, expected, "{}: {result:?}", field.name);
    }
}

#[test]
fn fields_accept_values_of_their_type() {
    for field in FLAG_FIELDS.iter().filter(|field| field.write.parse().is_some()) {
        let (valid, invalid) = match field.kind {
            FieldKind::Boolean => (vec![json!(true), json!("off")], vec![json!("maybe"), json!([])]),
            FieldKind::Integer => (vec![json!(7), json!("7")], vec![json!("seven"), json!(true)]),
            FieldKind::OneOf(choices) => {
                (choices.iter().map(|choice| json!(choice)).collect(), vec![json!("another"), json!(1)])
            }
            FieldKind::Text(rule) => {
                let text = |chars: usize| vec![json!("x".repeat(chars))];
                (text(rule.max_chars), text(rule.max_chars + 1))
            }
            FieldKind::Instant | FieldKind::CallTime => (vec![json!("2024-01-01")], vec![json!("never")]),
            FieldKind::Key => (vec![json!("a-b")], vec![json!("a b")]),
            FieldKind::Filters => (vec![json!({"groups": [{}]})], vec![json!([])]),
            FieldKind::Tags => (vec![json!(["a"])], vec![json!("a"), json!([1])]),
            FieldKind::Dashboards => (vec![json!([1, "2"])], vec![json!([3]), json!(1)]),
            FieldKind::AnyJson => (vec![json!({"a": [1]})], vec![]),
            FieldKind::Id | FieldKind::Percentage | FieldKind::User | FieldKind::EmptyList => {
                panic!("{}: bodies have no values of this type", field.name)
            }
        };
        let parse = |value: &Value| {
            let mut body = object(json!({"key": "k", "is_remote_configuration": true}));
            body.insert(field.name.to_owned(), value.clone());
            parse_input(Value::Object(body), None)
        };
        for value in &valid {
            assert!(parse(value).is_ok(), "{}: {value} is refused: {:?}", field.name, parse(value));
        }
        for value in &invalid {
            let error = parse(value).unwrap_err();
            assert_eq!(error.attr.as_deref(), Some(field.name), "{value}: {}", error.detail);
        }
    }
}

#[test]
fn positions_are_unique() {
    let mut places: BTreeMap<(&str, u8), Vec<&str>> = BTreeMap::new();
    for field in &FLAG_FIELDS {
        if let LogRule::At(position) | LogRule::ListAt(position) = field.log {
            places.entry(("log", position)).or_default().push(field.name);
        }
        if let Sortable::At(position, _) = field.sort {
            places.entry(("sort", position)).or_default().push(field.name);
        }
        if let DefinitionRule::At(position, _) = field.definitions {
            places.entry(("definitions", position)).or_default().push(field.name);
        }
        if let WorkspaceRule::At(position) | WorkspaceRule::IfSetAt(position) = field.workspace {
            places.entry(("workspace", position)).or_default().push(field.name);
        }
    }
    for (place, names) in places {
        assert_eq!(names.len(), 1, "{place:?}: {names:?}");
    }
}

#[test]
fn a_setting_that_a_body_can_change_is_in_workspace_files() {
    for field in &FLAG_FIELDS {
        let is_stored = matches!(field.write, FieldWrite::Stored { .. });
        assert_eq!(field.workspace != WorkspaceRule::No, is_stored, "{}", field.name);
    }
}
