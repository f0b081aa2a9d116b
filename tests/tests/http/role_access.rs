//! Role access over HTTP, and what it means for editing.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const ORG: &str = "01900000-0000-7000-8000-0000000000f0";
const VIEWERS: &str = "01900000-0000-7000-8000-0000000000f1";
const OWN: &str = "01900000-0000-7000-8000-0000000000e1";
const FOREIGN: &str = "01900000-0000-7000-8000-0000000000e2";

/// An organization that may only view flags: Ann owns it, Bob is a member with a role of level 21.
async fn restricted() -> (TestApp, u64) {
    let app = TestApp::with(json!({
        "organizations": [{"id": ORG, "name": "Closed", "feature_flags_access_level": 21}],
        "users": [
            {"id": 11, "email": "ann@example.com", "memberships": [{"organization": ORG, "level": "owner"}]},
            {"id": 12, "email": "bob@example.com", "memberships": [{"organization": ORG, "level": "member"}]},
        ],
        "projects": [{"id": "5", "organization": ORG, "name": "Closed", "token": "phc_closed"}],
        "roles": [{"id": VIEWERS, "organization": ORG, "name": "Viewers", "feature_flags_access_level": 21,
                   "members": ["bob@example.com"]}],
        "keys": [
            {"label": "ann", "user": "ann@example.com", "scopes": ["*"], "value": "phx_ann_key_0123456789"},
            {"label": "bob", "user": "bob@example.com", "scopes": ["*"], "value": "phx_bob_key_0123456789"},
        ],
    }))
    .await;
    let made = app
        .call("phx_ann_key_0123456789", "POST", "/api/projects/5/feature_flags/", json!({"key": "a"}))
        .await;
    let id = made.expect(201)["id"].as_u64().unwrap();
    (app, id)
}

const ANN: &str = "phx_ann_key_0123456789";
const BOB: &str = "phx_bob_key_0123456789";

#[tokio::test]
async fn a_role_access_allows_editing_a_flag_until_it_is_removed() {
    let (app, flag) = restricted().await;
    let path = format!("/api/projects/5/feature_flags/{flag}/");
    let accesses = format!("{path}role_access/");
    let closed = app.call(BOB, "PATCH", &path, json!({"name": "x"})).await;
    let detail = "You don't have edit permissions for this feature flag.";
    closed.expect_error(403, "authentication_error", "permission_denied", detail, None);
    let shown = app.call(BOB, "GET", &path, Value::Null).await.expect(200);
    assert_eq!((&shown["can_edit"], &shown["user_access_level"]), (&json!(false), &json!("viewer")));
    let forbidden = app.call(BOB, "POST", &accesses, json!({"role_id": VIEWERS})).await;
    let detail = "You can't edit roles for this feature flag.";
    forbidden.expect_error(403, "authentication_error", "permission_denied", detail, None);

    let made = app.call(ANN, "POST", &accesses, json!({"role_id": VIEWERS})).await.expect(201);
    assert_eq!((&made["feature_flag"]["id"], &made["role"]["name"]), (&json!(flag), &json!("Viewers")));
    assert_eq!(made["role"]["members"][0]["user"]["email"], "bob@example.com");
    assert!(made.get("role_id").is_none());
    let twice = app.call(ANN, "POST", &accesses, json!({"role_id": VIEWERS})).await;
    twice.expect_invalid("unique", "The fields role, feature_flag must make a unique set.", None);
    assert_eq!(app.call(BOB, "PATCH", &path, json!({"name": "x"})).await.expect(200)["can_edit"], true);

    let one = format!("{accesses}{}/", made["id"]);
    assert_eq!(app.call(BOB, "GET", &one, Value::Null).await.expect(200)["id"], made["id"]);
    let list = app.call(BOB, "GET", &accesses, Value::Null).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["id"]), (&json!(1), &made["id"]));
    // The 404 of a missing record comes before the 403 of the removal.
    assert_eq!(app.call(BOB, "DELETE", &format!("{accesses}999999/"), Value::Null).await.status, 404);
    assert_eq!(app.call(BOB, "DELETE", &one, Value::Null).await.status, 403);
    let gone = app.call(ANN, "DELETE", &one, Value::Null).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (204, ""));
    assert_eq!(app.call(ANN, "DELETE", &one, Value::Null).await.status, 404);
    assert_eq!(app.call(BOB, "PATCH", &path, json!({"name": "y"})).await.status, 403);
    assert_eq!(app.call(ANN, "POST", &accesses, json!({"role_id": VIEWERS})).await.status, 201);
}

