//! Dashboards that a workspace file removes: insights are on them no longer, and their links open nothing, also after a dashboard with
//! the same id is declared again.

use std::time::Duration;

use pennon::record_check::check_records;
use pennon::workspace::{ApplyOptions, Declarations, Workspace, apply};
use pennon_insights::run_scheduled_tasks;
use pennon_tests::{NOW, TestApp, as_worker};
use serde_json::{Value, json};

const DASHBOARD: &str = "/api/projects/1/dashboards/5/";

/// Applies the declarations of `app` with only these dashboards.
async fn declare_dashboards(app: &TestApp, dashboards: Value) {
    let records = &app.services.app.store.records;
    let declared = Declarations::load(records).await.unwrap().workspace();
    let dashboards = Workspace::parse(&json!({"dashboards": dashboards}).to_string()).unwrap().dashboards;
    let options = ApplyOptions { prune: true, dry_run: false };
    apply(records, &Workspace { dashboards, ..declared }, options, NOW.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_removed_dashboard_leaves_no_tiles_and_no_link() {
    let declared = json!([{"project": "1", "id": 5, "name": "Board"}]);
    let app = TestApp::with(json!({"dashboards": declared.clone()})).await;
    let body = json!({"name": "I", "dashboards": [5]});
    let insight = app.post("/api/projects/1/insights/", body).await.expect(201)["id"].clone();
    let shared = app.patch(&format!("{DASHBOARD}sharing/"), json!({"enabled": true})).await.expect(200);
    let page = format!("/shared/{}", shared["access_token"].as_str().unwrap());
    assert_eq!(app.get(&page).await.status.as_u16(), 200);

    declare_dashboards(&app, json!([])).await;
    let records = &app.services.app.store.records;
    let now = NOW.parse().unwrap();
    let findings = async || check_records(records, None, now).await.unwrap().findings;
    assert_eq!(findings().await, [], "the tiles are removed by the worker");
    assert_eq!(app.get(&page).await.status.as_u16(), 404);
    let done = as_worker(run_scheduled_tasks(records, now, Duration::from_secs(5))).await.unwrap();
    assert_eq!((done.notes, done.failed), (1, 0));
    assert_eq!(findings().await, []);

    declare_dashboards(&app, declared).await;
    assert_eq!(app.get(&page).await.status.as_u16(), 404, "the link was of another dashboard");
    assert_eq!(app.get(DASHBOARD).await.expect(200)["tiles"], json!([]));
    let path = format!("/api/projects/1/insights/{insight}/");
    assert_eq!(app.get(&path).await.expect(200)["dashboards"], json!([]));
    assert_eq!(findings().await, []);
}

/// A dashboard that is declared again before the worker runs keeps its tiles.
#[tokio::test]
async fn a_dashboard_that_is_declared_again_at_once_keeps_its_tiles() {
    let declared = json!([{"project": "1", "id": 5, "name": "Board"}]);
    let app = TestApp::with(json!({"dashboards": declared.clone()})).await;
    let body = json!({"name": "I", "dashboards": [5]});
    app.post("/api/projects/1/insights/", body).await.expect(201);
    declare_dashboards(&app, json!([])).await;
    declare_dashboards(&app, declared).await;
    let records = &app.services.app.store.records;
    let now = NOW.parse().unwrap();
    as_worker(run_scheduled_tasks(records, now, Duration::from_secs(5))).await.unwrap();
    assert_eq!(app.get(DASHBOARD).await.expect(200)["tiles"].as_array().unwrap().len(), 1);
    assert_eq!(check_records(records, None, now).await.unwrap().findings, []);
}
