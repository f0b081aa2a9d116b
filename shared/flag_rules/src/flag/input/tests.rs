#![allow(clippy::unwrap_used)]
//! Fields of bodies: order of errors, texts, the key's rules, tags, dashboards, rules about several fields.

use serde_json::json;

use super::*;
use crate::testing::{created, object, parse_input};

/// The value of a field that was sent, as JSON; `None` if it was not.
fn sent(input: &FlagInput, name: &str) -> Option<Value> {
    let field = FLAG_FIELDS.iter().find(|field| field.name == name && input.is_sent(name))?;
    Some((field.stored)(&input.values).to_json())
}

#[track_caller]
fn refused(body: Value, attr: Option<&str>, code: &'static str, detail: &str) {
    let expected = FieldError { code, detail: detail.to_owned(), attr: attr.map(str::to_owned) };
    assert_eq!(parse_input(body, None), Err(expected));
}

#[test]
fn keys() {
    let key = Some("key");
    refused(json!({}), key, "required", "This field is required.");
    refused(json!({"key": null}), key, "null", "This field may not be null.");
    refused(json!({"key": true}), key, "invalid_input", "Not a valid string.");
    refused(json!({"key": "  "}), key, "blank", "This field may not be blank.");
    let detail = "Ensure this field has no more than 400 characters.";
    refused(json!({"key": "k".repeat(401)}), key, "max_length", detail);
    let detail = "Only letters, numbers, hyphens (-) & underscores (_) are allowed.";
    for bad in ["foo?bar=baz", "foo/bar", "foo\\bar", "foo.bar", "foo bar", "flaggé", "١"] {
        refused(json!({"key": bad}), key, "invalid_key", detail);
    }
    let parsed = parse_input(json!({"key": " Ok_1-x "}), None).unwrap();
    assert_eq!(sent(&parsed, "key"), Some(json!("Ok_1-x")));
    assert_eq!(sent(&parse_input(json!({"key": 12}), None).unwrap(), "key"), Some(json!("12")));
}

#[test]
fn keys_that_a_flag_can_have() {
    let longest = "k".repeat(400);
    for key in [
        "a",
        "Ok_1-x",
        "12",
        "a:deleted:7",
        "a:deleted:7:deleted:7",
        &longest,
        &format!("{longest}:deleted:7"),
    ] {
        assert!(is_possible_key(key), "{key}");
    }
    let long = [format!("{longest}k"), "漢".repeat(400), format!("a{}", ":deleted:7".repeat(80))];
    for key in ["", "a#b", "a b", "é", ":deleted:7", "a:deleted:", "a:deleted:x", "a:7"]
        .into_iter()
        .chain(long.iter().map(String::as_str))
    {
        assert!(!is_possible_key(key), "{key}");
    }
}

#[test]
fn a_duplicate_key_is_reported_after_its_length_and_before_its_characters() {
    let references = References::default();
    let around = ValidationContext {
        stored: None,
        key_holder: Some(7),
        references: &references,
        dashboards: &BTreeSet::new(),
        linked_to_early_access: false,
    };
    let code = |body: Value| FlagInput::parse(&object(body), WriteKind::Create, &around).unwrap_err();
    let taken = FieldError::new("key", "unique", "There is already a feature flag with this key.");
    assert_eq!(code(json!({"key": "a b"})), taken);
    assert_eq!(code(json!({"key": "k".repeat(401)})).code, "max_length");
    assert_eq!(code(json!({})).code, "required");
}

#[test]
fn only_a_replacement_and_a_create_need_the_key() {
    let flag = created(json!({"key": "a"}));
    assert_eq!(parse_input(json!({}), Some(&flag)).unwrap(), FlagInput::default());
    let references = References::default();
    let around = ValidationContext {
        stored: Some(&flag),
        key_holder: None,
        references: &references,
        dashboards: &BTreeSet::new(),
        linked_to_early_access: false,
    };
    let error = FlagInput::parse(&Object::new(), WriteKind::Replace, &around).unwrap_err();
    assert_eq!(error, FieldError::required("key"));
}

