//! The machine's clock is set back by an hour, over the end of a month, between writes: logs stay in the order of the
//! writes, and no stored instant is replaced by an earlier one.

use pennon_core::store::keys::{RecordKind, record};
use pennon_tests::TestApp;
use serde_json::{Value, json};

/// Before the clock is set back, after it, a minute later, and when it has caught up.
const BEFORE: &str = "2026-01-01T00:30:00Z";
const BACK: &str = "2025-12-31T23:30:00Z";
const BACK_LATER: &str = "2025-12-31T23:31:00Z";
const CAUGHT_UP: &str = "2026-01-01T02:00:00Z";

/// A record of the kind called `name`.
fn body(kind: &str, name: &str) -> Value {
    match kind {
        "feature_flags" => json!({"key": name}),
        "insights" => json!({"name": name, "filters": {"events": [{"id": "a"}]}}),
        "actions" => json!({"name": name, "steps": [{"event": "a"}]}),
        "cohorts" => json!({"name": name, "is_static": true}),
        _ => json!({"name": name}),
    }
}

/// The instants of a log from the oldest entry to the newest.
async fn instants(app: &TestApp, path: &str) -> Vec<String> {
    let whole = app.get(&format!("{path}?limit=100")).await.expect(200);
    let entries = whole["results"].as_array().unwrap().clone();
    assert_eq!(whole["total_count"], entries.len());
    // Each page of one entry is that entry of the whole.
    for (place, entry) in entries.iter().enumerate() {
        let page = app.get(&format!("{path}?limit=1&page={}", place + 1)).await.expect(200);
        assert_eq!(page["results"], json!([entry]), "{path}, page {}", place + 1);
    }
    entries.iter().rev().map(|entry| entry["created_at"].as_str().unwrap().to_owned()).collect()
}

async fn logs_stay_in_order(kind: &str) {
    let app = TestApp::new().await;
    let path = format!("/api/projects/1/{kind}/");
    let made = app.at(BEFORE, "POST", &path, body(kind, "first")).await.expect(201);
    let one = format!("{path}{}/", made["id"]);
    // The next writing process has not read the entry.
    let app = app.another_process();
    let second = app.at(BACK, "POST", &path, body(kind, "second")).await.expect(201);
    let changed = app.at(BACK_LATER, "PATCH", &one, json!({"name": "other"})).await.expect(200);
    app.at(CAUGHT_UP, "POST", &path, body(kind, "third")).await.expect(201);

    let expected = [BEFORE, "2026-01-01T00:30:00.000001Z", "2026-01-01T00:30:00.000002Z", CAUGHT_UP];
    assert_eq!(instants(&app, &format!("{path}activity/")).await, expected, "{kind}");
    assert_eq!(instants(&app, &format!("{one}activity/")).await, [expected[0], expected[2]], "{kind}");
    let entries = app.get(&format!("{path}activity/")).await.expect(200);
    let items: Vec<&str> = entries["results"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|it| it["item_id"].as_str().unwrap())
        .collect();
    let (a, b) = (made["id"].to_string(), second["id"].to_string());
    assert_eq!(items[..3], [a.as_str(), b.as_str(), a.as_str()], "{kind}");
    for field in ["updated_at", "last_modified_at"] {
        if let Some(instant) = changed[field].as_str() {
            assert_eq!(instant, expected[2], "{kind}: {field}");
        }
    }
}

#[tokio::test]
async fn the_log_of_flags_stays_in_order() {
    logs_stay_in_order("feature_flags").await;
}

#[tokio::test]
async fn the_log_of_insights_stays_in_order() {
    logs_stay_in_order("insights").await;
}

#[tokio::test]
async fn the_log_of_dashboards_stays_in_order() {
    logs_stay_in_order("dashboards").await;
}

#[tokio::test]
async fn the_log_of_cohorts_stays_in_order() {
    logs_stay_in_order("cohorts").await;
}

#[tokio::test]
async fn the_log_of_actions_stays_in_order() {
    logs_stay_in_order("actions").await;
}

/// The stored instant of the last change of an insight.
async fn updated_at(app: &TestApp, insight: &Value) -> Value {
    let key = record(1, RecordKind::Insight, insight["id"].as_u64().unwrap());
    let stored: Value = app.services.app.store.records.get(&key).await.unwrap().unwrap().body().unwrap();
    stored["updated_at"].clone()
}

#[tokio::test]
async fn an_insight_that_is_deleted_with_its_dashboard_is_not_older_than_before() {
    let app = TestApp::new().await;
    let made = async |path: &str, body: Value| app.at(BACK, "POST", path, body).await.expect(201);
    let dashboard = made("/api/projects/1/dashboards/", json!({"name": "d"})).await;
    let filters = json!({"events": [{"id": "a"}]});
    let placed = json!({"name": "i", "filters": filters, "dashboards": [dashboard["id"]]});
    let insight = made("/api/projects/1/insights/", placed).await;
    // Another process changes it, with its clock ahead.
    let path = format!("/api/projects/1/insights/{}/", insight["id"]);
    app.another_process().at(BEFORE, "PATCH", &path, json!({"name": "other"})).await.expect(200);
    assert_eq!(updated_at(&app, &insight).await, BEFORE);
    let path = format!("/api/projects/1/dashboards/{}/", dashboard["id"]);
    let deletion = json!({"deleted": true, "delete_insights": true});
    app.at(BACK_LATER, "PATCH", &path, deletion).await.expect(200);
    assert_eq!(updated_at(&app, &insight).await, "2026-01-01T00:30:00.000001Z");
}

#[tokio::test]
async fn a_generated_insight_that_follows_its_flag_is_not_older_than_before() {
    let app = TestApp::new().await;
    let flag = json!({"key": "old", "_should_create_usage_dashboard": true});
    let flag = app.at(BACK, "POST", "/api/projects/1/feature_flags/", flag).await.expect(201);
    let insights = app.get("/api/projects/1/insights/?order=id").await.expect(200);
    let insight = &insights["results"][0];
    let path = format!("/api/projects/1/insights/{}/", insight["id"]);
    app.at(BEFORE, "PATCH", &path, json!({"favorited": true})).await.expect(200);
    assert_eq!(updated_at(&app, insight).await, BEFORE);
    let path = format!("/api/projects/1/feature_flags/{}/", flag["id"]);
    app.at(BACK_LATER, "PATCH", &path, json!({"key": "new"})).await.expect(200);
    assert_eq!(updated_at(&app, insight).await, "2026-01-01T00:30:00.000001Z");
    let after = app.get(&format!("/api/projects/1/insights/{}/", insight["id"])).await.expect(200);
    assert!(after["description"].as_str().unwrap().ends_with("key: new"), "{after}");
}
