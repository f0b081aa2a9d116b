//! Keys, scopes and projects: who has access, and the errors of all others.

use axum::body::Body;
use axum::http::Request;
use pennon_core::auth::{delete_key, hash_key};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

/// Every route that requires a key, with a matching path. Routes of tables have the same handlers as the routes
/// beside them.
fn guarded_routes() -> Vec<(String, String)> {
    let open = ["capture", "local", "reference"];
    pennon::api::function_routes()
        .into_iter()
        .filter(|route| {
            !open.contains(&route.group) && !is_open(&route.path) && !route.path.ends_with(".csv")
        })
        .map(|route| {
            let path = route
                .path
                .replace("{project_id}", "1")
                .replace("{organization_id}", "01900000-0000-7000-8000-000000000001")
                .replace("{feature_flag_id}", "1")
                .replace("{id}", "1")
                .replace("{key}", "a")
                .replace("{token}", "phc_project_1");
            (route.method, path)
        })
        .collect()
}

fn is_open(path: &str) -> bool {
    ["/batch", "/capture", "/e", "/i/v0/e", "/i/v1/analytics/events", "/flags", "/decide"].contains(&path)
        || ["/api/surveys", "/api/early_access_features"].contains(&path)
        || path.starts_with("/array/")
        || path.starts_with("/shared/")
        || path.starts_with("/embedded/")
        || path.starts_with("/ofrep/")
}

/// A key that has expired, one that was revoked after its use, and one that no user ever had.
const INVALID_KEYS: [&str; 3] = ["phx_expired_key_0123456789", "phx_revoked_key_0123456789", "phx_unknown"];

#[tokio::test]
async fn every_guarded_route_distinguishes_missing_and_wrong_keys() {
    let key = |label: &str, value: &str, end: Value| json!({"label": label, "user": "owner@example.com", "scopes": ["*"], "value": value, "expires_at": end});
    let [expired, revoked, _] = INVALID_KEYS;
    let keys = [key("a", expired, json!("2026-01-05T09:59:59Z")), key("b", revoked, Value::Null)];
    let app = TestApp::with(json!({"keys": keys})).await;
    app.call(revoked, "GET", "/api/users/@me/", Value::Null).await.expect(200);
    app.services.app.keys.wait_for_background_writes().await;
    delete_key(&app.services.app.store.records, &hash_key(revoked)).await.unwrap();
    app.services.app.keys.clear();
    let routes = guarded_routes();
    assert!(routes.len() >= 30, "{} routes", routes.len());
    for (method, path) in routes {
        for path in [format!("{path}/"), path] {
            let none = app.call("", &method, &path, Value::Null).await;
            assert_eq!(none.status, 401, "{method} {path}: {}", none.text);
            assert_eq!(none.json()["code"], "not_authenticated", "{method} {path}");
            assert_eq!(none.header("www-authenticate"), "Bearer");
            for key in INVALID_KEYS {
                let wrong = app.call(key, &method, &path, json!({})).await;
                wrong.expect_error(
                    401,
                    "authentication_error",
                    "authentication_failed",
                    "Personal API key found in request Authorization header is invalid.",
                    None,
                );
            }
        }
    }
}

#[tokio::test]
async fn every_project_route_rejects_other_users_and_keys_without_scope_or_project() {
    let app = TestApp::new().await;
    for (method, path) in guarded_routes() {
        if !path.starts_with("/api/projects/1") && !path.starts_with("/api/environments/1") {
            continue;
        }
        let stranger = app.call(Keys::STRANGER, &method, &path, json!({})).await;
        stranger.expect_error(
            403,
            "authentication_error",
            "permission_denied",
            "You don't have access to the project.",
            None,
        );
        let limited = app.call(Keys::ONLY_SECOND, &method, &path, json!({})).await;
        let detail = "API key does not have access to the requested project: ID 1.";
        limited.expect_error(403, "authentication_error", "permission_denied", detail, None);
        let weak = app.call(Keys::NO_SCOPES, &method, &path, json!({})).await.expect(403);
        let detail = weak["detail"].as_str().unwrap();
        assert!(detail.starts_with("API key missing required scope '"), "{method} {path}: {detail}");
        let unknown = path.replacen("/1", "/77", 1);
        let unknown = app.call(Keys::OWNER, &method, &unknown, json!({})).await;
        unknown.expect_error(404, "invalid_request", "not_found", "Project not found.", None);
    }
}

