//! Misspelled and other unknown fields of writes.

use pennon_flag_rules::flag::field_table::FLAG_FIELDS;
use pennon_tests::TestApp;
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const INSIGHTS: &str = "/api/projects/1/insights/";

/// Fields of the vendor's flags of other releases, besides those in the table of fields.
const OF_FLAGS_ELSEWHERE: [&str; 6] = [
    "experiment_set_metadata",
    "_create_in_folder",
    "is_used_in_replay_settings",
    "team",
    "project_id",
    "has_experiment",
];

/// Fields of the vendor's insights that a write takes, reads only or ignores, of all releases.
const OF_INSIGHTS: [&str; 48] = [
    "id",
    "short_id",
    "name",
    "derived_name",
    "filters",
    "query",
    "order",
    "deleted",
    "dashboards",
    "dashboard_tiles",
    "last_refresh",
    "cache_target_age",
    "next_allowed_client_refresh",
    "result",
    "hasMore",
    "columns",
    "created_at",
    "created_by",
    "description",
    "updated_at",
    "tags",
    "favorited",
    "saved",
    "last_modified_at",
    "last_modified_by",
    "is_sample",
    "effective_restriction_level",
    "effective_privilege_level",
    "user_access_level",
    "timezone",
    "is_cached",
    "query_status",
    "hogql",
    "types",
    "_create_in_folder",
    "alerts",
    "last_viewed_at",
    "color",
    "layouts",
    "filters_hash",
    "dashboard",
    "refreshing",
    "refresh",
    "client_query_id",
    "dive_dashboard",
    "resolved_date_range",
    "type",
    "variables_override",
];

/// A body with `name` and what the kind of record needs.
fn body(path: &str, name: &str) -> Value {
    let mut body = if path == FLAGS { json!({"key": "a"}) } else { json!({"name": "a"}) };
    if body.get(name).is_none() {
        body[name] = Value::Null;
    }
    body
}

#[tokio::test]
async fn a_misspelled_field_is_rejected_by_name() {
    let app = TestApp::new().await;
    let flag = format!("{FLAGS}{}/", app.flag("one").await);
    let insight = app.post(INSIGHTS, json!({"name": "one"})).await.expect(201);
    let insight = format!("{INSIGHTS}{}/", insight["id"]);
    for (path, name, meant) in [
        (&flag, "filter", "filters"),
        (&flag, "fitlers", "filters"),
        (&flag, "nmae", "name"),
        (&flag, "tag", "tags"),
        (&flag, "acitve", "active"),
        (&flag, "evaluation_runtimes", "evaluation_runtime"),
        (&flag, "analytics_dashbords", "analytics_dashboards"),
        (&insight, "filter", "filters"),
        (&insight, "qeury", "query"),
        (&insight, "descripton", "description"),
        (&insight, "dashbords", "dashboards"),
        (&insight, "favourited", "favorited"),
    ] {
        let before = app.get(path).await.text;
        let detail = format!("Unknown field. Did you mean `{meant}`?");
        let all = if path == &flag { FLAGS } else { INSIGHTS };
        app.post(all, body(all, name)).await.expect_invalid("invalid_input", &detail, Some(name));
        app.patch(path, json!({name: 1, "tags": ["x"]})).await.expect_invalid(
            "invalid_input",
            &detail,
            Some(name),
        );
        assert_eq!(app.get(path).await.text, before, "{name}: a refused write changes nothing");
    }
    assert_eq!(app.get(FLAGS).await.expect(200)["count"], 1);
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 1);
}

#[tokio::test]
async fn other_unknown_fields_and_those_of_the_api_are_not_refused_by_name() {
    let app = TestApp::new().await;
    let of_flags: Vec<&str> = FLAG_FIELDS.iter().map(|field| field.name).chain(OF_FLAGS_ELSEWHERE).collect();
    for (path, fields) in [(FLAGS, &of_flags[..]), (INSIGHTS, &OF_INSIGHTS[..])] {
        for name in
            fields.iter().copied().chain(["nmea", "nots", "key_of_mine", "x", "filters_of_mine", "ids"])
        {
            let response = app.post(path, body(path, name)).await;
            assert!(!response.text.contains("Did you mean"), "{path} {name}: {}", response.text);
        }
    }
    // A client may send back what it has read.
    let flag = app.flag("whole").await;
    let insight = app.post(INSIGHTS, json!({"name": "whole"})).await.expect(201);
    for path in [format!("{FLAGS}{flag}/"), format!("{INSIGHTS}{}/", insight["id"])] {
        let mut record = app.get(&path).await.expect(200);
        record["unknown_to_all"] = json!(1);
        app.patch(&path, record).await.expect(200);
    }
}
