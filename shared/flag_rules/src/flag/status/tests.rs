//! Each row of the status table, the shapes of the contract's cases, and the list of stale flags.

use pennon_filters::body::timestamp;

use super::super::FlagRow;
use super::*;
use crate::calls::CallTimes;
use crate::testing::{created, now};

fn days_ago(days: i64) -> String {
    timestamp::format(now() - TimeDelta::days(days))
}

fn with(filters: Value, created_days_ago: i64) -> Flag {
    created(json!({"key": "k", "filters": filters, "created_at": days_ago(created_days_ago)}))
}

fn full() -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": 100}]})
}

#[track_caller]
fn expect_status(flag: &Flag, status: &str, reason: &str) {
    let response = flag.status_response(now());
    assert_eq!((response["status"].as_str(), response["reason"].as_str()), (Some(status), Some(reason)));
    assert_eq!(response["reason_states_rollout"], json!(reason.starts_with("Always")));
    assert_eq!(FlagRow::from(flag).status(now(), &CallTimes::none()).endpoint_value(), status);
}

#[test]
fn rows_of_the_table() {
    let old = with(full(), 31);
    expect_status(&Flag { deleted: true, ..old.clone() }, "deleted", "The flag is soft-deleted");
    let off = Flag { active: false, ..old.clone() };
    expect_status(&off, "active", "The flag is switched off, staleness is not judged");
    let called = |days| Flag { last_called_at: Some(now() - TimeDelta::days(days)), ..old.clone() };
    expect_status(&called(31), "stale", "Not called for 31 days");
    expect_status(&called(30), "active", "Last called 30 days ago");
    expect_status(&called(1), "active", "Last called 1 day ago");
    expect_status(&called(0), "active", "Last called today");
    expect_status(&called(-3), "active", "Last called today");
    expect_status(&old, "stale", "Always \"true\"");
    expect_status(&with(full(), 30), "active", "No usage data yet");
    expect_status(&with(json!({"groups": [{"rollout_percentage": 99}]}), 31), "active", "No usage data yet");
}

#[test]
fn what_counts_as_full_for_a_boolean_flag() {
    let property = json!({"key": "a", "type": "person", "value": "x"});
    for (groups, expected) in [
        (json!([]), true),
        (json!([{"rollout_percentage": 5}, {"rollout_percentage": 100.0}]), true),
        (json!([{"rollout_percentage": null}]), false),
        (json!([{}]), false),
        (json!([{"rollout_percentage": 100, "properties": [property]}]), false),
    ] {
        let filters = json!({"groups": groups});
        let full = filters.as_object().and_then(full_rollout);
        assert_eq!(full.is_some(), expected, "{filters}");
    }
    assert_eq!(full_rollout(&Object::new()), Some(FullRollout::True));
}

#[test]
fn multivariate_shapes() {
    let variants = |test: u8| {
        json!({"variants": [
            {"key": "test", "name": "Test", "rollout_percentage": test},
            {"key": "control", "name": "Control", "rollout_percentage": 100 - test},
        ]})
    };
    let flag = |groups: Value, test: u8| with(json!({"groups": groups, "multivariate": variants(test)}), 31);
    let always = "Always variant \"test\"";
    let unknown = "No usage data yet";
    let all = json!([{"properties": [], "rollout_percentage": 100, "variant": null}]);
    expect_status(&flag(all.clone(), 100), "stale", always);
    expect_status(&flag(all, 50), "active", unknown);
    let some =
        json!([{"properties": [], "rollout_percentage": 20}, {"properties": [], "rollout_percentage": 30}]);
    expect_status(&flag(some, 100), "active", unknown);
    let named = json!([{"properties": [], "rollout_percentage": 100, "variant": "test"}]);
    expect_status(&flag(named.clone(), 60), "stale", always);
    // The variant that a condition names is preferred over the one with all of the hash range.
    expect_status(&flag(named, 0), "stale", always);
    let property = json!({"key": "name", "type": "person", "value": ["Smith"], "operator": "exact"});
    let targeted = json!([{"properties": [property], "rollout_percentage": 100, "variant": "test"}]);
    expect_status(&flag(targeted, 60), "active", unknown);
    expect_status(
        &Flag { filters: object_without_groups(variants(100)), ..with(full(), 31) },
        "active",
        unknown,
    );
}

fn object_without_groups(multivariate: Value) -> Object {
    let filters = json!({"groups": [], "multivariate": multivariate});
    filters.as_object().cloned().unwrap_or_default()
}

#[test]
fn rollout_in_numbers() {
    let property = json!({"key": "a", "type": "person", "value": "x"});
    let flag = with(json!({"groups": [{"rollout_percentage": 20}, {"properties": [property]}]}), 0);
    let expected = json!({
        "effectively_full_rollout": false, "has_targeting_conditions": true, "max_rollout_percentage": 100,
        "is_multivariate": false,
    });
    assert_eq!(flag.status_response(now())["rollout"].to_string(), expected.to_string());
    let half = with(json!({"groups": [{"rollout_percentage": 12.5}, {"rollout_percentage": 7}]}), 0);
    assert_eq!(half.status_response(now())["rollout"]["max_rollout_percentage"], json!(12.5));
    let none = created(json!({"key": "k"}));
    let rollout = &none.status_response(now())["rollout"];
    assert_eq!(rollout["max_rollout_percentage"], Value::Null);
    assert_eq!(rollout["effectively_full_rollout"], json!(true));
}

#[test]
fn the_list_of_stale_flags_leaves_empty_conditions_out() {
    let mut flag = with(full(), 31);
    assert!(FlagRow::from(&flag).is_listed_as_stale(now(), &CallTimes::none()));
    flag.filters = Object::new();
    assert!(FlagRow::from(&flag).is_listed_as_stale(now(), &CallTimes::none()));
    flag.filters.insert("groups".to_owned(), json!([]));
    assert!(!FlagRow::from(&flag).is_listed_as_stale(now(), &CallTimes::none()));
    assert_eq!(FlagRow::from(&flag).status(now(), &CallTimes::none()), Status::Stale);
}
