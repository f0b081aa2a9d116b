//! The API keys of a user over HTTP: created, listed, changed and revoked; who may do so; every refusal.

use chrono::{DateTime, Utc};
use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_tests::{Keys, NOW, TestApp};
use serde_json::{Value, json};

const KEYS: &str = "/api/personal_api_keys/";
const ORGANIZATION: &str = "01900000-0000-7000-8000-000000000001";
/// A key of Olive's that expires after the present of the tests.
const EXPIRING: &str = "phx_expiring_0123456789012345678901234567890123";

fn one(key: &Value) -> String {
    format!("{KEYS}{}/", key["id"].as_str().unwrap())
}

async fn create(app: &TestApp, body: Value) -> Value {
    app.post(KEYS, body).await.expect(201)
}

async fn labels(app: &TestApp) -> Vec<Value> {
    let list = app.get(KEYS).await.expect(200);
    list.as_array().unwrap().iter().map(|key| key["label"].clone()).collect()
}

#[tokio::test]
async fn a_created_key_works_at_once_and_its_secret_is_shown_once() {
    let app = TestApp::new().await;
    let body = json!({"label": " deploy ", "scopes": ["feature_flag:read", "feature_flag:read"], "scoped_teams": [2],
        "scoped_organizations": [ORGANIZATION], "expires_at": "2026-02-01T00:00:00Z"});
    let made = create(&app, body).await;
    let secret = made["value"].as_str().unwrap();
    assert!(secret.starts_with("phx_") && secret.len() > 40);
    assert_eq!(made["id"].as_str().unwrap().len(), 32);
    let expected = json!({
        "id": made["id"], "label": "deploy", "value": secret, "mask_value": made["mask_value"], "user_id": 1,
        "scopes": ["feature_flag:read"], "scoped_teams": [2], "scoped_organizations": [ORGANIZATION],
        "created_at": NOW, "last_used_at": null, "expires_at": "2026-02-01T00:00:00Z",
    });
    assert_eq!(made, expected);

    app.call(secret, "GET", "/api/projects/2/feature_flags/", Value::Null).await.expect(200);
    app.call(secret, "GET", "/api/projects/1/feature_flags/", Value::Null).await.expect(403);
    app.call(secret, "POST", "/api/projects/2/feature_flags/", json!({"key": "a"})).await.expect(403);
    app.services.app.keys.wait_for_background_writes().await;

    let mut listed = expected;
    listed["value"] = Value::Null;
    listed["last_used_at"] = NOW.into();
    assert_eq!(app.get(&one(&made)).await.expect(200), listed);
    let list = app.get(KEYS).await.expect(200);
    assert!(list.as_array().unwrap().contains(&listed), "{list}");
    assert!(!list.to_string().contains(secret));
    assert_eq!(list.as_array().unwrap().len(), 5, "Olive's keys, and not those of others");
}

#[tokio::test]
async fn a_key_is_changed_field_by_field_and_keeps_the_time_of_its_use() {
    let app = TestApp::new().await;
    let made = create(&app, json!({"label": "a", "scopes": ["*"]})).await;
    let secret = made["value"].as_str().unwrap();
    app.call(secret, "GET", "/api/projects/1/feature_flags/", Value::Null).await.expect(200);
    app.services.app.keys.wait_for_background_writes().await;
    let changed = app.patch(&one(&made), json!({"scopes": ["feature_flag:read"], "scoped_teams": [1]})).await;
    let changed = changed.expect(200);
    assert_eq!((&changed["label"], &changed["scopes"]), (&json!("a"), &json!(["feature_flag:read"])));
    assert_eq!((&changed["scoped_teams"], &changed["last_used_at"]), (&json!([1]), &json!(NOW)));
    assert_eq!((&changed["value"], &changed["created_at"]), (&Value::Null, &made["created_at"]));
    app.services.app.keys.clear();
    app.call(secret, "POST", "/api/projects/1/feature_flags/", json!({"key": "x"})).await.expect(403);
    let unlimited =
        app.patch(&one(&made), json!({"scoped_teams": null, "expires_at": "2026-03-01T00:00:00Z"})).await;
    let unlimited = unlimited.expect(200);
    assert_eq!(
        (&unlimited["scoped_teams"], &unlimited["expires_at"]),
        (&json!([]), &json!("2026-03-01T00:00:00Z"))
    );
    let forever = app.patch(&one(&made), json!({"label": "b", "expires_at": null})).await.expect(200);
    assert_eq!((&forever["label"], &forever["expires_at"]), (&json!("b"), &Value::Null));
    assert_eq!(app.get(&one(&made)).await.expect(200), forever);
}

#[tokio::test]
async fn a_revoked_key_stops_working_and_a_key_may_revoke_itself() {
    let app = TestApp::new().await;
    let made = create(&app, json!({"label": "a", "scopes": ["*"]})).await;
    let secret = made["value"].as_str().unwrap();
    let gone = app.call(secret, "DELETE", &one(&made), Value::Null).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (204, ""));
    app.services.app.keys.clear();
    app.call(secret, "GET", KEYS, Value::Null).await.expect(401);
    for method in ["GET", "DELETE"] {
        app.call(Keys::OWNER, method, &one(&made), Value::Null).await.expect(404);
    }
    app.patch(&one(&made), json!({"label": "b"})).await.expect(404);
    assert!(!labels(&app).await.contains(&json!("a")));
}

