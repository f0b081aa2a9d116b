//! The requests of existing tools for flags, projects and keys, in their order and spelling.

use axum::body::Body;
use axum::http::{Request, header};
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const ORG: &str = "01900000-0000-7000-8000-000000000001";

/// A request as the owner, always with a JSON content type, also on a GET.
async fn send(app: &TestApp, method: &str, path: &str, body: Value) -> TestResponse {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    with_type(app, method, path, "application/json", text).await
}

async fn with_type(app: &TestApp, method: &str, path: &str, kind: &str, body: String) -> TestResponse {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "flags.example.com")
        .header("x-forwarded-proto", "https")
        .header(header::AUTHORIZATION, format!("Bearer {}", Keys::OWNER))
        .header(header::CONTENT_TYPE, kind)
        .header("x-posthog-client", "an unknown header");
    app.send(request.body(Body::from(body)).unwrap()).await
}

/// The path and query of an absolute link.
fn path_of(link: &Value) -> String {
    let link = link.as_str().unwrap();
    link.strip_prefix("https://flags.example.com").unwrap_or_else(|| panic!("{link}")).to_owned()
}

/// Whether `record` has each field of `sent`, objects by their fields, lists whole.
fn holds(record: &Value, sent: &Value) -> bool {
    match (record, sent) {
        (Value::Object(record), Value::Object(sent)) => {
            sent.iter().all(|(name, value)| record.get(name).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(record), Value::Array(sent)) => {
            record.len() == sent.len() && record.iter().zip(sent).all(|(a, b)| holds(a, b))
        }
        _ => record == sent,
    }
}

#[tokio::test]
async fn terraform_creates_changes_deletes_and_restores() {
    let app = TestApp::new().await;
    let list = "/api/projects/1/feature_flags/";
    let required = json!({"key": "tf", "name": "", "active": true, "deleted": false, "tags": ["b", "a"],
        "ensure_experience_continuity": false, "filters": {"groups": [
            {"properties": [{"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}],
             "rollout_percentage": 34, "variant": null},
            {"properties": [], "rollout_percentage": 5}]}});
    let made = send(&app, "POST", list, required.clone()).await.expect(201);
    let one = format!("{list}{}/", made["id"]);
    let read = send(&app, "GET", &one, Value::Null).await;
    let record = read.expect(200);
    let mut expected = required.clone();
    expected["tags"] = json!(["a", "b"]);
    assert!(holds(&record, &expected), "{record}");
    assert!(read.text.contains("\"rollout_percentage\":34,") && !read.text.contains("34.0"), "an integer");
    assert_eq!(record["rollout_percentage"], Value::Null);

    let changed = json!({"key": "tf", "name": "named", "active": false, "tags": [],
        "filters": {"groups": [{"properties": [], "rollout_percentage": 33}]}});
    assert!(holds(&send(&app, "PATCH", &one, changed.clone()).await.expect(200), &changed));
    let record = send(&app, "GET", &one, Value::Null).await.expect(200);
    assert!(holds(&record, &changed));
    assert_eq!(record["rollout_percentage"], 33);

    assert_eq!(send(&app, "GET", &one, Value::Null).await.expect(200)["deleted"], false);
    let deleted = send(&app, "PATCH", &one, json!({"key": "tf", "deleted": true})).await;
    assert_eq!(deleted.expect(200)["deleted"], true);
    assert_eq!(send(&app, "GET", &one, Value::Null).await.expect(200)["deleted"], true);
    assert_eq!(send(&app, "GET", list, Value::Null).await.expect(200)["results"], json!([]));
    let restored = json!({"key": "tf", "deleted": false, "name": "back", "active": true});
    assert!(holds(&send(&app, "PATCH", &one, restored.clone()).await.expect(200), &restored));
    assert_eq!(send(&app, "GET", list, Value::Null).await.expect(200)["count"], 1);

    let other = send(&app, "POST", list, json!({"key": "tf"})).await;
    other.expect_invalid("unique", "There is already a feature flag with this key.", Some("key"));
    let missing = send(&app, "GET", &format!("{list}999/"), Value::Null).await;
    missing.expect_error(404, "invalid_request", "not_found", "Not found.", None);
}

#[tokio::test]
async fn next_is_followed_literally_to_the_end_and_previous_back() {
    let app = TestApp::new().await;
    for n in 0..5 {
        app.flag(&format!("flag-{n}")).await;
    }
    for start in [
        "/api/projects/1/feature_flags/?limit=2&search=flag&active=true",
        "/api/projects/1/feature_flags?search=flag&limit=2",
        "/api/environments/1/feature_flags/?limit=2",
    ] {
        let mut seen = Vec::new();
        let mut page = send(&app, "GET", start, Value::Null).await.expect(200);
        loop {
            let ids = page["results"].as_array().unwrap().iter().map(|flag| flag["id"].clone());
            seen.extend(ids);
            if page["next"].is_null() {
                break;
            }
            let next = path_of(&page["next"]);
            let (path, _) = start.split_once('?').unwrap();
            assert!(next.starts_with(&format!("{path}?")), "{next} keeps the spelling of {start}");
            page = send(&app, "GET", &next, Value::Null).await.expect(200);
        }
        let mut distinct = seen.clone();
        distinct.sort_by_key(|id| id.as_u64());
        distinct.dedup();
        assert_eq!((seen.len(), distinct.len()), (5, 5), "{start}");
        let back = send(&app, "GET", &path_of(&page["previous"]), Value::Null).await.expect(200);
        assert_eq!(back["results"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn the_agent_toolkit_finds_its_way_from_the_key_to_a_flag() {
    let app = TestApp::new().await;
    let key = send(&app, "GET", "/api/personal_api_keys/@current", Value::Null).await.expect(200);
    assert_eq!((&key["scopes"], &key["scoped_teams"]), (&json!(["*"]), &json!([])));
    assert_eq!(key["scoped_organizations"], json!([]));
    assert_eq!((&key["label"], &key["mask_value"]), (&json!("owner"), &json!("phx_...3456")));
    let me = send(&app, "GET", "/api/users/@me/", Value::Null).await.expect(200);
    assert_eq!((&me["distinct_id"], &me["email"]), (&json!("user-1"), &json!("owner@example.com")));
    assert_eq!((&me["organization"]["id"], &me["organizations"][0]["id"]), (&json!(ORG), &json!(ORG)));
    assert_eq!((&me["team"]["id"], &me["team"]["organization"]), (&json!(1), &json!(ORG)));
    let organizations = send(&app, "GET", "/api/organizations/", Value::Null).await.expect(200);
    let organization = &organizations["results"][0];
    assert_eq!(
        (&organization["id"], &organization["name"], &organization["slug"]),
        (&json!(ORG), &json!("Acme"), &json!("acme"))
    );
    for path in ["/api/organizations/@current/", &format!("/api/organizations/{ORG}")] {
        assert_eq!(&send(&app, "GET", path, Value::Null).await.expect(200), organization, "{path}");
    }
    let projects = send(&app, "GET", &format!("/api/organizations/{ORG}/projects/"), Value::Null).await;
    assert_eq!(projects.expect(200)["results"][1]["name"], "Blog");

    let created = json!({"key": "mcp", "name": "By the toolkit", "description": "unknown here", "active": true,
        "filters": {"groups": [{}]}, "tags": ["ai"], "_create_in_folder": "Unfiled"});
    let flag = send(&app, "POST", "/api/projects/1/feature_flags/", created).await.expect(201);
    assert!(flag["id"].is_u64() && flag["name"] == "By the toolkit" && flag["active"] == true);
    assert_eq!((&flag["tags"], &flag["filters"]), (&json!(["ai"]), &json!({"groups": [{}]})));
    let found = send(&app, "GET", "/api/projects/@current/feature_flags/?search=toolkit", Value::Null).await;
    assert_eq!(found.expect(200)["results"][0]["key"], "mcp");
    let one = format!("/api/environments/1/feature_flags/{}/", flag["id"]);
    assert_eq!(send(&app, "PATCH", &one, json!({"active": false})).await.expect(200)["active"], false);
    assert_eq!(send(&app, "PATCH", &one, json!({"deleted": true})).await.expect(200)["status"], "DELETED");
    let taken = json!({"key": "not a key"});
    let refused = send(&app, "POST", "/api/projects/1/feature_flags/", taken).await.expect(400);
    assert_eq!((&refused["type"], &refused["code"]), (&json!("validation_error"), &json!("invalid_key")));
}

/// The fields that tools read of a project, wherever it is shown.
#[tokio::test]
async fn a_project_has_the_fields_that_tools_read() {
    let app = TestApp::new().await;
    let listed = send(&app, "GET", "/api/projects?limit=100", Value::Null).await.expect(200);
    assert_eq!((&listed["count"], &listed["next"]), (&json!(2), &Value::Null));
    let in_list = listed["results"][0].clone();
    let alone = send(&app, "GET", "/api/projects/1/", Value::Null).await.expect(200);
    let current = send(&app, "GET", "/api/environments/@current", Value::Null).await.expect(200);
    let of_organization = format!("/api/organizations/{ORG}/projects/1/");
    let of_organization = send(&app, "GET", &of_organization, Value::Null).await.expect(200);
    for project in [&in_list, &alone, &current, &of_organization] {
        assert!(project["uuid"].as_str().is_some_and(|uuid| uuid.len() == 36), "{project}");
        let expected = json!({"id": 1, "organization": ORG, "project_id": 1, "api_token": "phc_project_1",
            "name": "Shop", "timezone": "UTC", "ingested_event": false, "is_demo": false,
            "completed_snippet_onboarding": false, "has_completed_onboarding_for": null, "access_control": false,
            "effective_membership_level": 15});
        assert!(holds(project, &expected), "{project}");
    }
    let more = json!({"app_urls": [], "anonymize_ips": false, "test_account_filters": [],
        "test_account_filters_default_checked": null, "week_start_day": null, "user_access_level": "admin",
        "session_recording_opt_in": false, "autocapture_opt_out": null, "created_at": "2026-01-05T10:00:00Z",
        "updated_at": "2026-01-05T10:00:00Z", "group_types": [
            {"group_type": "organization", "group_type_index": 0, "name_singular": null, "name_plural": null},
            {"group_type": "company", "group_type_index": 1, "name_singular": null, "name_plural": null}]});
    assert!(holds(&alone, &more), "{alone}");
    let member = app.call(Keys::MEMBER, "GET", "/api/projects/1", Value::Null).await.expect(200);
    assert_eq!(
        (&member["effective_membership_level"], &member["user_access_level"]),
        (&json!(1), &json!("member"))
    );
}

#[tokio::test]
async fn a_source_reads_pages_of_a_hundred_by_their_offset() {
    let app = TestApp::new().await;
    for n in 0..3 {
        app.flag(&format!("flag-{n}")).await;
    }
    let page = async |offset: usize| {
        let path = format!("/api/projects/1/feature_flags?limit=100&offset={offset}");
        send(&app, "GET", &path, Value::Null).await.expect(200)["results"].clone()
    };
    let first = page(0).await;
    assert_eq!(first.as_array().unwrap().len(), 3);
    let flag = &first[0];
    assert!(flag["created_at"].is_string() && flag["created_by"]["email"] == "owner@example.com");
    assert_eq!((&flag["rollout_percentage"], &flag["deleted"]), (&Value::Null, &json!(false)));
    assert_eq!(page(100).await, json!([]));
}

#[tokio::test]
async fn a_launcher_writes_without_trailing_slashes() {
    let app = TestApp::new().await;
    let body = json!({"key": "ray", "name": "Ray", "active": true, "filters": {"groups": []}});
    let refused = send(&app, "POST", "/api/projects/1/feature_flags", body).await;
    let detail = "Feature flags must have at least one condition set (group).";
    refused.expect_invalid("invalid_input", detail, Some("filters"));
    let body = json!({"key": "ray", "name": "Ray"});
    let flag = send(&app, "POST", "/api/projects/1/feature_flags", body).await.expect(201);
    let one = format!("/api/projects/1/feature_flags/{}", flag["id"]);
    let changed = send(&app, "PATCH", &one, json!({"active": false})).await.expect(200);
    assert_eq!((&changed["active"], &changed["version"]), (&json!(false), &json!(2)));
}

#[tokio::test]
async fn forms_are_read_and_leave_absent_booleans_alone() {
    let app = TestApp::new().await;
    let form = "application/x-www-form-urlencoded";
    let list = "/api/projects/1/feature_flags/";
    let made = with_type(&app, "POST", list, form, "key=formed&name=A+b%21&active=off".to_owned()).await;
    let flag = made.expect(201);
    assert_eq!((&flag["name"], &flag["active"]), (&json!("A b!"), &json!(false)));
    let one = format!("{list}{}/", flag["id"]);
    let renamed = with_type(&app, "PATCH", &one, form, "name=C".to_owned()).await.expect(200);
    assert_eq!((&renamed["name"], &renamed["active"]), (&json!("C"), &json!(false)));
    let multipart = "--x\r\nContent-Disposition: form-data; name=\"active\"\r\n\r\nYes\r\n--x--\r\n";
    let changed =
        with_type(&app, "PATCH", &one, "multipart/form-data; boundary=x", multipart.to_owned()).await;
    assert_eq!(changed.expect(200)["active"], true);
    let wrong = with_type(&app, "PATCH", &one, form, "active=perhaps".to_owned()).await;
    wrong.expect_invalid("invalid_input", "Must be a valid boolean.", Some("active"));
}

#[tokio::test]
async fn put_requires_the_key_and_allow_lists_the_methods() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let list = "/api/projects/1/feature_flags/";
    let one = format!("{list}{id}/");
    let without = send(&app, "PUT", &one, json!({"name": "x"})).await;
    without.expect_invalid("required", "This field is required.", Some("key"));
    let put = send(&app, "PUT", &one, json!({"key": "a", "name": "x"})).await.expect(200);
    assert_eq!((&put["name"], &put["version"]), (&json!("x"), &json!(2)));
    for (method, path, allow) in [
        ("TRACE", list, "GET, HEAD, OPTIONS, POST"),
        ("TRACE", &*one, "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("TRACE", "/api/projects/", "GET, HEAD, OPTIONS"),
        ("POST", "/api/users/@me/", "GET, HEAD, OPTIONS"),
        ("DELETE", "/api/personal_api_keys/@current/", "GET, HEAD, OPTIONS"),
        ("POST", &*one, "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
    ] {
        let refused = send(&app, method, path, Value::Null).await;
        let detail = format!("Method \"{method}\" not allowed.");
        refused.expect_error(405, "invalid_request", "method_not_allowed", &detail, None);
        assert_eq!(refused.header("allow"), allow, "{method} {path}");
    }
    let deleted = send(&app, "DELETE", &one, Value::Null).await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (405, ""));
    let anonymous = app.call("", "TRACE", list, Value::Null).await;
    assert_eq!(anonymous.status, 401, "a key is required first");
}