#[tokio::test]
async fn persons_are_readable_with_scopes_for_persons_or_insights() {
    let key = |scope: &str| format!("phx_{}_0123456789", scope.replace(':', "_"));
    let scopes =
        ["person:read", "person:write", "insight:read", "insight:write", "cohort:read", "query:read"];
    let keys = scopes.map(|scope| {
        json!({"label": scope, "user": "owner@example.com", "scopes": [scope], "projects": [], "value": key(scope)})
    });
    let app = TestApp::with(json!({"keys": keys})).await;
    let event = json!({"event": "seen", "distinct_id": "ann", "timestamp": "2026-01-04T01:00:00Z"});
    let sent = json!({"api_key": "phc_project_1", "batch": [event]});
    app.call("", "POST", "/batch/", sent).await.expect(200);
    let listed = app.get("/api/projects/1/persons/").await.expect(200);
    let ann = format!("/api/projects/1/persons/{}/", listed["results"][0]["id"].as_str().unwrap());
    let reads = [
        ("GET", "/api/projects/1/persons/".to_owned(), Value::Null),
        ("GET", ann, Value::Null),
        ("POST", "/api/projects/1/persons/funnel/".to_owned(), json!({})),
        ("GET", "/api/projects/1/persons/funnel/correlation/".to_owned(), Value::Null),
        ("GET", "/api/projects/1/persons/path/".to_owned(), Value::Null),
        ("POST", "/api/projects/1/persons/trends/".to_owned(), json!({"events": [{"id": "seen"}]})),
        ("POST", "/api/projects/1/persons/retention/".to_owned(), json!({"target_entity": {"id": "seen"}})),
        (
            "POST",
            "/api/projects/1/persons/stickiness/".to_owned(),
            json!({"events": [{"id": "seen"}], "stickiness_days": 1}),
        ),
        (
            "POST",
            "/api/projects/1/persons/lifecycle/".to_owned(),
            json!({"events": [{"id": "seen"}], "target_date": "2026-01-04", "lifecycle_type": "new"}),
        ),
        (
            "POST",
            "/api/projects/1/persons/flag_impact/".to_owned(),
            json!({"impact": {"flag": {"key": "f"}, "query": {"kind": "FunnelsQuery", "series": [{"event": "seen"}]}},
                   "variant": "test"}),
        ),
    ];
    for (method, path, body) in reads {
        let owned = app.call(Keys::OWNER, method, &path, body.clone()).await;
        assert_ne!(owned.status, 403, "{path}");
        for scope in scopes {
            let response = app.call(&key(scope), method, &path, body.clone()).await;
            if ["cohort:read", "query:read"].contains(&scope) {
                let detail = "API key missing required scope 'person:read'";
                response.expect_error(403, "authentication_error", "permission_denied", detail, None);
            } else {
                assert_eq!(
                    (response.status, response.text),
                    (owned.status, owned.text.clone()),
                    "{scope} {path}"
                );
            }
        }
    }
    // Numbers are not persons.
    let trend = json!({"events": [{"id": "seen"}]});
    let weak =
        app.call(&key("person:read"), "POST", "/api/projects/1/insights/trend/", trend).await.expect(403);
    assert_eq!(weak["detail"], "API key missing required scope 'insight:read'");
}

#[tokio::test]
async fn a_key_is_found_in_header_body_and_query_in_this_order() {
    let app = TestApp::new().await;
    let path = "/api/projects/1/feature_flags/";
    let in_query =
        app.call("", "GET", &format!("{path}?personal_api_key={}", Keys::OWNER), Value::Null).await;
    assert_eq!(in_query.status, 200);
    let in_body = app.call("", "POST", path, json!({"key": "a", "personal_api_key": Keys::OWNER})).await;
    assert_eq!(in_body.status, 201);
    let both =
        app.call("phx_wrong", "GET", &format!("{path}?personal_api_key={}", Keys::OWNER), Value::Null).await;
    assert_eq!(both.status, 401);
    let wrong =
        app.call("", "GET", &format!("{path}?personal_api_key=phx_wrong"), Value::Null).await.expect(401);
    assert_eq!(wrong["detail"], "Personal API key found in request query string is invalid.");
    let wrong = app.call("", "POST", path, json!({"personal_api_key": "phx_wrong"})).await.expect(401);
    assert_eq!(wrong["detail"], "Personal API key found in request body is invalid.");
}

