#![allow(clippy::unwrap_used)]
//! Each query parameter of the list, its errors, and the order.

use chrono::TimeDelta;
use serde_json::json;

use super::super::Flag;
use super::*;
use crate::testing::{created, now};

fn row(id: i64, body: Value) -> FlagRow {
    let flag = created(body);
    FlagRow::from(&Flag { id, created_at: flag.created_at + TimeDelta::seconds(id), ..flag })
}

fn query(parameters: &[(&str, &str)]) -> Result<FlagQuery, FieldError> {
    let owned: Vec<(String, String)> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FlagQuery::parse(&owned)
}

fn rows() -> Vec<FlagRow> {
    let variants = json!([{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]);
    let filters = json!({"groups": [{"rollout_percentage": 100}], "multivariate": {"variants": variants}});
    let mut purple = row(2, json!({"key": "purple_button", "filters": filters, "active": false}));
    purple.created_by_id = Some(7);
    vec![
        row(1, json!({"key": "red_button", "name": "Search  Term", "tags": ["web", "beta"]})),
        purple,
        row(
            3,
            json!({"key": "Green-Button", "is_remote_configuration": true, "evaluation_runtime": "server"}),
        ),
        row(4, json!({"key": "gone", "deleted": true})),
        row(5, json!({"key": "pinkbutton", "tags": ["ios"], "last_called_at": "2025-01-01T00:00:00Z"})),
    ]
}

#[track_caller]
fn lists(parameters: &[(&str, &str)], ids: &[i64]) {
    let rows = rows();
    let shown = query(parameters).unwrap().select(&rows, now(), &CallTimes::none());
    assert_eq!(shown.iter().map(|row| row.id).collect::<Vec<_>>(), ids, "{parameters:?}");
}

#[test]
fn newest_first_and_without_deleted_flags() {
    lists(&[], &[5, 3, 2, 1]);
    lists(&[("order", ""), ("limit", "x"), ("unknown", "y")], &[5, 3, 2, 1]);
}

#[test]
fn state() {
    lists(&[("active", "true")], &[5, 3, 1]);
    lists(&[("active", "TRUE")], &[5, 3, 1]);
    lists(&[("active", "false")], &[2]);
    lists(&[("active", "")], &[2]);
    lists(&[("active", "stale")], &[2]);
    lists(&[("active", "STALE")], &[5]);
    lists(&[("active", "false"), ("active", "true")], &[5, 3, 1]);
}

#[test]
fn creator() {
    lists(&[("created_by_id", "7")], &[2]);
    lists(&[("created_by_id", "99")], &[]);
    for value in ["x", "", "1.5"] {
        let expected = FieldError::invalid("created_by_id", "A valid integer is required.");
        assert_eq!(query(&[("created_by_id", value)]).unwrap_err(), expected);
    }
}

#[test]
fn search_text() {
    lists(&[("search", "BUTTON")], &[5, 3, 2, 1]);
    lists(&[("search", "search term")], &[1]);
    lists(&[("search", "n button")], &[3]);
    lists(&[("search", "k button")], &[5]);
    lists(&[("search", "e b")], &[2]);
    lists(&[("search", ".*")], &[]);
    lists(&[("search", "")], &[5, 3, 2, 1]);
    lists(&[("search", &"ü".repeat(200))], &[]);
    let expected = FieldError::general("Search term cannot exceed 200 characters");
    assert_eq!(query(&[("search", &"ü".repeat(201))]).unwrap_err(), expected);
}

#[test]
fn key_kind_and_runtime() {
    lists(&[("key", "GREEN-button")], &[3]);
    lists(&[("key", "green")], &[]);
    lists(&[("type", "boolean")], &[5, 3, 1]);
    lists(&[("type", "multivariant")], &[2]);
    lists(&[("type", "experiment")], &[]);
    lists(&[("type", "remote_config")], &[3]);
    lists(&[("type", "whatever")], &[5, 3, 2, 1]);
    lists(&[("evaluation_runtime", "server")], &[3]);
    lists(&[("evaluation_runtime", "all")], &[5, 2, 1]);
    lists(&[("evaluation_runtime", "edge")], &[]);
}

#[test]
fn tags_and_excluded_keys() {
    lists(&[("tags", r#"["beta", "ios"]"#)], &[5, 1]);
    lists(&[("tags", r#"["none"]"#)], &[]);
    lists(&[("excluded_tags", r#"["beta"]"#)], &[5, 3, 2]);
    lists(&[("excluded_properties", r#"["purple_button", "pinkbutton"]"#)], &[3, 1]);
    for unusable in ["beta", "", "{}", "[", "[]"] {
        for name in ["tags", "excluded_tags", "excluded_properties"] {
            lists(&[(name, unusable)], &[5, 3, 2, 1]);
        }
    }
    lists(&[("tags", r#"["beta", "ios"]"#), ("search", "red")], &[1]);
}

#[test]
fn orders() {
    lists(&[("order", "id")], &[1, 2, 3, 5]);
    lists(&[("order", "-id")], &[5, 3, 2, 1]);
    lists(&[("order", "key")], &[3, 5, 2, 1]);
    lists(&[("order", "-created_at")], &[5, 3, 2, 1]);
    lists(&[("order", "created_at")], &[1, 2, 3, 5]);
    lists(&[("order", "active")], &[2, 1, 3, 5]);
    lists(&[("order", "-active")], &[5, 3, 1, 2]);
    lists(&[("order", "version")], &[1, 2, 3, 5]);
    lists(&[("order", "-name")], &[1, 5, 3, 2]);
    lists(&[("order", "updated_at")], &[1, 2, 3, 5]);
    lists(&[("order", "last_called_at")], &[5, 1, 2, 3]);
    lists(&[("order", "-last_called_at")], &[3, 2, 1, 5]);
    for value in ["rollout", "-", "--id", "-rollout", "ID"] {
        let detail = format!("\"{value}\" is not a valid choice.");
        assert_eq!(
            query(&[("order", value)]).unwrap_err(),
            FieldError::new("order", "invalid_choice", detail)
        );
    }
}

#[test]
fn a_row_reads_back_as_it_was_stored() {
    for row in rows() {
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<FlagRow>(&text).unwrap(), row);
        assert!(text.contains(&row.created_at.timestamp_micros().to_string()));
    }
}
