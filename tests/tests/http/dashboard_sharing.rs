//! The sharing settings of dashboards: the rules of insights. The pages of their links: `shared_pages.rs`.

use pennon_core::store::{Item, PartitionQuery};
use pennon_tests::{Fault, Faults, Keys, TestApp};
use serde_json::{Value, json};

pub(crate) const DASHBOARDS: &str = "/api/projects/1/dashboards/";

fn sharing(id: u64) -> String {
    format!("{DASHBOARDS}{id}/sharing/")
}

async fn made(app: &TestApp, body: Value) -> u64 {
    app.post(DASHBOARDS, body).await.expect(201)["id"].as_u64().unwrap()
}

/// Enables sharing and returns the token.
pub(crate) async fn share_dashboard(app: &TestApp, id: u64) -> String {
    let shown = app.patch(&sharing(id), json!({"enabled": true})).await.expect(200);
    shown["access_token"].as_str().unwrap().to_owned()
}

/// Every sharing configuration of project 1.
async fn stored(app: &TestApp) -> Vec<Item> {
    app.services.app.store.records.query(PartitionQuery::partition("PROJECT#1#SHARING")).await.unwrap()
}

/// Activities and scopes of the dashboard's log, newest first.
async fn log(app: &TestApp, id: u64) -> Vec<Value> {
    let log = app.get(&format!("{DASHBOARDS}{id}/activity/")).await.expect(200);
    log["results"].as_array().unwrap().iter().map(|it| it["activity"].clone()).collect()
}

#[tokio::test]
async fn a_dashboard_is_shared_by_a_change_and_reading_writes_nothing() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "Board"})).await;
    let first = app.get(&sharing(id)).await.expect(200);
    let token = first["access_token"].as_str().unwrap().to_owned();
    assert!(token.len() == 30 && token.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)));
    let expected = json!({"created_at": null, "enabled": false, "access_token": token, "settings": null,
                          "password_required": false, "share_passwords": []});
    assert_eq!(first, expected);
    assert!(stored(&app).await.is_empty());
    let is_shared = async || {
        let one = app.get(&format!("{DASHBOARDS}{id}/")).await.expect(200)["is_shared"].clone();
        let list = app.get(DASHBOARDS).await.expect(200)["results"][0]["is_shared"].clone();
        assert_eq!(one, list);
        one
    };
    assert_eq!(is_shared().await, false);

    let on =
        app.patch(&sharing(id), json!({"enabled": true, "settings": {"theme": "dark"}})).await.expect(200);
    assert_eq!((&on["enabled"], &on["access_token"]), (&json!(true), &json!(token)), "the same token");
    assert_eq!(
        (&on["settings"], &on["created_at"]),
        (&json!({"theme": "dark"}), &json!("2026-01-05T10:00:00Z"))
    );
    assert_eq!(app.get(&sharing(id)).await.expect(200), on);
    assert_eq!(app.another_process().get(&sharing(id)).await.expect(200), on);
    assert_eq!(is_shared().await, true);
    let rows = stored(&app).await;
    assert!(rows.len() == 1 && !rows[0].text.contains(&token), "only the hash of a token is stored");
    assert_eq!(log(&app, id).await, ["sharing enabled", "created"]);
    let entry =
        app.get(&format!("{DASHBOARDS}{id}/activity/?limit=1")).await.expect(200)["results"][0].clone();
    let change = json!([{"type": "Dashboard", "action": "changed", "field": "sharing", "before": null, "after": true}]);
    assert_eq!((&entry["detail"]["changes"], &entry["detail"]["name"]), (&change, &json!("Board")));

    // Other changes of the dashboard keep it shared.
    app.patch(&format!("{DASHBOARDS}{id}/"), json!({"name": "Renamed"})).await.expect(200);
    assert_eq!(is_shared().await, true);
    let second = app.post(&format!("{}refresh/", sharing(id)), json!({})).await.expect(200);
    assert_ne!(second["access_token"], token);
    assert_eq!(app.patch(&sharing(id), json!({"enabled": false})).await.expect(200)["enabled"], false);
    assert_eq!(is_shared().await, false);
    assert_eq!(log(&app, id).await, ["sharing disabled", "updated", "updated", "sharing enabled", "created"]);
    let entries = app.get(&format!("{DASHBOARDS}{id}/activity/")).await.text;
    assert!(!entries.contains(&token) && !entries.contains(second["access_token"].as_str().unwrap()));
    for (body, attr) in
        [(json!({"enabled": "maybe"}), "enabled"), (json!({"settings": {"theme": []}}), "settings__theme")]
    {
        app.patch(&sharing(id), body).await.expect_field_error("invalid_input", attr);
    }
}

