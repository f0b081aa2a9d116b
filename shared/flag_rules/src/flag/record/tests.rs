//! What a create stores and what an update changes.

use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::testing::{created, flag, now, parse_input, updated, user};

#[test]
fn an_update_changes_only_what_was_sent() {
    let flag = created(json!({"key": "u", "name": "n", "tags": ["a"], "evaluation_runtime": "server"}));
    let other = UserRef { id: 2, email: "member@example.com".to_owned(), ..user() };
    let later = now() + TimeDelta::nanoseconds(1_000_000_789);
    let Ok(input) = parse_input(json!({"name": "Updated name"}), Some(&flag)) else { unreachable!() };
    let updated = flag.apply(&input, later, &other);
    let expected = Flag {
        name: "Updated name".to_owned(),
        version: 2,
        updated_at: now() + TimeDelta::seconds(1),
        last_modified_by: Some(other),
        ..flag
    };
    assert_eq!(updated, expected);
}

#[test]
fn every_update_raises_the_version() {
    let mut flag = flag();
    for version in 2..5 {
        flag = updated(&flag, json!({}));
        assert_eq!(flag.version, version);
    }
}

#[test]
fn filters_without_groups_are_ignored_by_an_update() {
    let flag =
        created(json!({"key": "u", "filters": {"groups": [{"properties": [], "rollout_percentage": 70}]}}));
    let updated = updated(&flag, json!({"filters": {"payloads": {"true": "1"}}}));
    assert_eq!((updated.version, updated.filters), (2, flag.filters));
}

#[test]
fn switching_on_clears_performed_rollback() {
    let flag = created(json!({"key": "pr", "active": false, "performed_rollback": true}));
    assert_eq!(flag.performed_rollback, Some(true));
    assert_eq!(updated(&flag, json!({"active": true})).performed_rollback, Some(false));
    assert_eq!(
        updated(&flag, json!({"active": true, "performed_rollback": true})).performed_rollback,
        Some(false)
    );
    assert_eq!(updated(&flag, json!({"name": "x"})).performed_rollback, Some(true));
    assert_eq!(created(json!({"key": "k", "active": true})).performed_rollback, Some(false));
    assert_eq!(created(json!({"key": "k"})).performed_rollback, None);
}

#[test]
fn a_new_key_is_carried_into_enrolment() {
    let property = |key: &str| json!({"key": key, "type": "person", "value": ["true"], "operator": "exact"});
    let filters = |key: &str| {
        json!({
            "groups": [{"properties": [property("$feature_enrollment/old-key")], "rollout_percentage": 0}],
            "super_groups": [{"properties": [property(key), property("email")], "rollout_percentage": 100}],
        })
    };
    let flag = created(json!({"key": "old-key", "filters": filters("$feature_enrollment/old-key")}));
    let renamed = updated(&flag, json!({"key": "new-key"}));
    assert_eq!(Value::Object(renamed.filters), filters("$feature_enrollment/new-key"));
    assert_eq!(updated(&flag, json!({"key": "old-key"})).filters, flag.filters);
}

#[test]
fn dashboards_are_added_and_tags_replaced() {
    let flag = created(json!({"key": "k", "analytics_dashboards": [2], "tags": ["a", "b"]}));
    let updated = updated(&flag, json!({"analytics_dashboards": [1, 2], "tags": ["c"]}));
    assert_eq!(updated.analytics_dashboards, [2, 1]);
    assert_eq!(updated.tags, ["c"]);
}

#[test]
fn a_record_reads_back_as_it_was_stored() {
    let body = json!({
        "key": "k", "filters": {"groups": [{"rollout_percentage": 12.5}, {"rollout_percentage": 50}]},
        "rollback_conditions": [{"a": 1}], "last_called_at": "2025-01-01T00:00:00.5Z", "creation_context": null,
    });
    let flag = created(body);
    let text = serde_json::to_string(&flag).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Flag>(&text).ok(), Some(flag));
}

#[test]
fn a_create_without_a_key_is_refused() {
    let made = Flag::create(1, &FlagInput::default(), now(), &user());
    assert_eq!(made, Err(FieldError::required("key")));
}
