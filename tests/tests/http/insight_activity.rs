//! The activity log of insights over HTTP.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";
const LOG: &str = "/api/projects/1/insights/activity/";

fn of(id: &Value) -> String {
    format!("{INSIGHTS}{id}/activity/")
}

fn words(log: &Value) -> Vec<&str> {
    log["results"].as_array().unwrap().iter().map(|entry| entry["activity"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_insights_log_has_pages_and_the_projects_log_has_all_entries() {
    let app = TestApp::new().await;
    let id = app.post(INSIGHTS, json!({"name": "n0"})).await.expect(201)["id"].clone();
    for number in 1..=11 {
        app.patch(&format!("{INSIGHTS}{id}/"), json!({"name": format!("n{number}")})).await.expect(200);
    }
    let other = app.post(INSIGHTS, json!({"derived_name": "other"})).await.expect(201)["id"].clone();
    let first = app.get(&of(&id)).await.expect(200);
    assert_eq!((&first["total_count"], &first["previous"]), (&json!(12), &Value::Null));
    assert_eq!(first["results"].as_array().unwrap().len(), 10);
    assert_eq!(first["next"], format!("http://api.test{}?page=2&limit=10", of(&id)));
    let newest = &first["results"][0];
    let change =
        json!([{"type": "Insight", "action": "changed", "field": "name", "before": "n10", "after": "n11"}]);
    assert_eq!((&newest["scope"], &newest["item_id"]), (&json!("Insight"), &json!(id.to_string())));
    assert_eq!((&newest["detail"]["changes"], &newest["detail"]["name"]), (&change, &json!("n11")));
    let second = app.get(&format!("{}?page=2", of(&id))).await.expect(200);
    assert_eq!(words(&second), ["updated", "created"]);
    assert_eq!((&second["next"], &second["results"][1]["detail"]["changes"]), (&Value::Null, &Value::Null));
    let beyond = app.get(&format!("{}?page=3&limit=7", of(&id))).await.expect(200);
    assert_eq!(
        (&beyond["results"], &beyond["next"], &beyond["total_count"]),
        (&json!([]), &Value::Null, &json!(12))
    );
    for (query, attr) in [("limit=0", "limit"), ("limit=x", "limit"), ("page=0", "page"), ("page=-1", "page")]
    {
        for path in [of(&id), LOG.to_owned()] {
            assert_eq!(app.get(&format!("{path}?{query}")).await.expect(400)["attr"], attr);
        }
    }
    app.patch(&format!("{INSIGHTS}{other}/"), json!({"deleted": true})).await.expect(200);
    let all = app.get(&format!("{LOG}?limit=5000")).await.expect(200);
    assert_eq!(all["total_count"], 14, "deleted insights keep their entries");
    assert_eq!(words(&all)[..2], ["deleted", "created"]);
    let gone = app.get(&of(&other)).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (404, ""));
    app.patch(&format!("{INSIGHTS}{other}/"), json!({"deleted": false})).await.expect(200);
    assert_eq!(words(&app.get(&of(&other)).await.expect(200)), ["restored", "deleted", "created"]);
    for unknown in ["99", "x"] {
        let response = app.get(&format!("{INSIGHTS}{unknown}/activity/")).await;
        assert_eq!((response.status.as_u16(), response.text.as_str()), (404, ""));
    }
    assert_eq!(app.get("/api/projects/2/insights/activity").await.expect(200)["total_count"], 0);
    assert_eq!(app.get("/api/projects/1/feature_flags/activity/").await.expect(200)["total_count"], 0);
}

#[tokio::test]
async fn a_log_requires_its_own_scope_and_is_available_as_csv() {
    let key = |scope: &str, value: &str| json!({"label": value, "user": "owner@example.com", "scopes": [scope], "projects": [], "value": value});
    let keys = json!([key("insight:read", "phx_only_insights"), key("activity_log:read", "phx_only_logs")]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = app.post(INSIGHTS, json!({"name": "a,b"})).await.expect(201)["id"].clone();
    let detail = "API key missing required scope 'activity_log:read'";
    for path in [of(&id), LOG.to_owned()] {
        let refused = app.call("phx_only_insights", "GET", &path, Value::Null).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
        assert_eq!(app.call("phx_only_logs", "GET", &path, Value::Null).await.status, 200);
        assert_eq!(app.get(&format!("{path}?format=xml")).await.status, 404);
        let table = app.get(&path.replace("activity/", "activity.csv")).await;
        assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
        let lines: Vec<&str> = table.text.split("\r\n").collect();
        assert!(
            lines[0].starts_with("next,previous,results.0.activity,results.0.created_at,"),
            "{}",
            lines[0]
        );
        assert!(
            lines[1].starts_with(",,created,2026-01-05T10:00:00Z,") && lines[1].contains("\"a,b\""),
            "{}",
            lines[1]
        );
        assert_eq!((lines.len(), lines[2]), (3, ""));
    }
    assert_eq!(app.call(Keys::OWNER, "POST", LOG, json!({})).await.header("allow"), "GET, HEAD, OPTIONS");
}

/// The change that is written last is logged last, even if its request began first.
#[tokio::test]
async fn a_change_that_began_before_the_last_one_is_logged_after_it() {
    let app = TestApp::new().await;
    let path = crate::background::saved(&app, crate::background::views("-7d")).await;
    for (now, name) in [("2026-01-05T12:00:00Z", "later"), ("2026-01-05T11:00:00Z", "earlier")] {
        app.at(now, "PATCH", &path, json!({"name": name})).await.expect(200);
    }
    let insight = app.get(&path).await.expect(200);
    assert_eq!(
        (&insight["name"], &insight["updated_at"]),
        (&json!("earlier"), &json!("2026-01-05T12:00:00.000001Z"))
    );
    let reported = app.get(&format!("{path}activity/")).await.expect(200);
    assert_eq!(reported["results"][0]["detail"]["changes"][0]["after"], "earlier");
}
