//! The line that the log gets for every request.

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::Method;
use pennon_core::http::RequestId;
use pennon_core::request_metrics::{RequestMetrics, with_metrics};
use pennon_core::store::keys;
use pennon_tests::log::{KEPT, lines_of};
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

use crate::background::{QUERY, viewed, views};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// Sends a request; gives its response and its lines.
async fn logged(app: &TestApp, method: &Method, path: &str, body: Value) -> (TestResponse, Vec<Value>) {
    let id = format!("{KEPT}{}", pennon_core::ids::new_uuid());
    let mut request = TestApp::request(Keys::OWNER, method.as_str(), path, body);
    request.extensions_mut().insert(RequestId(id.clone()));
    app.round_trips.reset();
    let response = app.send(request).await;
    (response, lines_of(&id))
}

#[tokio::test]
async fn a_request_is_logged_with_its_metrics() {
    let app = TestApp::new().await;
    let (made, lines) =
        logged(&app, &Method::POST, FLAGS, json!({"key": "a", "name": "only in the body"})).await;
    let made = made.expect(201);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let is = |field: &str, value: Value| assert_eq!(line[field], value, "{field} of {line}");
    is("level", json!("INFO"));
    is("method", json!("POST"));
    is("route", json!("/api/projects/{project_id}/feature_flags"));
    is("project", json!(1));
    // sha256sum of the key, its first twelve digits.
    is("key", json!("ab461be2e17f"));
    is("status", json!(201));
    is("round_trips", json!(app.round_trips.calls().len()));
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
    // A transaction takes two units for each item of up to a kilobyte, and it has at least the flag, its summary, its key,
    // an entry of the log and its pointer.
    assert!(line["write_units"].as_f64().unwrap() >= 10.0, "{line}");
    assert!(!line.to_string().contains("only in the body"));

    let path = format!("{FLAGS}{}/", made["id"]);
    let (_, lines) = logged(&app, &Method::GET, &path, Value::Null).await;
    assert_eq!(lines[0]["route"], "/api/projects/{project_id}/feature_flags/{id}");
    assert_eq!((&lines[0]["write_units"], &lines[0]["bytes_read"]), (&json!(0.0), &json!(0)));
    assert!(lines[0]["read_units"].as_f64().unwrap() >= 1.0, "{}", lines[0]);
}

#[tokio::test]
async fn rejected_requests_are_logged_too() {
    let app = TestApp::new().await;
    for (path, status, route) in [
        ("/api/nothing/here/?personal_api_key=phx_never_in_a_line", 404, ""),
        ("/api/projects/9/feature_flags/", 403, "/api/projects/{project_id}/feature_flags"),
    ] {
        let (response, lines) = logged(&app, &Method::GET, path, Value::Null).await;
        assert_eq!(response.status.as_u16(), status, "{path}");
        assert_eq!((&lines[0]["status"], &lines[0]["route"]), (&json!(status), &json!(route)), "{path}");
    }
}

#[tokio::test]
async fn bytes_and_reads_of_events_are_logged() {
    let app = viewed().await;
    app.services
        .events
        .compact(1, pennon_core::clock::Clock::Running.now(None).timestamp_micros())
        .await
        .unwrap();
    let app = app.metered();
    app.meter.take();
    let (response, lines) = logged(&app, &Method::POST, QUERY, json!({"query": views("-7d")})).await;
    response.expect(200);
    let line = lines.iter().find(|line| line["message"] == "request").unwrap();
    assert!(line["bytes_read"].as_u64().unwrap() > 0, "{line}");
    let gets = app.meter.take().gets;
    assert!(gets > 0 && line["gets"] == gets, "{gets} reads of objects, and {line}");
    assert!(lines.iter().any(|line| line["message"] == "events scanned"), "it has the id of its request");
}

#[tokio::test]
async fn calls_of_a_traced_request_are_kept_with_their_times() {
    let app = TestApp::new().await;
    let records = &app.services.app.store.records;
    for (is_traced, operations) in [(true, vec!["GetItem"]), (false, vec![])] {
        let metrics = Arc::new(RequestMetrics::new(is_traced));
        let before = SystemTime::now();
        with_metrics(metrics.clone(), records.get(&keys::project(1))).await.unwrap();
        let calls = metrics.calls();
        assert_eq!(calls.iter().map(|call| call.operation.as_str()).collect::<Vec<_>>(), operations);
        assert!(
            calls
                .iter()
                .all(|call| before <= call.times.0 && call.times.0 <= call.times.1 && !call.has_failed)
        );
        assert_eq!(metrics.round_trips(), 1);
    }
}
