//! Flags evaluated for one person: round trips, failures, limits, and data that is never returned.

use std::io::Write as _;

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use pennon_tests::{Faults, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const TOKEN: &str = "phc_project_1";

fn on(properties: Value) -> Value {
    json!({"groups": [{"properties": properties, "rollout_percentage": 100}]})
}

fn plan(value: &str) -> Value {
    json!([{"key": "plan", "type": "person", "value": value}])
}

async fn make(app: &TestApp, body: Value) {
    app.post(FLAGS, body).await.expect(201);
}

/// An evaluation request, as a server sends it.
fn flags_request(path: &str, body: &Value) -> Request<Body> {
    let mut request = TestApp::request("", "POST", path, body.clone());
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("posthog-python/7.91.1"));
    request
}

async fn send_request(app: &TestApp, more: Value) -> TestResponse {
    let mut body = json!({"token": TOKEN, "distinct_id": "ann"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    app.send(flags_request("/flags/?v=2", &body)).await
}

/// Sends a request and returns its round trips.
async fn waits(app: &TestApp, more: Value) -> (Value, usize) {
    app.round_trips.reset();
    let response = send_request(app, more).await.expect(200);
    (response, app.round_trips.sequential())
}

async fn capture(app: &TestApp, events: Value) {
    app.call("", "POST", "/batch/", json!({"api_key": TOKEN, "batch": events})).await.expect(200);
}

fn set(id: &str, properties: Value) -> Value {
    json!({"event": "$set", "distinct_id": id, "properties": {"$set": properties}})
}

/// Lets the cached token and version expire, which are valid for five seconds.
fn forget_tokens(app: &TestApp) {
    app.services.app.tokens.expire();
}

#[tokio::test]
async fn requests_wait_only_for_the_reads_they_need() {
    let static_cohort =
        json!({"project": "1", "id": 4, "name": "S", "is_static": true, "distinct_ids": ["ann"]});
    let app = TestApp::with(json!({"cohorts": [static_cohort]})).await;
    make(&app, json!({"key": "for-all", "filters": on(json!([]))})).await;
    make(&app, json!({"key": "pro", "filters": on(plan("pro"))})).await;
    let in_cohort = json!([{"key": "id", "type": "cohort", "value": 4}]);
    make(&app, json!({"key": "listed", "filters": on(in_cohort)})).await;
    let mut by_group = on(json!([{"key": "size", "type": "group", "group_type_index": 0, "value": "9"}]));
    by_group["aggregation_group_type_index"] = json!(0);
    make(&app, json!({"key": "large", "filters": by_group})).await;
    let half = json!({"groups": [{"rollout_percentage": 50}]});
    make(&app, json!({"key": "kept", "ensure_experience_continuity": true, "filters": half})).await;
    capture(&app, json!([set("ann", json!({"plan": "pro"}))])).await;
    capture(
        &app,
        json!([{"event": "$groupidentify", "distinct_id": "ann", "properties": {
            "$group_type": "organization", "$group_key": "acme", "$group_set": {"size": 9}}}]),
    )
    .await;
    waits(&app, json!({})).await;

    let rollouts = json!({"flag_keys": ["for-all"]});
    let sent = json!({"flag_keys": ["pro"], "person_properties": {"plan": "pro"}});
    for (what, within, after) in [
        (rollouts, 0, 1),
        (sent, 0, 1),
        (json!({"flag_keys": []}), 0, 1),
        (json!({"flag_keys": ["pro"]}), 2, 2),
        (json!({"flag_keys": ["listed"]}), 1, 2),
        (json!({"flag_keys": ["kept"]}), 1, 2),
        (json!({"flag_keys": ["large"], "groups": {"organization": "acme"}}), 2, 2),
        (json!({"flag_keys": ["large"]}), 0, 1),
        (json!({"groups": {"organization": "acme"}}), 2, 2),
    ] {
        let (first, waited) = waits(&app, what.clone()).await;
        assert!(waited <= within, "{what}: {waited} {:?}", app.round_trips.calls());
        forget_tokens(&app);
        let (again, waited) = waits(&app, what.clone()).await;
        assert!(waited <= after, "{what}: {waited} {:?}", app.round_trips.calls());
        assert_eq!(first["flags"], again["flags"]);
    }
    let (all, _) = waits(&app, json!({"groups": {"organization": "acme"}})).await;
    for key in ["for-all", "pro", "listed", "large"] {
        assert_eq!(all["flags"][key]["enabled"], true, "{key}");
    }
}

#[tokio::test]
async fn an_override_costs_one_round_trip_more_once() {
    let app = TestApp::new().await;
    let half = json!({"groups": [{"rollout_percentage": 50}]});
    make(&app, json!({"key": "kept", "ensure_experience_continuity": true, "filters": half})).await;
    waits(&app, json!({})).await;
    forget_tokens(&app);
    let login = json!({"$anon_distinct_id": "anon"});
    assert!(waits(&app, login.clone()).await.1 <= 3);
    forget_tokens(&app);
    assert!(waits(&app, login).await.1 <= 2);
}

#[tokio::test]
async fn an_edit_by_another_process_shows_when_the_version_is_looked_at_again() {
    let app = TestApp::new().await;
    let id = app.flag("edited").await;
    let other = app.another_process();
    assert_eq!(send_request(&other, json!({})).await.expect(200)["flags"]["edited"]["enabled"], true);
    let no_person = json!({"filters": {"groups": [{"rollout_percentage": 0}]}});
    app.patch(&format!("{FLAGS}{id}/"), no_person).await.expect(200);
    assert_eq!(
        send_request(&app, json!({})).await.expect(200)["flags"]["edited"]["enabled"],
        false,
        "at once here"
    );
    forget_tokens(&other);
    let (response, waited) = waits(&other, json!({})).await;
    assert_eq!(
        (&response["flags"]["edited"]["enabled"], &response["flags"]["edited"]["metadata"]["version"]),
        (&json!(false), &json!(2))
    );
    assert!(waited <= 4, "{waited}");
}

#[tokio::test]
async fn a_failed_read_fails_only_the_flags_that_need_it() {
    let faults = Faults::default();
    let app = TestApp::failing(&faults).await;
    make(&app, json!({"key": "for-all", "filters": on(json!([]))})).await;
    make(&app, json!({"key": "pro", "filters": on(plan("pro"))})).await;
    let on_pro = json!([{"type": "flag", "key": "2", "operator": "flag_evaluates_to", "value": false}]);
    make(&app, json!({"key": "dependent", "filters": on(on_pro)})).await;
    send_request(&app, json!({})).await.expect(200);
    faults.deny_reads_of("PROJECT#1#SEGMENT");
    let response = send_request(&app, json!({})).await.expect(200);
    assert_eq!(response["errorsWhileComputingFlags"], true);
    assert_eq!(response["flags"]["for-all"]["enabled"], true);
    assert!(response["flags"]["for-all"].get("failed").is_none());
    for key in ["pro", "dependent"] {
        let failed = &response["flags"][key];
        assert_eq!((&failed["failed"], &failed["enabled"]), (&json!(true), &json!(false)), "{failed}");
        assert_eq!(
            (&failed["reason"]["code"], &failed["reason"]["condition_index"]),
            (&json!("store_unavailable"), &json!(null))
        );
    }
    let sent = send_request(&app, json!({"person_properties": {"plan": "pro"}})).await.expect(200);
    assert_eq!(
        (&sent["errorsWhileComputingFlags"], &sent["flags"]["pro"]["enabled"]),
        (&json!(false), &json!(true))
    );
    let older = app
        .send(flags_request("/decide/?v=3", &json!({"token": TOKEN, "distinct_id": "ann"})))
        .await
        .expect(200);
    assert_eq!(older["featureFlags"], json!({"for-all": true}));
    assert_eq!(older["errorsWhileComputingFlags"], true);
    let context = json!({"context": {"targetingKey": "ann"}});
    let mut one = flags_request("/ofrep/v1/evaluate/flags/pro", &context);
    one.headers_mut().insert("x-api-key", HeaderValue::from_static(TOKEN));
    let one = app.send(one).await.expect(500);
    assert_eq!((&one["key"], &one["errorCode"]), (&json!("pro"), &json!("GENERAL")));
    forget_tokens(&app);
    faults.deny_reads_of("TOKEN#phc_project_1");
    let refused = send_request(&app, json!({})).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after").is_empty()), (503, false));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn bodies_are_read_up_to_their_limits() {
    let app = TestApp::new().await;
    app.flag("any").await;
    let body = |length: usize| {
        let start = format!(r#"{{"token":"{TOKEN}","distinct_id":"ann","x":""#);
        format!("{start}{}\"}}", "y".repeat(length - start.len() - 2)).into_bytes()
    };
    let send = async |bytes: Vec<u8>| {
        let mut request = flags_request("/flags/?v=2", &Value::Null);
        *request.body_mut() = Body::from(bytes);
        app.send(request).await
    };
    assert_eq!(send(body(1 << 20)).await.status, 200);
    send(body((1 << 20) + 1)).await.expect(413);
    assert_eq!(send(gzip(&body(4 << 20))).await.status, 200);
    let refused = send(gzip(&body((4 << 20) + 1))).await;
    assert_eq!(refused.expect(413)["code"], "payload_too_large");
    send(Vec::new()).await.expect(400);
}

#[tokio::test]
async fn long_responses_are_compressed_if_accepted() {
    let app = TestApp::new().await;
    for number in 0..8 {
        app.flag(&format!("flag-{number}")).await;
    }
    let mut request = flags_request("/flags/?v=2", &json!({"token": TOKEN, "distinct_id": "ann"}));
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = app.send(request).await;
    assert_eq!((response.status.as_u16(), response.header("content-encoding")), (200, "gzip"));
    assert_eq!(response.header("cache-control"), "no-store");
}

#[tokio::test]
async fn an_unknown_person_and_one_without_properties_have_the_same_response() {
    let app = TestApp::new().await;
    make(&app, json!({"key": "pro", "name": "Secret name", "tags": ["secret-tag"], "filters": on(plan("secret-plan"))})).await;
    let secret = json!({"key": "secret-runtime", "evaluation_runtime": "server", "filters": on(json!([]))});
    make(&app, secret).await;
    capture(
        &app,
        json!([{"event": "seen", "distinct_id": "seen"}, set("ann", json!({"city": "secret-city"}))]),
    )
    .await;
    let mut responses = Vec::new();
    for id in ["seen", "unknown", "ann"] {
        let mut request =
            flags_request("/flags/?v=2&config=true", &json!({"token": TOKEN, "distinct_id": id}));
        request
            .headers_mut()
            .insert(header::USER_AGENT, HeaderValue::from_static("Mozilla/5.0 Chrome/140.0"));
        request
            .headers_mut()
            .insert("x-request-id", HeaderValue::from_static("7c0e9d8e-3a55-4c0e-8d3c-1f5f6a1f2b10"));
        let response = app.send(request).await;
        assert_eq!(response.status, 200);
        for hidden in
            ["Secret name", "secret-tag", "secret-plan", "secret-city", "secret-runtime", "owner@example.com"]
        {
            assert!(!response.text.contains(hidden), "{hidden}: {}", response.text);
        }
        responses.push(response.text);
    }
    assert_eq!(responses[0], responses[1]);
    assert_eq!(responses[1], responses[2]);
}

#[tokio::test]
async fn evaluation_writes_nothing() {
    let app = TestApp::new().await;
    app.flag("any").await;
    send_request(&app, json!({"person_properties": {"plan": "pro"}})).await.expect(200);
    app.round_trips.reset();
    send_request(&app, json!({"person_properties": {"plan": "pro"}, "groups": {"organization": "acme"}}))
        .await
        .expect(200);
    assert!(
        app.round_trips
            .calls()
            .iter()
            .all(|call| !call.operation.contains("Write") && !call.operation.contains("Put"))
    );
    let persons = app.get("/api/projects/1/persons/").await.expect(200);
    assert_eq!(persons["results"], json!([]));
}

#[tokio::test]
async fn pages_of_any_origin_read_every_response_of_the_sdk_routes() {
    let app = TestApp::new().await;
    app.flag("any").await;
    let origin = "https://shop.example.com";
    let body = json!({"token": TOKEN, "distinct_id": "ann", "event": "seen", "api_key": TOKEN});
    for (method, path) in [
        ("POST", "/flags/?v=2"),
        ("GET", "/flags/"),
        ("PUT", "/flags/"),
        ("POST", "/decide/?v=3"),
        ("POST", "/e/"),
        ("POST", "/batch/"),
        ("POST", "/i/v0/e/"),
        ("POST", "/capture"),
        ("GET", "/e/"),
        ("OPTIONS", "/e/"),
        ("GET", "/array/phc_project_1/config"),
        ("GET", "/array/unknown/config.js"),
        ("GET", "/api/surveys/"),
        ("GET", "/api/early_access_features/?token=phc_project_1"),
        ("POST", "/ofrep/v1/evaluate/flags"),
    ] {
        let body = if method == "POST" { body.clone() } else { Value::Null };
        let mut request = TestApp::request("", method, path, body.clone());
        request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
        let response = app.send(request).await;
        assert_eq!(response.header("access-control-allow-origin"), origin, "{method} {path}");
        assert_eq!(response.header("access-control-allow-credentials"), "true", "{method} {path}");
        assert!(response.header("vary").to_lowercase().contains("origin"), "{method} {path}");
        let plain = app.call("", method, path, body).await;
        assert_eq!(plain.header("access-control-allow-origin"), "*", "{method} {path}");
        assert_eq!(plain.header("access-control-allow-credentials"), "");
    }
    let mut request = TestApp::request("", "GET", FLAGS, Value::Null);
    request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
    assert_eq!(
        app.send(request).await.header("access-control-allow-origin"),
        "*",
        "routes with keys stay as they were"
    );
}

#[tokio::test]
async fn events_of_a_query_string_are_counted_once() {
    let app = TestApp::new().await;
    // {"event":"seen","properties":{"distinct_id":"ann","token":"phc_project_1"}}
    let data = "eyJldmVudCI6InNlZW4iLCJwcm9wZXJ0aWVzIjp7ImRpc3RpbmN0X2lkIjoiYW5uIiwidG9rZW4iOiJwaGNfcHJvamVjdF8xIn19";
    let path = format!("/e/?data={data}&compression=base64&ip=1&_=1767607200000&ver=1.57.2");
    let head = app.call("", "HEAD", &path, Value::Null).await;
    assert_eq!(head.status, 200);
    let stored = app.call("", "GET", &path, Value::Null).await;
    assert_eq!((stored.expect(200), stored.header("cache-control")), (json!({"status": 1}), "no-store"));
    let people = app.get("/api/projects/1/persons/").await.expect(200);
    assert_eq!(people["results"].as_array().unwrap().len(), 1, "{people}");
    let trend = app
        .get("/api/projects/1/insights/trend/?events=%5B%7B%22id%22%3A%22seen%22%7D%5D&date_from=-7d")
        .await;
    assert_eq!(trend.expect(200)["result"][0]["count"].as_f64(), Some(1.0));
    let missing = app.call("", "GET", "/e/?_=1", Value::Null).await;
    assert_eq!(missing.expect(400)["attr"], "data");
    app.call("", "GET", "/e/?data=%21%21", Value::Null).await.expect(400);
}
