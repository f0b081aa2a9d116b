//! Saved insights over HTTP.

use pennon_core::store::PartitionQuery;
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";

fn one(id: &Value) -> String {
    format!("{INSIGHTS}{id}/")
}

/// Creates an insight as the owner and returns its full form.
async fn made(app: &TestApp, body: Value) -> Value {
    app.post(INSIGHTS, body).await.expect(201)
}

fn views() -> Value {
    json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery",
           "series": [{"kind": "EventsNode", "event": "viewed", "name": "viewed", "math": "total"}]}})
}

#[tokio::test]
async fn a_new_insight_has_the_fields_of_the_contract_in_their_order() {
    let app = TestApp::new().await;
    let sent = json!({
        "name": "Daily", "filters": {"events": [{"id": "viewed"}], "date_from": "-90d"}, "tags": ["B", "a"],
        "saved": true, "_create_in_folder": "x", "id": 77, "short_id": "mine", "unknown": 1,
    });
    let response = app.post(INSIGHTS, sent).await;
    let got = response.expect(201);
    let short_id = got["short_id"].as_str().unwrap();
    assert!(short_id.len() == 8 && short_id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{short_id}");
    let olive = json!({
        "id": 1, "uuid": got["created_by"]["uuid"], "distinct_id": "user-1", "first_name": "Olive", "last_name": "",
        "email": "owner@example.com", "is_email_verified": null, "hedgehog_config": null, "role_at_organization": null,
    });
    let expected = json!({
        "id": 1, "short_id": short_id, "name": "Daily", "derived_name": null,
        "filters": {"events": [{"id": "viewed"}], "date_from": "-90d", "insight": "TRENDS"}, "query": null,
        "order": null, "deleted": false, "dashboards": [], "dashboard_tiles": [], "last_refresh": null,
        "cache_target_age": null, "next_allowed_client_refresh": null, "result": null, "hasMore": null,
        "columns": null, "created_at": "2026-01-05T10:00:00Z", "created_by": olive, "description": null,
        "updated_at": "2026-01-05T10:00:00Z", "tags": ["a", "b"], "favorited": false, "saved": true,
        "last_modified_at": "2026-01-05T10:00:00Z", "last_modified_by": olive, "is_sample": false,
        "effective_restriction_level": 21, "effective_privilege_level": 37, "user_access_level": "manager",
        "timezone": null, "is_cached": false, "query_status": null, "hogql": null, "types": null,
        "filters_hash": got["filters_hash"], "alerts": [], "last_viewed_at": null,
    });
    assert_eq!(response.text, expected.to_string());
    assert!(got["filters_hash"].is_string());
    assert_eq!(app.get(&one(&json!(1))).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/insights/1").await.text, expected.to_string());
    let member = app.call(Keys::MEMBER, "GET", &one(&json!(1)), Value::Null).await.expect(200);
    assert_eq!(member["user_access_level"], "editor");
    assert_eq!(made(&app, json!({})).await["name"], Value::Null);
}

#[tokio::test]
async fn scopes_projects_and_methods_are_checked() {
    let keys = json!([{"label": "ro", "user": "owner@example.com", "scopes": ["insight:read"], "projects": [], "value": "phx_insights_ro"}]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = made(&app, json!({"name": "x"})).await["id"].clone();
    let detail = "API key missing required scope 'insight:write'";
    for (method, path) in [("POST", INSIGHTS.to_owned()), ("PATCH", one(&id)), ("DELETE", one(&json!(99)))] {
        let refused = app.call("phx_insights_ro", method, &path, json!({"name": 1, "order": "x"})).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    assert_eq!(app.call("phx_insights_ro", "GET", &one(&id), Value::Null).await.expect(200)["name"], "x");
    assert_eq!(app.call("", "GET", INSIGHTS, Value::Null).await.status, 401);
    assert_eq!(app.call(Keys::STRANGER, "GET", INSIGHTS, Value::Null).await.status, 403);
    assert_eq!(app.call(Keys::READ_FLAGS, "GET", INSIGHTS, Value::Null).await.status, 403);
    // It is not found in another project.
    assert_eq!(app.get("/api/projects/2/insights/").await.expect(200)["count"], 0);
    assert_eq!(app.get(&format!("/api/projects/2/insights/{id}/")).await.status, 404);
    assert_eq!(app.patch(&format!("/api/projects/2/insights/{id}/"), json!({"name": "y"})).await.status, 404);
    for unknown in ["99", "x", "1.5", "-1"] {
        app.get(&format!("{INSIGHTS}{unknown}/")).await.expect_error(
            404,
            "invalid_request",
            "not_found",
            "Not found.",
            None,
        );
    }
    for path in [one(&id), one(&json!(99))] {
        let refused = app.call(Keys::OWNER, "DELETE", &path, Value::Null).await;
        assert_eq!((refused.status.as_u16(), refused.text.as_str()), (405, ""));
        assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS, PATCH");
    }
    assert_eq!(app.call(Keys::OWNER, "PUT", &one(&id), json!({})).await.status, 405);
    assert_eq!(app.get(&one(&id)).await.status, 200);
}

#[tokio::test]
async fn the_short_form_has_exactly_its_fields() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await["id"].clone();
    let mut fields = [
        "id",
        "short_id",
        "name",
        "derived_name",
        "filters",
        "query",
        "dashboards",
        "dashboard_tiles",
        "description",
        "last_refresh",
        "refreshing",
        "saved",
        "tags",
        "updated_at",
        "created_by",
        "created_at",
        "last_modified_at",
        "favorited",
        "user_access_level",
        "last_viewed_at",
    ];
    fields.sort_unstable();
    let list = app.get(&format!("{INSIGHTS}?basic=true")).await.expect(200);
    let single = app.get(&format!("{}?basic=1", one(&id))).await.expect(200);
    for short in [&list["results"][0], &single] {
        let mut found: Vec<&str> = short.as_object().unwrap().keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, fields);
        assert_eq!(short["refreshing"], false);
    }
}

#[tokio::test]
async fn lists_are_filtered_ordered_and_paged() {
    let app = TestApp::new().await;
    for body in [
        json!({"name": "Weekly REVENUE", "saved": true, "order": 2, "query": views()}),
        json!({"derived_name": "revenue count", "favorited": true, "order": 1}),
        json!({"name": "signups", "tags": ["team"], "filters": {"properties": [{"key": "$feature/beta", "value": "true"}]}}),
    ] {
        made(&app, body).await;
    }
    let mel =
        app.call(Keys::MEMBER, "POST", INSIGHTS, json!({"name": "Mel's", "saved": true})).await.expect(201);
    let ids = async |query: &str| {
        let list = app.get(&format!("{INSIGHTS}?{query}")).await.expect(200);
        let ids: Vec<u64> =
            list["results"].as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
        assert_eq!(list["count"], ids.len());
        ids
    };
    assert_eq!(ids("").await, [2, 1, 3, 4]);
    assert_eq!(ids("order=-id").await, [4, 3, 2, 1]);
    assert_eq!(ids("search=revenue").await, [2, 1]);
    assert_eq!(ids("saved=true&user=").await, [1]);
    assert_eq!(ids("created_by=2").await, [4]);
    assert_eq!(ids("insight=TRENDS").await, [1]);
    assert_eq!(ids("feature_flag=beta").await, [3]);
    assert_eq!(ids(&format!("short_id={}", mel["short_id"].as_str().unwrap())).await, [4]);
    assert_eq!(ids("date_from=-1d").await, [2, 1, 3, 4]);
    assert_eq!(ids("date_to=-1d").await, [] as [u64; 0]);
    assert_eq!(ids("tags=%5B%22team%22%5D&unknown=1").await, [3]);
    for stranger in ["3", "99"] {
        let refused = app.get(&format!("{INSIGHTS}?created_by={stranger}")).await;
        let detail = "Select a valid choice. That choice is not one of the available choices.";
        refused.expect_invalid("invalid_choice", detail, Some("created_by"));
    }
    let refused = app.get(&format!("{INSIGHTS}?order=size")).await;
    refused.expect_invalid("invalid_choice", "\"size\" is not a valid choice.", Some("order"));

    let page = app.get(&format!("{INSIGHTS}?order=id&limit=2&basic=true")).await.expect(200);
    assert_eq!((&page["count"], &page["previous"]), (&json!(4), &Value::Null));
    assert_eq!(page["next"], format!("http://api.test{INSIGHTS}?basic=true&limit=2&offset=2&order=id"));
    let page = app.get(&format!("{INSIGHTS}?order=id&limit=2&basic=true&offset=2")).await.expect(200);
    assert_eq!(page["next"], Value::Null);
    assert_eq!(page["previous"], format!("http://api.test{INSIGHTS}?basic=true&limit=2&order=id"));
    assert_eq!(page["results"][1]["name"], "Mel's");
}

#[tokio::test]
async fn a_change_affects_only_its_fields() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "a", "description": "d", "tags": ["x"]})).await["id"].clone();
    let later = "2026-01-06T00:00:00Z";
    let changed = app.at(later, "PATCH", &one(&id), json!({"favorited": true, "tags": []})).await.expect(200);
    assert_eq!(
        (&changed["name"], &changed["favorited"], &changed["tags"]),
        (&json!("a"), &json!(true), &json!([]))
    );
    assert_eq!(
        (&changed["updated_at"], &changed["last_modified_at"]),
        (&json!(later), &json!("2026-01-05T10:00:00Z"))
    );
    let request = TestApp::request(Keys::MEMBER, "PATCH", &one(&id), json!({"name": "", "deleted": false}));
    let changed = app.send(request).await.expect(200);
    assert_eq!((&changed["name"], &changed["last_modified_by"]["first_name"]), (&json!(""), &json!("Mel")));
    assert_eq!(changed["created_by"]["first_name"], "Olive");
    let refused = app.patch(&one(&id), json!({"name": "x".repeat(401), "saved": true})).await;
    refused.expect_invalid("max_length", "Ensure this field has no more than 400 characters.", Some("name"));
    let refused = app.patch(&one(&id), json!({"dashboards": [1], "name": "y"})).await;
    let detail = "Invalid pk \"1\" - object does not exist.";
    refused.expect_invalid("does_not_exist", detail, Some("dashboards"));
    let after = app.get(&one(&id)).await.expect(200);
    assert_eq!(
        (&after["name"], &after["saved"]),
        (&json!(""), &json!(false)),
        "a refused body changes nothing"
    );
    let listed = app.get(INSIGHTS).await.expect(200);
    assert_eq!(listed["results"][0]["favorited"], true);
    let node = app.patch(&one(&id), json!({"query": views().to_string()})).await.expect(200);
    assert_eq!(node["query"], views());
    let refused = app.patch(&one(&id), json!({"query": {"kind": "InsightVizNode"}})).await.expect(400);
    assert_eq!((&refused["type"], &refused["code"]), (&json!("invalid_request"), &json!("parse_error")));
    let large = json!({"filters": {"a": "x".repeat(256 * 1024)}});
    assert_eq!(app.post(INSIGHTS, large).await.expect(400)["attr"], "filters");
}