#[test]
fn the_first_bad_field_is_reported() {
    let bad = [
        ("name", json!(null)),
        ("key", json!("a b")),
        ("filters", json!([])),
        ("deleted", json!("x")),
        ("active", json!(null)),
        ("created_at", json!("x")),
        ("version", json!("x")),
        ("ensure_experience_continuity", json!("x")),
        ("rollback_conditions", json!("x".repeat(limits::ROLLBACK_BYTES))),
        ("performed_rollback", json!("x")),
        ("tags", json!("x")),
        ("analytics_dashboards", json!("x")),
        ("has_enriched_analytics", json!("x")),
        ("creation_context", json!("x")),
        ("is_remote_configuration", json!("x")),
        ("has_encrypted_payloads", json!("x")),
        ("evaluation_runtime", json!("x")),
        ("bucketing_identifier", json!("x")),
        ("last_called_at", json!("x")),
    ];
    // Sent in reverse, so that the order of the body cannot decide.
    for (first, (attr, _)) in bad.iter().enumerate() {
        let mut body = Object::new();
        for (field, value) in bad[first..].iter().rev() {
            body.insert((*field).to_owned(), value.clone());
        }
        body.entry("key").or_insert(json!("ok"));
        assert_eq!(parse_input(Value::Object(body), None).unwrap_err().attr.as_deref(), Some(*attr));
    }
}

#[test]
fn messages_of_field_errors() {
    let with = |field: &str, value: Value| json!({"key": "k", field: value});
    refused(with("active", json!("maybe")), Some("active"), "invalid_input", "Must be a valid boolean.");
    refused(with("version", json!("one")), Some("version"), "invalid_input", "A valid integer is required.");
    let detail = "\"edge\" is not a valid choice.";
    for field in ["evaluation_runtime", "bucketing_identifier", "creation_context"] {
        refused(with(field, json!("edge")), Some(field), "invalid_choice", detail);
    }
    let detail = "Expected a list of items but got type \"str\".";
    refused(with("tags", json!("a")), Some("tags"), "not_a_list", detail);
    refused(with("tags", json!(["a", 1])), Some("tags"), "invalid_input", "Not a valid string.");
    let detail = "Invalid pk \"9\" - object does not exist.";
    refused(
        with("analytics_dashboards", json!([1, 9])),
        Some("analytics_dashboards"),
        "does_not_exist",
        detail,
    );
    let detail = "Incorrect type. Expected pk value, received list.";
    let field = "analytics_dashboards";
    refused(with(field, json!([[1]])), Some(field), "incorrect_type", detail);
    let detail = "Datetime has wrong format. Use one of these formats instead: \
                  YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
    refused(with("created_at", json!("x")), Some("created_at"), "invalid_input", detail);
}

#[test]
fn values_as_strings_of_a_form() {
    let body = json!({
        "key": "k", "active": "f", "deleted": "0", "version": "50", "ensure_experience_continuity": "on",
        "created_at": "2024-01-01T00:00:00", "evaluation_runtime": "server",
    });
    let input = parse_input(body, None).unwrap();
    assert_eq!((sent(&input, "active"), sent(&input, "deleted")), (Some(json!(false)), Some(json!(false))));
    assert_eq!(input.version, Some(50));
    assert_eq!(sent(&input, "ensure_experience_continuity"), Some(json!(true)));
    assert!(input.is_sent("created_at"));
    assert_eq!(input.values.created_at.timestamp(), 1_704_067_200);
}

#[test]
fn fields_that_may_be_null() {
    let body = json!({
        "key": "k", "ensure_experience_continuity": null, "performed_rollback": null, "rollback_conditions": null,
        "has_enriched_analytics": null, "creation_context": null, "is_remote_configuration": null,
        "has_encrypted_payloads": null, "evaluation_runtime": null, "bucketing_identifier": null,
        "last_called_at": null,
    });
    let input = parse_input(body, None).unwrap();
    assert_eq!(sent(&input, "evaluation_runtime"), Some(Value::Null));
    assert_eq!(sent(&input, "rollback_conditions"), Some(Value::Null));
    for field in ["name", "deleted", "active", "created_at", "version", "tags", "analytics_dashboards"] {
        refused(json!({"key": "k", field: null}), Some(field), "null", "This field may not be null.");
    }
}