/// Rotation with an overlap: both keys work until the first is revoked, in a process that has it cached until its cache expires.
#[tokio::test]
async fn a_key_is_rotated_without_a_gap() {
    let app = TestApp::new().await;
    let other = app.another_process();
    let flags = "/api/projects/1/feature_flags/";
    let scopes = json!({"scopes": ["feature_flag:read"], "scoped_teams": [1]});
    let key = async |label: &str| {
        let mut body = scopes.clone();
        body["label"] = json!(label);
        create(&app, body).await
    };
    let old = key("deploy").await;
    let old_secret = old["value"].as_str().unwrap();
    other.call(old_secret, "GET", flags, Value::Null).await.expect(200);
    let new = key("deploy 2").await;
    let new_secret = new["value"].as_str().unwrap();
    for process in [&app, &other] {
        for secret in [old_secret, new_secret] {
            process.call(secret, "GET", flags, Value::Null).await.expect(200);
        }
    }
    let revoked = app.call(Keys::OWNER, "DELETE", &one(&old), Value::Null).await;
    assert_eq!(revoked.status, 204);
    for process in [&app, &other] {
        process.services.app.keys.clear();
        process.call(old_secret, "GET", flags, Value::Null).await.expect(401);
        process.call(new_secret, "GET", flags, Value::Null).await.expect(200);
        process.call(new_secret, "GET", "/api/projects/2/feature_flags/", Value::Null).await.expect(403);
    }
}

/// The expiry is compared with each request's instant, also while the key is cached.
#[tokio::test]
async fn a_key_expires_at_its_time_although_it_is_cached() {
    let app = TestApp::new().await;
    let made =
        create(&app, json!({"label": "a", "scopes": ["*"], "expires_at": "2026-02-01T00:00:00Z"})).await;
    let secret = made["value"].as_str().unwrap();
    let at = async |instant: &str| {
        let mut request = TestApp::request(secret, "GET", "/api/projects/1/feature_flags/", Value::Null);
        request.headers_mut().insert("x-pennon-now", instant.parse().unwrap());
        app.send(request).await.status.as_u16()
    };
    assert_eq!(at("2026-01-31T23:59:59Z").await, 200);
    assert_eq!(at("2026-02-01T00:00:00Z").await, 401);
}

#[tokio::test]
async fn only_unlimited_keys_manage_keys_and_only_those_of_their_user() {
    let more = json!({"keys": [{"label": "one organization", "user": "owner@example.com", "scopes": ["*"],
        "organizations": [ORGANIZATION], "value": "phx_limited_0123456789"}]});
    let app = TestApp::with(more).await;
    let made = create(&app, json!({"label": "a", "scopes": ["*"]})).await;
    let body = json!({"label": "b", "scopes": ["*"]});
    let path = one(&made);
    for (key, detail) in [
        (Keys::READ_FLAGS, "API key missing required scope '*'"),
        (Keys::NO_SCOPES, "API key missing required scope '*'"),
        (Keys::ONLY_SECOND, "API keys with scoped projects are only supported on project-based endpoints."),
        ("phx_limited_0123456789", "API keys with scoped organizations cannot manage API keys."),
    ] {
        for (method, path) in
            [("GET", KEYS), ("POST", KEYS), ("GET", &path), ("PATCH", &path), ("DELETE", &path)]
        {
            let sent = if method == "GET" || method == "DELETE" { Value::Null } else { body.clone() };
            let refused = app.call(key, method, path, sent).await;
            refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
        }
    }
    for method in ["GET", "PATCH", "DELETE"] {
        let sent = if method == "PATCH" { body.clone() } else { Value::Null };
        app.call(Keys::MEMBER, method, &path, sent).await.expect(404);
    }
    app.call("", "GET", KEYS, Value::Null).await.expect(401);
    assert_eq!(app.get(&path).await.expect(200)["label"], "a");
}

#[tokio::test]
async fn a_key_outlives_nothing_that_created_it() {
    let more = json!({"keys": [{"label": "expiring", "user": "owner@example.com", "scopes": ["*"], "value": EXPIRING,
        "expires_at": "2026-01-06T00:00:00Z"}]});
    let app = TestApp::with(more).await;
    let detail = "No later than the expiry of the key that you use, 2026-01-06T00:00:00Z.";
    for end in [json!("2026-01-06T00:00:01Z"), Value::Null] {
        let body = json!({"label": "a", "scopes": ["*"], "expires_at": end});
        app.call(EXPIRING, "POST", KEYS, body).await.expect_invalid(
            "invalid_input",
            detail,
            Some("expires_at"),
        );
    }
    let made = app.call(EXPIRING, "POST", KEYS, json!({"label": "a", "scopes": ["*"]})).await.expect(201);
    assert_eq!(made["expires_at"], "2026-01-06T00:00:00Z");
    let longer = app.call(EXPIRING, "PATCH", &one(&made), json!({"expires_at": null})).await;
    longer.expect_invalid("invalid_input", detail, Some("expires_at"));
    let body = json!({"label": "b", "scopes": ["*"], "expires_at": "2026-01-06T00:00:00Z"});
    app.call(EXPIRING, "POST", KEYS, body).await.expect(201);
}

