//! API keys: their use is recorded, they are revoked, and cached keys are verified on each request.

use axum::body::Body;
use chrono::{DateTime, Utc};
use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_core::auth::{delete_key, hash_key};
use pennon_core::store::keys;
use pennon_tests::{Keys, NOW, TestApp, TestResponse};
use serde_json::{Value, json};

const CURRENT: &str = "/api/personal_api_keys/@current/";
const FLAGS: &str = "/api/projects/1/feature_flags/";

/// GET as the owner at `instant`.
async fn at(app: &TestApp, instant: &str, path: &str) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, "GET", path, Value::Null);
    request.headers_mut().insert("x-pennon-now", instant.parse().unwrap());
    app.send(request).await
}

/// The DynamoDB operations in the background since the last reset.
async fn aside(app: &TestApp) -> Vec<String> {
    app.services.app.keys.wait_for_background_writes().await;
    app.round_trips.background_calls().into_iter().map(|call| call.operation).collect()
}

#[tokio::test]
async fn the_use_of_a_key_is_recorded_once_an_hour_in_the_background() {
    let app = TestApp::new().await;
    assert_eq!(at(&app, "2026-01-05T10:00:00Z", CURRENT).await.expect(200)["last_used_at"], Value::Null);
    assert_eq!(app.round_trips.sequential(), 1, "no response waits for the note");
    assert_eq!(aside(&app).await, ["UpdateItem"]);

    app.round_trips.reset();
    for instant in ["2026-01-05T10:00:01Z", "2026-01-05T10:59:59Z"] {
        app.services.app.keys.clear();
        let shown = at(&app, instant, CURRENT).await.expect(200);
        assert_eq!(shown["last_used_at"], "2026-01-05T10:00:00Z");
    }
    assert_eq!(aside(&app).await, [""; 0]);

    app.services.app.keys.clear();
    at(&app, "2026-01-05T11:00:00Z", FLAGS).await.expect(200);
    assert_eq!(aside(&app).await, ["UpdateItem"]);
    app.services.app.keys.clear();
    let shown = at(&app, "2026-01-05T11:00:05Z", CURRENT).await.expect(200);
    assert_eq!(shown["last_used_at"], "2026-01-05T11:00:00Z");
}

#[tokio::test]
async fn the_use_of_unknown_and_revoked_keys_is_not_recorded() {
    let app = TestApp::with(json!({"keys": [{"label": "old", "user": "owner@example.com", "scopes": ["*"],
        "value": "phx_expired_key_0123456789", "expires_at": "2026-01-05T09:00:00Z"}]}))
    .await;
    for key in ["phx_unknown", "phx_expired_key_0123456789"] {
        app.call(key, "GET", FLAGS, Value::Null).await.expect(401);
    }
    assert_eq!(aside(&app).await, [""; 0]);
}

#[tokio::test]
async fn a_revoked_key_is_rejected_and_its_use_does_not_restore_it() {
    let app = TestApp::new().await;
    app.get(FLAGS).await.expect(200);
    app.services.app.keys.wait_for_background_writes().await;
    let records = &app.services.app.store.records;
    let hash = hash_key(Keys::OWNER);
    delete_key(records, &hash).await.unwrap();
    // A use that is recorded after the key was revoked writes nothing.
    assert!(!records.advance(&keys::api_key(&hash), 2_000_000_000, 1_999_999_999).await.unwrap());
    assert_eq!(records.get(&keys::api_key(&hash)).await.unwrap(), None);
    app.services.app.keys.clear();
    app.get(FLAGS).await.expect(401);
}

#[tokio::test]
async fn applying_a_workspace_keeps_when_a_key_was_used() {
    let app = TestApp::new().await;
    app.get(CURRENT).await.expect(200);
    app.services.app.keys.wait_for_background_writes().await;
    let now: DateTime<Utc> = NOW.parse().unwrap();
    let changed = json!({"users": [{"id": 1, "email": "owner@example.com", "first_name": "Olivia",
        "memberships": [{"organization": "01900000-0000-7000-8000-000000000001", "level": "owner"}]}]});
    let file = Workspace::parse(&changed.to_string()).unwrap();
    apply(&app.services.app.store.records, &file, ApplyOptions::default(), now).await.unwrap();
    app.services.app.keys.clear();
    assert_eq!(app.get("/api/users/@me/").await.expect(200)["first_name"], "Olivia");
    assert_eq!(app.get(CURRENT).await.expect(200)["last_used_at"], "2026-01-05T10:00:00Z");
}