#[tokio::test]
async fn concurrent_changes_are_not_lost() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "a"})).await["id"].clone();
    let bodies = [
        json!({"name": "b"}),
        json!({"description": "d"}),
        json!({"favorited": true}),
        json!({"saved": true}),
        json!({"tags": ["t"]}),
        json!({"order": 7}),
        json!({"derived_name": "n"}),
        json!({"query": views()}),
    ];
    let path = one(&id);
    let writes = bodies.into_iter().map(|body| app.patch(&path, body));
    for response in futures::future::join_all(writes).await {
        response.expect(200);
    }
    let after = app.get(&path).await.expect(200);
    let expected = [
        ("name", json!("b")),
        ("description", json!("d")),
        ("favorited", json!(true)),
        ("saved", json!(true)),
        ("tags", json!(["t"])),
        ("order", json!(7)),
        ("derived_name", json!("n")),
        ("query", views()),
    ];
    for (field, value) in expected {
        assert_eq!(after[field], value, "{field}");
    }
    // One entry for the creation and one for each change of a logged field; saved and order are not logged.
    assert_eq!(app.activity("Insight").await.len(), 1 + 6);
}

#[tokio::test]
async fn a_deleted_insight_is_hidden_until_deleted_is_set_to_false() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "a"})).await["id"].clone();
    let gone = app
        .patch(&one(&id), json!({"deleted": true, "description": "d", "dashboards": [5]}))
        .await
        .expect(200);
    assert_eq!((&gone["deleted"], &gone["description"]), (&json!(true), &json!("d")));
    assert_eq!(app.get(&one(&id)).await.status, 404);
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 0);
    for body in [json!({"name": "b"}), json!({"deleted": "false"}), json!({"deleted": true}), json!({})] {
        assert_eq!(app.patch(&one(&id), body).await.status, 404);
    }
    let other = format!("/api/projects/2/insights/{id}/");
    assert_eq!(app.patch(&other, json!({"deleted": false})).await.status, 404);
    let back = app.patch(&one(&id), json!({"deleted": false, "name": "b"})).await.expect(200);
    assert_eq!(
        (&back["deleted"], &back["name"], &back["short_id"]),
        (&json!(false), &json!("b"), &gone["short_id"])
    );
    assert_eq!(app.get(INSIGHTS).await.expect(200)["results"][0]["name"], "b");
    let log: Vec<String> = app
        .activity("Insight")
        .await
        .iter()
        .map(|entry| entry["activity"].as_str().unwrap().to_owned())
        .collect();
    for word in ["created", "deleted", "restored"] {
        assert!(log.iter().any(|entry| entry == word), "{log:?}");
    }
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn each_change_is_logged_once_with_what_changed() {
    let app = TestApp::new().await;
    let insight = made(&app, json!({"name": "a"})).await;
    made(&app, json!({"description": "nameless"})).await;
    let path = one(&insight["id"]);
    app.at("2026-01-06T00:00:00Z", "PATCH", &path, json!({"name": "b", "order": 1})).await.expect(200);
    app.at("2026-01-07T00:00:00Z", "PATCH", &path, json!({"name": "b", "saved": true})).await.expect(200);
    let entries = app.activity("Insight").await;
    assert_eq!(entries.len(), 2);
    let detail = |name: &str, changes: Value| json!({"id": null, "name": name, "short_id": insight["short_id"], "type": null, "trigger": null, "changes": changes});
    let user = json!({"first_name": "Olive", "email": "owner@example.com"});
    let mut created = entries[0].clone();
    created.as_object_mut().unwrap().remove("id");
    let expected = json!({
        "user": user, "activity": "created", "scope": "Insight", "item_id": "1", "created_at": "2026-01-05T10:00:00Z",
        "detail": detail("a", Value::Null),
    });
    assert_eq!(created, expected);
    let change =
        json!([{"type": "Insight", "action": "changed", "field": "name", "before": "a", "after": "b"}]);
    assert_eq!((&entries[1]["activity"], &entries[1]["detail"]), (&json!("updated"), &detail("b", change)));
    let pointers = app
        .services
        .app
        .store
        .records
        .query(PartitionQuery::partition("PROJECT#1#ACTIVITY#Insight#ITEM#1"))
        .await;
    assert_eq!(pointers.unwrap().len(), 2);
}
