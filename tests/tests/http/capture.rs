//! Unusual events over HTTP: a rejected batch stores nothing and names the reason; an accepted event is counted once, and found by
//! its properties, before compaction and after it.

use std::io::Write;

use axum::body::Body;
use axum::http::Request;
use flate2::{Compression, write::GzEncoder};
use pennon_tests::{NOW, TestApp, TestResponse};
use serde_json::{Map, Value, json};

async fn post(app: &TestApp, path: &str, body: Vec<u8>) -> TestResponse {
    let request = Request::post(path).header("host", "api.test").header("content-type", "application/json");
    app.send(request.body(Body::from(body)).unwrap()).await
}

async fn send(app: &TestApp, events: Value) -> TestResponse {
    post(app, "/batch/", json!({"api_key": "phc_project_1", "batch": events}).to_string().into_bytes()).await
}

/// The number of events of all time that pass these filters.
async fn count(app: &TestApp, name: Value, properties: Value) -> f64 {
    let body = json!({"events": [{"id": name, "properties": properties}], "date_from": "0001-01-02", "date_to": "9999-12-30",
        "interval": "month", "display": "BoldNumber"});
    let response = app.post("/api/projects/1/insights/trend/?refresh=true", body).await.expect(200);
    response["result"][0]["aggregated_value"].as_f64().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_rejected_body_stores_nothing() {
    let app = TestApp::new().await;
    let good = json!({"event": "a", "distinct_id": "d"});
    let batch = |text: &str| {
        let around = json!({"api_key": "phc_project_1", "batch": [good, "HERE"]}).to_string();
        around.replace("\"HERE\"", text).into_bytes()
    };
    let event =
        |value: &str| batch(&format!(r#"{{"event":"b","distinct_id":"d","properties":{{"v":{value}}}}}"#));
    let long = format!("\"{}\"", "x".repeat(950 * 1024));
    let zeros = gzip(&vec![b' '; 200 << 20]);
    assert!(zeros.len() < 1 << 20);
    for (what, body, status, code) in [
        ("NaN", event("NaN"), 400, "parse_error"),
        ("infinity", event("-Infinity"), 400, "parse_error"),
        ("a number beyond all", event("1e999"), 400, "parse_error"),
        (
            "bytes that are no UTF-8",
            event("\"?\"").into_iter().map(|b| if b == b'?' { 0xFF } else { b }).collect(),
            400,
            "parse_error",
        ),
        ("half a surrogate", event("\"\\ud800\""), 400, "parse_error"),
        ("a raw NUL", event("\"\u{0}\""), 400, "parse_error"),
        ("cut off", event("1")[..40].to_vec(), 400, "parse_error"),
        ("too large an event", event(&long), 413, "payload_too_large"),
        ("nested too deep", event(&format!("{}{}", "[".repeat(5000), "]".repeat(5000))), 400, "parse_error"),
        ("a gzip bomb", zeros, 413, "payload_too_large"),
        ("half a gzip", gzip(&event("1"))[..20].to_vec(), 400, "parse_error"),
        (
            "a time that is none",
            batch(r#"{"event":"b","distinct_id":"d","timestamp":7}"#),
            400,
            "invalid_input",
        ),
    ] {
        for path in ["/batch/", "/capture/", "/e/", "/i/v0/e/"] {
            let response = post(&app, path, body.clone()).await;
            let output_text = response.expect(status);
            assert_eq!(output_text["code"], code, "{what} on {path}: {output_text}");
            assert!(output_text["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{output_text}");
        }
    }
    assert_eq!(count(&app, Value::Null, json!([])).await, 0.0);
    assert_eq!(app.get("/api/projects/1/persons/").await.expect(200)["count"], 0);
    // The same token and events still count.
    send(&app, json!([good])).await.expect(200);
    assert_eq!(count(&app, Value::Null, json!([])).await, 1.0);
}

#[tokio::test]
async fn every_path_accepts_events() {
    let app = TestApp::new().await;
    let one = |name: &str| json!({"api_key": "phc_project_1", "event": name, "distinct_id": "d"});
    for path in ["/capture/", "/e/", "/i/v0/e/"] {
        post(&app, path, one(path).to_string().into_bytes()).await.expect(200);
        assert_eq!(count(&app, json!(path), json!([])).await, 1.0, "{path}");
    }
    let id = "01900000-0000-7000-8000-000000000001";
    let batch = json!({"api_key": "phc_project_1", "created_at": NOW,
        "batch": [{"uuid": id, "event": "v1", "distinct_id": "d", "timestamp": NOW}]});
    let reported = post(&app, "/i/v1/analytics/events/", batch.to_string().into_bytes()).await.expect(200);
    assert_eq!(reported["results"][id]["result"], "ok", "{reported}");
    assert_eq!(count(&app, json!("v1"), json!([])).await, 1.0);
}

/// JSON has no infinity.
#[tokio::test]
async fn sums_beyond_the_largest_number_are_the_largest_number() {
    let app = TestApp::new().await;
    let on = |day: u32| {
        json!({"event": "buy", "distinct_id": "d", "timestamp": format!("2024-01-0{day}T10:00:00Z"),
            "properties": {"price": 1.5e308}})
    };
    send(&app, json!([on(1), on(2)])).await.expect(200);
    let requested = |display: &str| {
        json!({"events": [{"id": "buy", "math": "sum", "math_property": "price"}], "display": display,
            "date_from": "2024-01-01", "date_to": "2024-01-02"})
    };
    let trend = "/api/projects/1/insights/trend/?refresh=true";
    let lines = app.post(trend, requested("ActionsLineGraph")).await.expect(200);
    assert_eq!(lines["result"][0]["data"], json!([1.5e308, 1.5e308]));
    assert_eq!(lines["result"][0]["count"], json!(f64::MAX));
    let running = app.post(trend, requested("ActionsLineGraphCumulative")).await.expect(200);
    assert_eq!(running["result"][0]["data"], json!([1.5e308, f64::MAX]));
}

#[tokio::test]
async fn ten_thousand_properties_are_kept_and_found_each() {
    let app = TestApp::new().await;
    let of =
        |base: u64| (0..10_000).map(|n| (format!("k{n}"), json!(base + n))).collect::<Map<String, Value>>();
    let set = (0..10_000).map(|n| (format!("p{n}"), json!(n))).collect::<Map<String, Value>>();
    let mut loud = of(0);
    loud.insert("$set".into(), set.into());
    send(
        &app,
        json!([{"event": "bomb", "distinct_id": "d", "properties": loud},
        {"event": "bomb", "distinct_id": "e", "properties": of(1)}]),
    )
    .await
    .expect(200);
    for _ in 0..2 {
        for key in [0, 249, 250, 9_999] {
            let is = |value: u64| json!([{"key": format!("k{key}"), "value": value, "type": "event"}]);
            assert_eq!(count(&app, json!("bomb"), is(key)).await, 1.0, "{key}");
            assert_eq!(count(&app, json!("bomb"), is(key + 2)).await, 0.0);
            let of_person = json!([{"key": format!("p{key}"), "value": key, "type": "person"}]);
            assert_eq!(count(&app, json!("bomb"), of_person).await, 1.0);
        }
        let person = app.get("/api/projects/1/persons/?distinct_id=d").await.expect(200);
        assert_eq!(person["results"][0]["properties"].as_object().unwrap().len(), 10_000);
        app.compact().await;
    }
}

#[tokio::test]
async fn null_characters_and_extreme_years_are_counted() {
    let app = TestApp::new().await;
    let history = json!({"api_key": "phc_project_1", "historical_migration": true, "batch": [
        {"event": "old", "distinct_id": "a", "timestamp": "0001-01-02T00:00:00Z"},
        {"event": "new", "distinct_id": "a", "timestamp": "9999-12-30T23:59:59Z"},
        {"event": "none", "distinct_id": "a", "timestamp": "0000-06-01T00:00:00Z"},
        {"event": "far", "distinct_id": "a", "timestamp": "+10000-01-01T00:00:00Z"},
    ]});
    post(&app, "/batch/", history.to_string().into_bytes()).await.expect(200);
    // Sent with the current time, no person is in the future.
    send(
        &app,
        json!([{"event": "today", "distinct_id": "a", "timestamp": "9999-12-31T00:00:00Z"},
        {"event": "n\u{0}l", "distinct_id": "nul\u{0}", "properties": {"k\u{0}y": "v\u{0}"}}]),
    )
    .await
    .expect(200);
    for _ in 0..2 {
        for (name, most) in [("old", 1.0), ("new", 1.0), ("today", 1.0)] {
            assert_eq!(count(&app, json!(name), json!([])).await, most, "{name}");
        }
        let nul = json!([{"key": "k\u{FFFD}y", "value": "v\u{FFFD}", "type": "event"}]);
        assert_eq!(count(&app, json!("n\u{FFFD}l"), nul).await, 1.0);
        assert_eq!(count(&app, Value::Null, json!([])).await, 6.0, "each of them once");
        let person = app.get("/api/projects/1/persons/?distinct_id=nul%EF%BF%BD").await.expect(200);
        assert_eq!(person["count"], 1);
        // A query about a week is not disturbed by years at the ends, nor by an unbounded beginning.
        for from in ["-7d", "all"] {
            let body = json!({"events": [{"id": "today"}], "date_from": from});
            let response = app.post("/api/projects/1/insights/trend/?refresh=true", body).await;
            // By days from the year 1 on are more than a request allows.
            response.expect(if from == "all" { 400 } else { 200 });
        }
        app.compact().await;
    }
}