#[test]
fn tags_are_normalized() {
    let input = parse_input(json!({"key": "k", "tags": ["web", " Beta", "", "  ", "WEB"]}), None).unwrap();
    assert_eq!(sent(&input, "tags"), Some(json!(["beta", "web"])));
    let input = parse_input(json!({"key": "k", "tags": []}), None).unwrap();
    assert_eq!(sent(&input, "tags"), Some(json!([])));
    let long = "x".repeat(256);
    let detail = "Ensure this field has no more than 255 characters.";
    refused(json!({"key": "k", "tags": [long]}), Some("tags"), "max_length", detail);
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let detail = "A feature flag must not have more than 100 tags.";
    refused(json!({"key": "k", "tags": many}), Some("tags"), "invalid_input", detail);
}

#[test]
fn duplicate_dashboards_are_removed() {
    let input = parse_input(json!({"key": "k", "analytics_dashboards": [2, "1", 2]}), None).unwrap();
    assert_eq!(sent(&input, "analytics_dashboards"), Some(json!([2, 1])));
}

#[test]
fn encrypted_payloads_need_remote_configuration() {
    let detail = "Encrypted payloads require the flag to be a remote configuration.";
    refused(json!({"key": "k", "has_encrypted_payloads": true}), None, "invalid_input", detail);
    let both = json!({"key": "k", "has_encrypted_payloads": true, "is_remote_configuration": true});
    let flag = created(both);
    assert!(parse_input(json!({"has_encrypted_payloads": true}), Some(&flag)).is_ok());
    let error = parse_input(json!({"is_remote_configuration": false}), Some(&flag)).unwrap_err();
    assert_eq!((error.detail.as_str(), error.attr), (detail, None));
    // A write of other fields is not refused when the stored flag breaks the rule.
    let odd = Flag { is_remote_configuration: None, ..flag };
    assert!(parse_input(json!({"name": "x"}), Some(&odd)).is_ok());
}

#[test]
fn bucketing_by_device_excludes_continuity() {
    let detail = "Cannot enable 'persist across authentication steps' when using device ID bucketing. \
                  These features are incompatible.";
    let both = json!({"key": "k", "bucketing_identifier": "device_id", "ensure_experience_continuity": true});
    refused(both, None, "invalid_input", detail);
    let mut flag = created(json!({"key": "k", "bucketing_identifier": "device_id"}));
    let error = parse_input(json!({"ensure_experience_continuity": true}), Some(&flag)).unwrap_err();
    assert_eq!((error.detail.as_str(), error.attr), (detail, None));
    // A flag that already is both can still be edited.
    flag.ensure_experience_continuity = Some(true);
    assert!(parse_input(json!({"ensure_experience_continuity": true, "name": "x"}), Some(&flag)).is_ok());
}

#[test]
fn a_pattern_that_does_not_compile_is_refused_on_create_only() {
    let filters = |pattern: &str| {
        let property = json!({"key": "email", "type": "person", "value": pattern, "operator": "regex"});
        json!({"groups": [{"properties": [property], "rollout_percentage": 65}]})
    };
    let bad = filters("2.3.9{0-9}{1}");
    let detail = "Can't evaluate flag - please check release conditions";
    refused(json!({"key": "k", "filters": bad}), None, "invalid_input", detail);
    // It is the last check of all.
    let body = json!({"key": "k", "filters": bad, "last_called_at": "x"});
    assert_eq!(parse_input(body, None).unwrap_err().attr.as_deref(), Some("last_called_at"));
    assert!(parse_input(json!({"key": "k", "filters": filters("2.3.9.{0,9}")}), None).is_ok());
    let flag = created(json!({"key": "k"}));
    assert!(parse_input(json!({"filters": bad}), Some(&flag)).is_ok());
}

#[test]
fn read_only_and_unknown_fields_are_ignored() {
    let body = json!({
        "key": "ro", "id": 123456, "rollout_percentage": 33, "created_by": {"id": 99}, "can_edit": "?",
        "experiment_set": [1], "surveys": {"a": 1}, "status": 1, "nonsense": true, "_create_in_folder": 5,
    });
    assert_eq!(parse_input(body, None), parse_input(json!({"key": "ro"}), None));
}
