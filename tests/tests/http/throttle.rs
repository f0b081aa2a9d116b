//! Rate limits: counted per key, 429 above the limit, off by default.

use axum::http::StatusCode;
use pennon_core::throttle::Rates;
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

async fn with(burst: u64, sustained: u64) -> TestApp {
    TestApp::new().await.limited(Rates { burst, sustained, ..Rates::default() })
}

/// GET at `seconds` after ten o'clock.
async fn get_at(app: &TestApp, key: &str, path: &str, seconds: u32) -> TestResponse {
    let mut request = TestApp::request(key, "GET", path, Value::Null);
    let now = format!("2026-01-05T10:{:02}:{:02}Z", seconds / 60, seconds % 60);
    request.headers_mut().insert("x-pennon-now", now.parse().expect("a header"));
    app.send(request).await
}

#[tokio::test]
async fn a_call_beyond_the_limit_has_retry_after() {
    let app = with(3, 100).await;
    for second in 0..3 {
        get_at(&app, Keys::OWNER, FLAGS, second).await.expect(200);
    }
    // 50 s to the next minute, in which three count as two from the 20th second on.
    let refused = get_at(&app, Keys::OWNER, FLAGS, 10).await;
    assert_eq!(refused.headers["retry-after"], "70");
    let body = refused.expect(429);
    assert_eq!(body["type"], "throttled_error");
    assert_eq!(body["code"], "throttled");
    assert_eq!(body["detail"], "Request was throttled. Expected available in 70 seconds.");
    assert_eq!(body["attr"], Value::Null);
    // The rejected call did not count.
    get_at(&app, Keys::OWNER, FLAGS, 79).await.expect(429);
    get_at(&app, Keys::OWNER, FLAGS, 80).await.expect(200);
}

#[tokio::test]
async fn each_key_and_each_bucket_has_its_own_count() {
    let app = with(2, 100).await;
    for _ in 0..2 {
        get_at(&app, Keys::OWNER, FLAGS, 0).await.expect(200);
    }
    get_at(&app, Keys::OWNER, FLAGS, 0).await.expect(429);
    get_at(&app, Keys::OWNER, "/api/projects/", 0).await.expect(429);
    get_at(&app, Keys::OWNER, "/api/projects/1/feature_flags/local_evaluation/", 0).await.expect(200);
    get_at(&app, Keys::OWNER, "/flags/definitions?token=phc_project_1", 0).await.expect(200);
    get_at(&app, Keys::READ_FLAGS, FLAGS, 0).await.expect(200);
}

#[tokio::test]
async fn the_hour_is_limited_too() {
    let app = with(2, 3).await;
    for minute in 0..3 {
        get_at(&app, Keys::OWNER, FLAGS, 120 * minute).await.expect(200);
    }
    get_at(&app, Keys::OWNER, FLAGS, 600).await.expect(429);
}

#[tokio::test]
async fn definitions_have_a_limit_of_their_own() {
    let app = TestApp::new().await.limited(Rates { definitions: 2, ..Rates::default() });
    let definitions = "/api/projects/1/feature_flags/local_evaluation/";
    for second in 0..2 {
        get_at(&app, Keys::OWNER, definitions, second).await.expect(200);
    }
    let refused = get_at(&app, Keys::OWNER, definitions, 2).await.expect(429);
    assert_eq!((&refused["type"], &refused["code"]), (&json!("throttled_error"), &json!("throttled")));
    get_at(&app, Keys::OWNER, FLAGS, 2).await.expect(200);
}

#[tokio::test]
async fn the_limit_is_checked_after_authorization_and_before_the_handler() {
    let app = with(1, 100).await;
    get_at(&app, Keys::NO_SCOPES, FLAGS, 0).await.expect(403);
    get_at(&app, Keys::NO_SCOPES, FLAGS, 0).await.expect(403);
    for path in ["/api/projects/", "/api/organizations/", "/api/organizations/@current/", "/api/users/@me/"] {
        get_at(&app, Keys::NO_SCOPES, path, 0).await.expect(403);
    }
    get_at(&app, Keys::OWNER, FLAGS, 0).await.expect(200);
    get_at(&app, Keys::OWNER, &format!("{FLAGS}999/"), 0).await.expect(429);
    let unknown = app.call(Keys::OWNER, "DELETE", FLAGS, Value::Null).await;
    assert_eq!(unknown.status, StatusCode::TOO_MANY_REQUESTS);
    get_at(&app, "phx_unknown", FLAGS, 0).await.expect(401);
}

#[tokio::test]
async fn nothing_is_counted_while_it_is_off() {
    let app = TestApp::new().await;
    get_at(&app, Keys::OWNER, FLAGS, 0).await.expect(200);
    app.round_trips.reset();
    get_at(&app, Keys::OWNER, FLAGS, 0).await.expect(200);
    assert!(app.round_trips.calls().iter().all(|call| call.operation != "UpdateItem"));
}

#[tokio::test]
async fn concurrent_calls_are_limited_too() {
    let app = with(5, 100).await;
    let calls = (0..20).map(|_| get_at(&app, Keys::OWNER, FLAGS, 0));
    let responses = futures::future::join_all(calls).await;
    assert_eq!(responses.iter().filter(|response| response.status == StatusCode::OK).count(), 5);
    assert!(responses.iter().all(|response| matches!(response.status.as_u16(), 200 | 429)));
}