#[tokio::test]
async fn the_project_segment_accepts_numbers_current_and_tokens() {
    let app = TestApp::new().await;
    let project = async |path: &str| app.get(path).await;
    assert_eq!(project("/api/projects/007/").await.status, 404);
    assert_eq!(project("/api/projects/001/").await.expect(200)["id"], 1);
    assert_eq!(project("/api/projects/@current/").await.expect(200)["id"], 1);
    assert_eq!(project("/api/environments/2").await.expect(200)["name"], "Blog");
    let only = app.call(Keys::ONLY_SECOND, "GET", "/api/projects/@current/", Value::Null).await;
    assert_eq!(only.expect(200)["id"], 2);
    assert_eq!(project("/api/projects/1/?token=phc_project_2").await.expect(200)["id"], 2);
    let unknown = project("/api/projects/1/?token=phc_unknown").await;
    let detail = "Incorrect authentication credentials.";
    unknown.expect_error(401, "authentication_error", "authentication_failed", detail, None);
    let long = "x".repeat(3000);
    assert_eq!(project(&format!("/api/projects/1/?token={long}")).await.status, 401);
    for odd in ["abc", "1.5", "-1", "99999999999999999999999"] {
        let response = project(&format!("/api/projects/{odd}/")).await;
        response.expect_error(404, "invalid_request", "not_found", "Project not found.", None);
    }
}

#[tokio::test]
async fn only_projects_of_the_key_are_listed() {
    let app = TestApp::new().await;
    let page = app.get("/api/projects/?limit=1").await.expect(200);
    assert_eq!(page["count"], 2);
    assert_eq!(page["results"][0]["api_token"], "phc_project_1");
    assert_eq!(page["next"], "http://api.test/api/projects/?limit=1&offset=1");
    let limited = app.call(Keys::ONLY_SECOND, "GET", "/api/projects/", Value::Null).await.expect(403);
    let detail = "API keys with scoped projects are only supported on project-based endpoints.";
    assert_eq!(limited["detail"], detail);
    let weak = app.call(Keys::READ_FLAGS, "GET", "/api/projects/1/", Value::Null).await.expect(403);
    assert_eq!(weak["detail"], "API key missing required scope 'project:read'");
    let me = app.get("/api/users/@me/").await.expect(200);
    assert_eq!((&me["email"], &me["team"]["id"]), (&json!("owner@example.com"), &json!(1)));
}

#[tokio::test]
async fn unknown_methods_and_paths() {
    let app = TestApp::new().await;
    let put = app.call(Keys::OWNER, "PUT", "/api/projects/1/feature_flags/", json!({})).await;
    put.expect_error(405, "invalid_request", "method_not_allowed", "Method \"PUT\" not allowed.", None);
    assert_eq!(put.header("allow"), "GET, HEAD, OPTIONS, POST");
    let options = app.call("", "OPTIONS", "/api/projects/1/feature_flags/", Value::Null).await;
    assert_eq!((options.status.as_u16(), options.text.as_str()), (204, ""));
    assert_eq!(options.header("access-control-allow-origin"), "*");
    let nowhere = app.get("/api/nowhere/").await;
    nowhere.expect_error(404, "invalid_request", "not_found", "Endpoint not found.", None);
    let head = app.call(Keys::OWNER, "HEAD", "/api/projects/1/feature_flags", Value::Null).await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
}

#[tokio::test]
async fn unreadable_bodies_are_rejected_and_nothing_is_written() {
    let app = TestApp::new().await;
    let send = |content_type: &'static str, body: Vec<u8>| {
        let request = Request::post("/api/projects/1/feature_flags/")
            .header("authorization", format!("Bearer {}", Keys::OWNER))
            .header("content-type", content_type);
        app.send(request.body(Body::from(body)).unwrap())
    };
    let malformed = send("application/json", b"{\"key\": ".to_vec()).await.expect(400);
    assert_eq!((&malformed["type"], &malformed["code"]), (&json!("invalid_request"), &json!("parse_error")));
    let list = send("application/json", b"[]".to_vec()).await;
    list.expect_invalid("invalid_input", "Invalid data. Expected a dictionary, but got list.", None);
    let foreign = send("text/plain", b"key=a".to_vec()).await;
    let detail = "Unsupported media type \"text/plain\" in request.";
    foreign.expect_error(415, "invalid_request", "unsupported_media_type", detail, None);
    let not_utf8 = send("application/json", b"{\"key\": \"\xff\"}".to_vec()).await;
    assert_eq!(not_utf8.expect(400)["code"], "parse_error");
    let limit = pennon_core::http::BODY_BYTES_MAX;
    let padded = |bytes: usize| {
        let mut body = b"{\"key\": \"fits\"}".to_vec();
        body.resize(bytes, b' ');
        body
    };
    let too_large = send("application/json", padded(limit + 1)).await;
    too_large.expect_error(413, "invalid_request", "payload_too_large", "Request body is too large.", None);
    assert_eq!(app.get("/api/projects/1/feature_flags/").await.expect(200)["count"], 0);
    assert_eq!(send("application/json", padded(limit)).await.status, 201);
    let form =
        send("application/x-www-form-urlencoded", b"key=by-form&active=false".to_vec()).await.expect(201);
    assert_eq!((&form["key"], &form["active"]), (&json!("by-form"), &json!(false)));
}