#[tokio::test]
async fn a_cached_project_is_read_with_the_key_and_verified() {
    let app = TestApp::new().await;
    let trips = async |key: &str, path: &str| {
        app.services.app.keys.clear();
        app.round_trips.reset();
        let id = app.call(key, "GET", path, Value::Null).await.expect(200)["id"].as_u64().unwrap();
        (id, app.round_trips.sequential())
    };
    let by_token = "/api/projects/1/?token=phc_project_2";
    assert_eq!(trips(Keys::OWNER, by_token).await, (2, 2));
    assert_eq!(trips(Keys::OWNER, by_token).await, (2, 1));
    let current = "/api/projects/@current/";
    assert_eq!(trips(Keys::OWNER, current).await, (1, 3));
    assert_eq!(trips(Keys::OWNER, current).await, (1, 1));
    assert_eq!(trips(Keys::ONLY_SECOND, current).await, (2, 2));
    assert_eq!(trips(Keys::ONLY_SECOND, current).await, (2, 1));

    // The token moves to another project, and a lower project appears.
    let org = "01900000-0000-7000-8000-000000000001";
    let changed = json!({"projects": [
        {"id": "2", "organization": org, "name": "Blog", "token": "phc_new"},
        {"id": "3", "organization": org, "name": "Third", "token": "phc_project_2"},
        {"id": "0", "organization": org, "name": "Zero", "token": "phc_zero"},
    ]});
    let file = Workspace::parse(&changed.to_string()).unwrap();
    let now: DateTime<Utc> = NOW.parse().unwrap();
    apply(&app.services.app.store.records, &file, ApplyOptions::default(), now).await.unwrap();
    assert_eq!(trips(Keys::OWNER, by_token).await, (3, 2));
    assert_eq!(trips(Keys::OWNER, by_token).await, (3, 1));
    assert_eq!(trips(Keys::OWNER, current).await, (0, 2));
    assert_eq!(trips(Keys::OWNER, current).await, (0, 1));
}

#[tokio::test]
async fn a_token_cached_for_one_key_gives_no_access_to_another() {
    let app = TestApp::new().await;
    let path = "/api/projects/1/?token=phc_project_9";
    app.call(Keys::STRANGER, "GET", path, Value::Null).await.expect(200);
    let refused = app.call(Keys::OWNER, "GET", path, Value::Null).await;
    let detail = "You don't have access to the project.";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    let request = TestApp::request("phx_unknown", "GET", path, Value::Null).map(|_: Body| Body::empty());
    app.send(request).await.expect(401);
}

/// A project has one token. The previous one works as long as the cache of tokens, and no longer.
#[tokio::test]
async fn a_replaced_project_token_is_refused_when_its_cache_has_expired() {
    let app = TestApp::new().await;
    let send = async |token: &str| {
        let event = json!({"event": "a", "distinct_id": "ann"});
        let captured = app.call("", "POST", "/batch/", json!({"api_key": token, "batch": [event]})).await;
        let evaluated =
            app.call("", "POST", "/flags/?v=2", json!({"token": token, "distinct_id": "ann"})).await;
        [captured.status.as_u16(), evaluated.status.as_u16()]
    };
    assert_eq!(send("phc_project_2").await, [200, 200]);
    let org = "01900000-0000-7000-8000-000000000001";
    let changed = json!({"projects": [{"id": "2", "organization": org, "name": "Blog", "token": "phc_new"}]});
    let file = Workspace::parse(&changed.to_string()).unwrap();
    let now: DateTime<Utc> = NOW.parse().unwrap();
    apply(&app.services.app.store.records, &file, ApplyOptions::default(), now).await.unwrap();
    app.services.app.tokens.expire();
    assert_eq!(send("phc_project_2").await, [401, 401]);
    assert_eq!(send("phc_new").await, [200, 200]);
}