/// The list of keys without the time of their last use, which is written after the response of the request that uses one.
async fn keys_without_last_use(app: &TestApp) -> Value {
    let mut page = app.get(KEYS).await.expect(200);
    for key in page.as_array_mut().unwrap() {
        assert!(key.as_object_mut().unwrap().remove("last_used_at").is_some());
    }
    page
}

#[tokio::test]
async fn each_wrong_field_is_named_and_nothing_is_created() {
    let app = TestApp::new().await;
    let before = keys_without_last_use(&app).await;
    let all: Vec<String> = (0..101).map(|n| format!("a{}:read", "b".repeat(n))).collect();
    for (body, code, detail, attr) in [
        (json!({"scopes": ["*"]}), "required", "This field is required.", "label"),
        (json!({"label": " ", "scopes": ["*"]}), "blank", "This field may not be blank.", "label"),
        (
            json!({"label": "x".repeat(41), "scopes": ["*"]}),
            "max_length",
            "Ensure this field has no more than 40 characters.",
            "label",
        ),
        (json!({"label": "a"}), "required", "This field is required.", "scopes"),
        (json!({"label": "a", "scopes": null}), "null", "This field may not be null.", "scopes"),
        (json!({"label": "a", "scopes": []}), "empty", "A key needs at least one scope.", "scopes"),
        (
            json!({"label": "a", "scopes": ["flags"]}),
            "invalid_input",
            "Invalid scope: \"flags\". Use `object:read`, `object:write` or `*`.",
            "scopes",
        ),
        (
            json!({"label": "a", "scopes": all}),
            "max_length",
            "Ensure this field has no more than 100 elements.",
            "scopes",
        ),
        (
            json!({"label": "a", "scopes": ["*"], "scoped_teams": [9]}),
            "does_not_exist",
            "You have no access to a project with the ID 9.",
            "scoped_teams",
        ),
        (
            json!({"label": "a", "scopes": ["*"], "scoped_organizations": ["01900000-0000-7000-8000-000000000002"]}),
            "does_not_exist",
            "You are not a member of an organization with the ID 01900000-0000-7000-8000-000000000002.",
            "scoped_organizations",
        ),
        (
            json!({"label": "a", "scopes": ["*"], "expires_at": NOW}),
            "invalid_input",
            "The time of expiry has passed already.",
            "expires_at",
        ),
        (
            json!({"label": "owner", "scopes": ["*"]}),
            "unique",
            "You already have a key with this label.",
            "label",
        ),
    ] {
        app.post(KEYS, body).await.expect_invalid(code, detail, Some(attr));
    }
    let many: Vec<String> = all.into_iter().take(100).collect();
    assert_eq!(keys_without_last_use(&app).await, before);
    create(&app, json!({"label": "x".repeat(40), "scopes": many})).await;
}

#[tokio::test]
async fn a_user_has_at_most_a_hundred_keys_and_two_requests_no_key_of_the_same_label() {
    let app = TestApp::new().await;
    let same = json!({"label": "same", "scopes": ["*"]});
    let (first, second) = tokio::join!(app.post(KEYS, same.clone()), app.post(KEYS, same));
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 400]);
    for n in labels(&app).await.len()..100 {
        create(&app, json!({"label": format!("key {n}"), "scopes": ["*"]})).await;
    }
    let detail = "A user has at most 100 keys. Delete one that is not used any more.";
    let refused = app.post(KEYS, json!({"label": "one more", "scopes": ["*"]})).await;
    refused.expect_invalid("max_keys", detail, None);
    assert_eq!(labels(&app).await.len(), 100);
}

#[tokio::test]
async fn a_workspace_file_knows_the_keys_that_were_created_over_http() {
    let app = TestApp::new().await;
    let made = create(&app, json!({"label": "deploy", "scopes": ["*"], "scoped_teams": [1]})).await;
    let records = &app.services.app.store.records;
    let changed =
        json!({"keys": [{"label": "deploy", "user": "owner@example.com", "scopes": ["insight:read"]}]});
    let file = Workspace::parse(&changed.to_string()).unwrap();
    let now: DateTime<Utc> = NOW.parse().unwrap();
    let applied = apply(records, &file, ApplyOptions::default(), now).await.unwrap();
    assert_eq!(applied.plan, ["~ key \"deploy\" of owner@example.com"]);
    let shown = app.get(&one(&made)).await.expect(200);
    assert_eq!((&shown["scopes"], &shown["scoped_teams"]), (&json!(["insight:read"]), &json!([])));
    let listed = pennon::keys::list(records).await.unwrap();
    assert!(listed.iter().any(|key| key.label == "deploy"));
    assert_eq!(pennon::keys::revoke(records, "deploy").await.unwrap(), "deploy");
    app.get(&one(&made)).await.expect(404);
}