#[tokio::test]
async fn an_insight_and_a_dashboard_with_the_same_id_are_shared_separately() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "Board"})).await;
    let insights = "/api/projects/1/insights/";
    assert_eq!(app.post(insights, json!({"name": "x"})).await.expect(201)["id"], id);
    let of_dashboard = share_dashboard(&app, id).await;
    let of_insight = app.get(&format!("{insights}{id}/sharing/")).await.expect(200);
    assert_eq!(of_insight["enabled"], false);
    assert_ne!(of_insight["access_token"], of_dashboard);
}

#[tokio::test]
async fn only_those_who_may_edit_a_dashboard_share_it() {
    let key = |scopes: &[&str], value: &str| json!({"label": value, "user": "member@example.com", "scopes": scopes, "projects": [], "value": value});
    let keys = json!([
        key(&["dashboard:write", "sharing_configuration:read"], "phx_reads_sharing"),
        key(&["sharing_configuration:write"], "phx_writes_sharing")
    ]);
    let dashboards = json!([{"project": "1", "id": 70, "name": "Closed", "restriction_level": 37, "created_by": "owner@example.com"}]);
    let app = TestApp::with(json!({"keys": keys, "dashboards": dashboards})).await;
    let open = made(&app, json!({"name": "open"})).await;
    let on = json!({"enabled": true});
    let refused = app.call("phx_reads_sharing", "PATCH", &sharing(open), on.clone()).await;
    let detail = "API key missing required scope 'sharing_configuration:write'";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    app.call("phx_reads_sharing", "GET", &sharing(open), Value::Null).await.expect(200);
    app.call("phx_writes_sharing", "PATCH", &sharing(open), on.clone()).await.expect(200);
    app.call("phx_writes_sharing", "GET", &sharing(70), Value::Null).await.expect(200);
    for (method, path) in [("PATCH", sharing(70)), ("POST", format!("{}refresh/", sharing(70)))] {
        let detail = "You don't have edit permissions for this dashboard.";
        let refused = app.call("phx_writes_sharing", method, &path, on.clone()).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
        assert_eq!(app.call(Keys::OWNER, method, &path, on.clone()).await.status, 200);
    }
    app.patch(&format!("{DASHBOARDS}{open}/"), json!({"deleted": true})).await.expect(200);
    for missing in [open.to_string(), "99".to_owned(), "x".to_owned()] {
        let path = format!("{DASHBOARDS}{missing}/sharing/");
        for response in [app.get(&path).await, app.patch(&path, on.clone()).await] {
            response.expect_error(404, "invalid_request", "not_found", "Dashboard not found.", None);
        }
    }
    assert_eq!(
        app.patch(&format!("/api/projects/2/dashboards/{open}/sharing/"), on.clone()).await.status,
        404
    );
}

/// After any interruption, `is_shared`, the configuration and the row of the token agree.
#[tokio::test]
async fn a_failing_store_never_leaves_half_a_change() {
    let faults =
        Faults::new(23, &[(Fault::Conflict, 150), (Fault::ResponseLost, 100), (Fault::RequestLost, 100)]);
    let app = TestApp::failing(&faults).await;
    let id = loop {
        let response = app.post(DASHBOARDS, json!({"name": "Board"})).await;
        if response.status == 201 {
            break response.json()["id"].as_u64().unwrap();
        }
    };
    for round in 0..30 {
        let response = match round % 3 {
            2 => app.post(&format!("{}refresh/", sharing(id)), json!({})).await,
            other => app.patch(&sharing(id), json!({"enabled": other == 0})).await,
        };
        assert!(matches!(response.status.as_u16(), 200 | 503), "{}", response.text);
    }
    faults.stop();
    let state = app.get(&sharing(id)).await.expect(200);
    assert_eq!(app.get(&format!("{DASHBOARDS}{id}/")).await.expect(200)["is_shared"], state["enabled"]);
    let token = state["access_token"].as_str().unwrap();
    let page = app.call("", "GET", &format!("/shared/{token}"), Value::Null).await;
    assert_eq!(page.status, if state["enabled"] == true { 200 } else { 404 });
}
