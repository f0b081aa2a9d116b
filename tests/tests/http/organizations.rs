//! Members and roles of an organization, as the Terraform provider lists them.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const ACME: &str = "01900000-0000-7000-8000-000000000001";
const CLOSED: &str = "01900000-0000-7000-8000-0000000000f0";
const VIEWERS: &str = "01900000-0000-7000-8000-0000000000f1";
const EDITORS: &str = "01900000-0000-7000-8000-0000000000f2";
const ANN: &str = "phx_ann_key_0123456789";
const MEMBERS_ONLY: &str = "phx_members_key_0123456789";

/// An organization with three members, one of them inactive, and two roles.
async fn closed() -> TestApp {
    let user = |id: u64, name: &str, level: &str, is_active: bool| {
        json!({"id": id, "email": format!("{name}@example.com"), "first_name": name, "is_active": is_active,
               "memberships": [{"organization": CLOSED, "level": level}]})
    };
    let role = |id: &str, name: &str, level: u64, members: Value| {
        json!({"id": id, "organization": CLOSED, "name": name, "feature_flags_access_level": level,
               "members": members})
    };
    TestApp::with(json!({
        "organizations": [{"id": CLOSED, "name": "Closed"}],
        "users": [user(12, "bob", "member", true), user(11, "ann", "owner", true), user(13, "eve", "admin", false)],
        "projects": [{"id": "5", "organization": CLOSED, "name": "Closed", "token": "phc_closed"}],
        "roles": [role(VIEWERS, "Viewers", 21, json!(["bob@example.com"])), role(EDITORS, "Editors", 37, json!([]))],
        "keys": [
            {"label": "ann", "user": "ann@example.com", "scopes": ["*"], "value": ANN},
            {"label": "members", "user": "ann@example.com", "scopes": ["organization_member:read"],
             "value": MEMBERS_ONLY},
        ],
    }))
    .await
}

fn members(query: &str) -> String {
    format!("/api/organizations/{CLOSED}/members/{query}")
}

fn roles(query: &str) -> String {
    format!("/api/organizations/{CLOSED}/roles/{query}")
}

fn emails(page: &Value) -> Vec<&str> {
    let results = page["results"].as_array().unwrap();
    results.iter().map(|member| member["user"]["email"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn members_are_the_active_users_of_the_organization() {
    let app = closed().await;
    let get = async |path: &str| app.call(ANN, "GET", path, Value::Null).await.expect(200);
    let page = get(&members("")).await;
    assert_eq!((&page["count"], &page["next"], &page["previous"]), (&json!(2), &Value::Null, &Value::Null));
    assert_eq!(emails(&page), ["ann@example.com", "bob@example.com"]);
    let bob = &page["results"][1];
    let fields: Vec<&str> = bob.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["id", "user", "level", "joined_at", "updated_at"]);
    assert_eq!((&page["results"][0]["level"], &bob["level"]), (&json!(15), &json!(1)));
    assert_eq!((&bob["user"]["id"], &bob["user"]["first_name"]), (&json!(12), &json!("bob")));
    for field in
        ["uuid", "distinct_id", "last_name", "is_email_verified", "hedgehog_config", "role_at_organization"]
    {
        assert!(bob["user"].get(field).is_some(), "{field}");
    }
    assert_eq!(get(&format!("/api/organizations/{CLOSED}/members")).await, page, "without the slash");

    let first = get(&members("?limit=1")).await;
    assert_eq!((emails(&first), &first["count"]), (vec!["ann@example.com"], &json!(2)));
    assert!(first["next"].as_str().unwrap().ends_with(&members("?limit=1&offset=1")));
    let second = get(&members("?limit=1&offset=1")).await;
    assert_eq!((emails(&second), &second["next"]), (vec!["bob@example.com"], &Value::Null));
    let found = get(&members("?email=BOB%40example.com")).await;
    assert_eq!((emails(&found), &found["count"]), (vec!["bob@example.com"], &json!(1)));
    for none in ["?email=eve%40example.com", "?email=bob", "?email=member%40example.com"] {
        assert_eq!(get(&members(none)).await["count"], 0, "{none}");
    }
    let acme = app.get(&format!("/api/organizations/{ACME}/members/")).await.expect(200);
    assert_eq!(emails(&acme), ["owner@example.com", "member@example.com"]);
    assert_eq!(app.get("/api/organizations/@current/members/").await.expect(200)["count"], 2);
}

#[tokio::test]
async fn roles_are_listed_by_name_with_their_members() {
    let app = closed().await;
    let get = async |path: &str| app.call(ANN, "GET", path, Value::Null).await.expect(200);
    let page = get(&roles("")).await;
    let names = |page: &Value| -> Vec<String> {
        let results = page["results"].as_array().unwrap();
        results.iter().map(|role| role["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((names(&page), &page["count"]), (vec!["Editors".to_owned(), "Viewers".to_owned()], &json!(2)));
    let viewers = &page["results"][1];
    assert_eq!((&viewers["id"], &viewers["feature_flags_access_level"]), (&json!(VIEWERS), &json!(21)));
    assert_eq!((&viewers["created_by"], &page["results"][0]["members"]), (&Value::Null, &json!([])));
    let member = &viewers["members"][0];
    assert_eq!((&member["role_id"], &member["user"]["email"]), (&json!(VIEWERS), &json!("bob@example.com")));
    let listed = get(&members("?email=bob@example.com")).await;
    let id = &listed["results"][0]["id"];
    assert_eq!(&member["organization_member"]["id"], id, "a member has one id everywhere");
    let second = get(&roles("?limit=1&offset=1")).await;
    assert_eq!((names(&second), &second["count"]), (vec!["Viewers".to_owned()], &json!(2)));
    assert_eq!(names(&get(&roles("?name=Editors")).await), ["Editors"]);
    assert_eq!(get(&roles("?name=editor")).await["count"], 0);
    assert_eq!(app.get(&format!("/api/organizations/{ACME}/roles/")).await.expect(200)["count"], 0);
}

#[tokio::test]
async fn members_and_roles_require_their_scopes_and_membership() {
    let app = closed().await;
    let get = async |key: &str, path: &str| app.call(key, "GET", path, Value::Null).await;
    get(MEMBERS_ONLY, &members("")).await.expect(200);
    let refused = get(MEMBERS_ONLY, &roles("")).await;
    let detail = "API key missing required scope 'organization:read'";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    for (key, path) in [(Keys::NO_SCOPES, "members"), (Keys::READ_FLAGS, "members")] {
        let refused = get(key, &format!("/api/organizations/{ACME}/{path}/")).await;
        let detail = "API key missing required scope 'organization_member:read'";
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    for path in [members(""), roles("")] {
        get(Keys::OWNER, &path).await.expect_error(404, "invalid_request", "not_found", "Not found.", None);
        assert_eq!(get("", &path).await.status, 401);
        let limited = get(Keys::ONLY_SECOND, &path).await;
        assert_eq!(limited.status, 403, "a key for one project does not read organizations");
        assert_eq!(app.call(ANN, "POST", &path, json!({})).await.status, 405);
    }
    for path in
        ["/api/organizations/abc/members/", "/api/organizations/01900000-0000-7000-8000-00000000aaaa/roles/"]
    {
        assert_eq!(get(ANN, path).await.status, 404);
    }
}