#[tokio::test]
async fn bad_roles_and_unknown_flags() {
    let role = |id: &str, organization: &str| json!({"id": id, "organization": organization, "name": id});
    let roles = [
        role(OWN, "01900000-0000-7000-8000-000000000001"),
        role(FOREIGN, "01900000-0000-7000-8000-000000000002"),
    ];
    let app = TestApp::with(json!({"roles": roles})).await;
    let flag = app.flag("a").await;
    let accesses = format!("/api/projects/1/feature_flags/{flag}/role_access/");
    let refused = async |body: Value| app.post(&accesses, body).await;
    let attr = Some("role_id");
    refused(json!({})).await.expect_invalid("required", "This field is required.", attr);
    refused(json!({"role_id": null})).await.expect_invalid("null", "This field may not be null.", attr);
    let detail = "\u{201c}abc\u{201d} is not a valid UUID.";
    refused(json!({"role_id": "abc"})).await.expect_invalid("invalid_input", detail, attr);
    let detail = format!("Invalid pk \"{VIEWERS}\" - object does not exist.");
    refused(json!({"role_id": VIEWERS})).await.expect_invalid("does_not_exist", &detail, attr);
    // A role of another organization is as unknown as one that does not exist.
    let detail = format!("Invalid pk \"{FOREIGN}\" - object does not exist.");
    refused(json!({"role_id": FOREIGN})).await.expect_invalid("does_not_exist", &detail, attr);
    refused(json!({"role_id": OWN.to_uppercase()})).await.expect(201);
    let twice = refused(json!({"role_id": OWN})).await;
    twice.expect_invalid("unique", "The fields role, feature_flag must make a unique set.", None);
    assert_eq!(app.get(&accesses).await.expect(200)["count"], 1);
    let unknown = "/api/projects/1/feature_flags/999/role_access/";
    assert_eq!(app.get(unknown).await.expect(200)["results"], json!([]));
    let missing = app.post(unknown, json!({"role_id": VIEWERS})).await;
    missing.expect_error(404, "invalid_request", "not_found", "Feature flag not found.", None);
    assert_eq!(app.call(Keys::OWNER, "PATCH", &format!("{accesses}1/"), json!({})).await.status, 405);
}

/// Each record of the page repeats the flag, so that a page of a large flag can exceed the maximum response.
#[tokio::test]
async fn a_page_that_is_too_large_is_rejected_with_the_largest_possible_limit() {
    let id = |number: u32| format!("01900000-0000-7000-8000-{number:012}");
    let roles: Vec<Value> = (0..40)
        .map(|number| {
            json!({"id": id(number), "organization": "01900000-0000-7000-8000-000000000001", "name": "r"})
        })
        .collect();
    let app = TestApp::with(json!({"roles": roles})).await;
    let flag = app.flag("large").await;
    let path = format!("/api/projects/1/feature_flags/{flag}/");
    let filters = json!({"groups": [{}], "x": "x".repeat(250_000)});
    app.patch(&path, json!({"filters": filters})).await.expect(200);
    for number in 0..40 {
        app.post(&format!("{path}role_access/"), json!({"role_id": id(number)})).await.expect(201);
    }
    let refused = app.get(&format!("{path}role_access/")).await.expect(400);
    assert_eq!((&refused["code"], &refused["attr"]), (&json!("invalid_input"), &json!("limit")));
    let detail = refused["detail"].as_str().unwrap();
    let fits: usize = detail.split(' ').next_back().unwrap().trim_end_matches('.').parse().unwrap();
    let page = app.get(&format!("{path}role_access/?limit={fits}")).await.expect(200);
    assert_eq!((page["results"].as_array().unwrap().len(), &page["count"]), (fits, &json!(40)));
    assert_eq!(app.get(&format!("{path}role_access/?limit={}", fits + 1)).await.status, 400);
}
