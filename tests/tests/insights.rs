//! Saved insights over HTTP.
#![allow(clippy::unwrap_used)]

use pennon_core::clock::NOW_HEADER;
use pennon_core::store::Query;
use pennon_eventstore::Event;
use pennon_tests::{Answer, Keys, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

const INSIGHTS: &str = "/api/projects/1/insights/";

fn one(id: &Value) -> String {
    format!("{INSIGHTS}{id}/")
}

/// Makes an insight as the owner; gives its full form.
async fn made(app: &TestApp, body: Value) -> Value {
    app.post(INSIGHTS, body).await.expect(201)
}

/// The activity entries of the insights of project 1, oldest first.
async fn activity(app: &TestApp) -> Vec<Value> {
    let items =
        app.services.app.store.records.query(Query::partition("PROJECT#1#ACTIVITY#Insight#2026-01")).await;
    let mut entries: Vec<Value> = items.unwrap().iter().map(|item| item.body().unwrap()).collect();
    entries.sort_by_key(|entry| entry["created_at"].as_str().unwrap().to_owned());
    entries
}

async fn at(app: &TestApp, now: &str, method: &str, path: &str, body: Value) -> Answer {
    let mut request = TestApp::request(Keys::OWNER, method, path, body);
    request.headers_mut().insert(NOW_HEADER, now.parse().unwrap());
    app.send(request).await
}

/// Three page views of two people on the third of January.
async fn with_views() -> TestApp {
    let app = TestApp::new().await;
    let event = |who: &str| Event {
        uuid: Uuid::new_v4(),
        event: "viewed".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: "2026-01-03T03:21:34Z"
            .parse::<chrono::DateTime<chrono::Utc>>()
            .unwrap()
            .timestamp_micros(),
        properties: json!({"page": who}).as_object().unwrap().clone(),
    };
    let now = pennon_tests::NOW.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
    app.services.events.append(1, &[event("ann"), event("bob"), event("bob")], now).await.unwrap();
    app
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
    let answer = app.post(INSIGHTS, sent).await;
    let got = answer.expect(201);
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
    assert_eq!(answer.text, expected.to_string());
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
    // Another project knows nothing of it.
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
async fn a_change_touches_what_it_names() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "a", "description": "d", "tags": ["x"]})).await["id"].clone();
    let later = "2026-01-06T00:00:00Z";
    let changed =
        at(&app, later, "PATCH", &one(&id), json!({"favorited": true, "tags": []})).await.expect(200);
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
async fn no_change_is_lost_to_another_at_the_same_time() {
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
    for answer in futures::future::join_all(writes).await {
        answer.expect(200);
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
    assert_eq!(activity(&app).await.len(), 1 + 6);
}

#[tokio::test]
async fn a_deleted_insight_is_gone_until_a_json_false_brings_it_back() {
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
    let log: Vec<String> =
        activity(&app).await.iter().map(|entry| entry["activity"].as_str().unwrap().to_owned()).collect();
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
    at(&app, "2026-01-06T00:00:00Z", "PATCH", &path, json!({"name": "b", "order": 1})).await.expect(200);
    at(&app, "2026-01-07T00:00:00Z", "PATCH", &path, json!({"name": "b", "saved": true})).await.expect(200);
    let entries = activity(&app).await;
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
    let pointers =
        app.services.app.store.records.query(Query::partition("PROJECT#1#ACTIVITY#Insight#ITEM#1")).await;
    assert_eq!(pointers.unwrap().len(), 2);
}

#[tokio::test]
async fn numbers_are_shown_when_they_are_stored_or_asked_for() {
    let app = with_views().await;
    let insight = made(&app, json!({"query": views()})).await;
    let path = one(&insight["id"]);
    for refresh in ["", "?refresh=false", "?refresh=whatever"] {
        let got = app.get(&format!("{path}{refresh}")).await.expect(200);
        assert_eq!(
            (&got["result"], &got["last_refresh"], &got["timezone"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        assert_eq!(
            (&got["is_cached"], &got["query_status"], &got["hogql"]),
            (&json!(false), &Value::Null, &Value::Null)
        );
    }
    assert_eq!(app.get(&format!("{path}?refresh=force_cache")).await.expect(200)["timezone"], "UTC");
    let got = app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    assert_eq!(got["result"][0]["data"], json!([0, 0, 0, 0, 0, 3, 0, 0]));
    assert_eq!(
        (&got["is_cached"], &got["hasMore"], &got["timezone"]),
        (&json!(false), &json!(false), &json!("UTC"))
    );
    assert_eq!(got["last_refresh"], "2026-01-05T10:00:00Z");
    assert_eq!(got["cache_target_age"], "2026-01-05T16:00:00Z");
    assert_eq!(got["next_allowed_client_refresh"], "2026-01-05T10:15:00Z");
    assert_eq!(got["filters_hash"], insight["filters_hash"]);
    assert!(got["hogql"].is_string());
    let stored = app.get(&path).await.expect(200);
    assert_eq!((&stored["result"], &stored["is_cached"]), (&got["result"], &json!(true)));
    // Another insight with the same question, bare and with defaults spelt out, has the result at once.
    let mut bare = views()["source"].clone();
    bare["interval"] = json!("day");
    let same = made(&app, json!({"name": "same", "query": bare})).await;
    assert_eq!((&same["result"], &same["is_cached"]), (&got["result"], &json!(true)));
    // A changed question has none.
    let changed = app
        .patch(
            &path,
            json!({"query": {"kind": "TrendsQuery", "interval": "week",
        "series": [{"kind": "EventsNode", "event": "viewed"}]}}),
        )
        .await
        .expect(200);
    assert_eq!(changed["result"], Value::Null);
    let calculated = app
        .post(
            &format!("{INSIGHTS}?refresh=true"),
            json!({"filters": {"events": [{"id": "viewed", "math": "dau"}]}}),
        )
        .await;
    assert_eq!(calculated.expect(201)["result"][0]["data"], json!([0, 0, 0, 0, 0, 2, 0, 0]));
}

#[tokio::test]
async fn a_result_ages_by_the_interval_of_its_question() {
    let app = with_views().await;
    let path = one(&made(&app, json!({"query": views()})).await["id"]);
    let got = async |now: &str, refresh: &str| {
        at(&app, now, "GET", &format!("{path}?refresh={refresh}"), Value::Null).await.expect(200)
    };
    let shown =
        |got: &Value| (got["is_cached"].as_bool().unwrap(), got["last_refresh"].as_str().unwrap().to_owned());
    let first = "2026-01-05T04:01:34Z";
    assert_eq!(shown(&got(first, "blocking").await), (false, first.to_owned()));
    assert_eq!(shown(&got("2026-01-05T10:01:00Z", "blocking").await), (true, first.to_owned()));
    assert_eq!(shown(&got("2026-01-05T10:02:00Z", "force_cache").await), (true, first.to_owned()));
    assert_eq!(
        shown(&got("2026-01-05T10:02:00Z", "blocking").await),
        (false, "2026-01-05T10:02:00Z".to_owned())
    );
    assert_eq!(shown(&got("2026-01-05T10:02:01Z", "true").await), (false, "2026-01-05T10:02:01Z".to_owned()));
    // A range that ended before its calculation does not age, but is kept for seven days only.
    let mut past = views();
    past["source"]["dateRange"] = json!({"date_from": "2026-01-01", "date_to": "2026-01-03"});
    app.patch(&path, json!({"query": past})).await.expect(200);
    assert_eq!(shown(&got(first, "blocking").await), (false, first.to_owned()));
    assert_eq!(shown(&got("2026-01-08T04:01:34Z", "blocking").await), (true, first.to_owned()));
    assert!(!shown(&got("2026-01-12T04:01:35Z", "blocking").await).0);
}

#[tokio::test]
async fn what_cannot_be_calculated_is_stored_and_says_so_when_asked() {
    let app = with_views().await;
    let retention =
        json!({"kind": "InsightVizNode", "source": {"kind": "RetentionQuery", "retentionFilter": {}}});
    let breakdown = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "viewed"}],
                           "breakdownFilter": {"breakdown": "page", "breakdown_type": "event"}});
    let other = made(&app, json!({"query": retention})).await["id"].clone();
    let refused = made(&app, json!({"query": breakdown})).await["id"].clone();
    let fine = made(&app, json!({"query": views()})).await["id"].clone();
    for id in [&other, &refused] {
        let got = app.get(&one(id)).await.expect(200);
        assert_eq!((&got["result"], &got["query_status"]), (&Value::Null, &Value::Null));
    }
    let got = app.get(&format!("{}?refresh=blocking&client_query_id=mine", one(&other))).await.expect(200);
    let status = &got["query_status"];
    assert_eq!((&got["query"], &got["result"]), (&retention, &Value::Null));
    assert_eq!(
        (&status["complete"], &status["error"], &status["id"]),
        (&json!(true), &json!(true), &json!("mine"))
    );
    assert_eq!((&status["team_id"], &status["insight_id"]), (&json!(1), &other));
    assert!(status["error_message"].as_str().unwrap().contains("RetentionQuery"));
    let answer = app.get(&format!("{}?refresh=blocking", one(&refused))).await.expect(400);
    assert_eq!(answer["attr"], "breakdownFilter__breakdown");
    // In a list the others are not kept from their numbers.
    let list = app.get(&format!("{INSIGHTS}?refresh=blocking&order=id")).await.expect(200);
    let rows = list["results"].as_array().unwrap();
    assert_eq!(rows[0]["query_status"]["error"], true);
    assert!(rows[1]["query_status"]["error_message"].as_str().unwrap().starts_with("Not supported yet"));
    assert_eq!((&rows[2]["id"], &rows[2]["result"][0]["count"]), (&fine, &json!(3.0)));
    assert_eq!(rows[2]["query_status"], Value::Null);
    // Nothing is written when what was asked for with it fails.
    let body = json!({"name": "new", "query": breakdown});
    assert_eq!(app.post(&format!("{INSIGHTS}?refresh=blocking"), body).await.status, 400);
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 3);
    for mode in ["async", "lazy_async", "force_async", "async_except_on_cache_miss"] {
        for path in [INSIGHTS.to_owned(), one(&fine)] {
            assert_eq!(app.get(&format!("{path}?refresh={mode}")).await.expect(400)["attr"], "refresh");
        }
    }
    assert_eq!(app.get(&format!("{INSIGHTS}?format=csv")).await.expect(400)["attr"], "format");
    assert_eq!(app.get(&format!("{INSIGHTS}?format=xml")).await.status, 404);
}

#[tokio::test]
async fn overrides_change_the_answer_and_not_the_insight() {
    let app = with_views().await;
    let insight = made(&app, json!({"query": views()})).await;
    let path = one(&insight["id"]);
    let over = "filters_override=%7B%22date_from%22%3A%22-3d%22%7D";
    let got = app.get(&format!("{path}?{over}&refresh=blocking&from_dashboard=7")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-3d");
    assert_eq!(got["result"][0]["data"], json!([0, 3, 0, 0]));
    assert_ne!(got["filters_hash"], insight["filters_hash"]);
    let list = app.get(&format!("{INSIGHTS}?{over}")).await.expect(200);
    assert_eq!(list["results"][0]["result"][0]["data"], json!([0, 3, 0, 0]));
    let plain = app.get(&path).await.expect(200);
    assert_eq!(
        (&plain["query"], &plain["result"], &plain["filters_hash"]),
        (&views(), &Value::Null, &insight["filters_hash"])
    );
    for name in ["filters_override", "variables_override"] {
        let detail = format!("Invalid JSON passed in {name} parameter");
        app.get(&format!("{path}?{name}=%7Boops")).await.expect_invalid("invalid_input", &detail, Some(name));
    }
}

/// A workspace with dashboards 1 and 2, 3 that only its creator Olive may edit, 4 that was deleted; 5 in project 2.
async fn with_dashboards() -> TestApp {
    let dashboard = |id: u64, more: Value| {
        let mut dashboard = json!({"project": "1", "id": id, "name": format!("D{id}")});
        dashboard.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        dashboard
    };
    let dashboards = json!([
        dashboard(1, json!({"filters": {"date_from": "-14d"}})),
        dashboard(2, json!({})),
        dashboard(3, json!({"restriction_level": 37, "created_by": "owner@example.com"})),
        dashboard(4, json!({"deleted": true})),
        dashboard(5, json!({"project": "2"})),
    ]);
    TestApp::with(json!({"dashboards": dashboards})).await
}

#[tokio::test]
async fn an_insight_is_on_the_dashboards_that_were_named_last() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"name": "a", "dashboards": [2, 1]})).await;
    let path = one(&insight["id"]);
    let tiles = |removed: Value| json!([{"id": 1, "dashboard_id": 2, "deleted": null}, {"id": 2, "dashboard_id": 1, "deleted": removed}]);
    assert_eq!((&insight["dashboards"], &insight["dashboard_tiles"]), (&json!([2, 1]), &tiles(Value::Null)));
    let same = app.patch(&path, json!({"dashboards": [1, 2]})).await.expect(200);
    assert_eq!((&same["dashboards"], &same["dashboard_tiles"]), (&json!([1, 2]), &tiles(Value::Null)));
    let less = app.patch(&path, json!({"dashboards": [2], "dashboard_tiles": []})).await.expect(200);
    assert_eq!(less["dashboards"], json!([2]));
    assert_eq!(app.get(&format!("{INSIGHTS}?dashboards=%5B1%5D")).await.expect(200)["count"], 0);
    let back = app.patch(&path, json!({"dashboards": [2, 1]})).await.expect(200);
    assert_eq!(back["dashboard_tiles"], tiles(json!(false)));
    assert_eq!(app.get(&path).await.expect(200)["dashboard_tiles"], tiles(json!(false)));
    for found in ["dashboards=%5B1%2C2%5D", "saved=true", "basic=true"] {
        let list = app.get(&format!("{INSIGHTS}?{found}")).await.expect(200);
        assert_eq!(list["results"][0]["dashboards"], json!([2, 1]), "{found}");
    }
    for wrong in [json!([4]), json!([5]), json!([99]), json!([1, 99])] {
        let answer = app.patch(&path, json!({"dashboards": wrong, "name": "b"})).await.expect(400);
        assert_eq!((&answer["code"], &answer["attr"]), (&json!("does_not_exist"), &json!("dashboards")));
        assert_eq!(app.post(INSIGHTS, json!({"dashboards": wrong})).await.status, 400);
    }
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 1);
    // The same set is no change; each other one is logged with names, the new one in the order sent.
    let log = activity(&app).await;
    let mut changes: Vec<Value> = log.iter().map(|entry| entry["detail"]["changes"].clone()).collect();
    changes.retain(|changes| !changes.is_null());
    let (d1, d2) = (json!({"id": 1, "name": "D1"}), json!({"id": 2, "name": "D2"}));
    let line = |before: Value, after: Value| json!([{"type": "Insight", "action": "changed", "field": "dashboards", "before": before, "after": after}]);
    assert_eq!(changes.len(), 2);
    assert!(changes.contains(&line(json!([d1, d2]), json!([d2]))), "{changes:?}");
    assert!(changes.contains(&line(json!([d2]), json!([d2, d1]))), "{changes:?}");
    // A deletion takes it off, a restoration does not put it back.
    app.patch(&path, json!({"deleted": true, "dashboards": [1, 2]})).await.expect(200);
    let restored = app.patch(&path, json!({"deleted": false})).await.expect(200);
    assert_eq!((&restored["dashboards"], &restored["dashboard_tiles"]), (&json!([]), &json!([])));
    let pointers = app.services.app.store.records.query(Query::partition("PROJECT#1#DASHBOARD#1")).await;
    assert_eq!(pointers.unwrap().len(), 0);
    let placed = app.patch(&path, json!({"dashboards": [1]})).await.expect(200);
    assert_eq!(placed["dashboard_tiles"], json!([{"id": 2, "dashboard_id": 1, "deleted": false}]));
    let pointers = app.services.app.store.records.query(Query::partition("PROJECT#1#DASHBOARD#1")).await;
    assert_eq!(pointers.unwrap().len(), 1);
}

#[tokio::test]
async fn a_restricted_dashboard_closes_its_insights_to_others() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"name": "a", "dashboards": [3]})).await;
    let levels = |insight: &Value| {
        (insight["effective_restriction_level"].clone(), insight["effective_privilege_level"].clone())
    };
    assert_eq!(levels(&insight), (json!(37), json!(37)));
    let path = one(&insight["id"]);
    let seen = app.call(Keys::MEMBER, "GET", &path, Value::Null).await.expect(200);
    assert_eq!(levels(&seen), (json!(37), json!(21)));
    let refused = app.call(Keys::MEMBER, "PATCH", &path, json!({"name": [1]})).await;
    let detail = "This insight is on a dashboard that can only be edited by its owner, team members invited to editing the dashboard, and project admins.";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    let detail = "You don't have permission to add insights to dashboard: 3";
    let refused = app.call(Keys::MEMBER, "POST", INSIGHTS, json!({"dashboards": [1, 3]})).await;
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    // On one that everybody may edit as well, it is open, and stays where it was.
    let open = app.patch(&path, json!({"dashboards": [3, 1]})).await.expect(200);
    assert_eq!(levels(&open), (json!(37), json!(37)));
    let changed =
        app.call(Keys::MEMBER, "PATCH", &path, json!({"name": "b", "dashboards": [3, 1]})).await.expect(200);
    assert_eq!((&changed["name"], levels(&changed)), (&json!("b"), (json!(37), json!(37))));
}

#[tokio::test]
async fn a_dashboard_lends_its_filters_to_the_insights_on_it() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"query": views(), "dashboards": [1]})).await;
    let path = one(&insight["id"]);
    let got = app.get(&format!("{path}?from_dashboard=1&refresh=true")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-14d");
    assert_eq!(got["result"][0]["data"].as_array().unwrap().len(), 15);
    assert_eq!((&got["layouts"], &got["color"]), (&json!({}), &Value::Null));
    assert_ne!(got["filters_hash"], insight["filters_hash"]);
    let over = "filters_override=%7B%22date_from%22%3A%22-2d%22%7D";
    let got = app.get(&format!("{path}?from_dashboard=1&{over}")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-2d");
    for ignored in ["from_dashboard=2", "from_dashboard=4", "from_dashboard=x", ""] {
        let got = app.get(&format!("{path}?{ignored}")).await.expect(200);
        assert_eq!((&got["query"], &got["result"]), (&views(), &Value::Null), "{ignored}");
        assert!(got.get("layouts").is_none() && got.get("color").is_none());
    }
    app.services.app.keys.clear();
    app.round_trips.reset();
    app.get(&format!("{path}?from_dashboard=1")).await.expect(200);
    assert_eq!(app.round_trips.sequential(), 2, "{:?}", app.round_trips.calls());
}

#[tokio::test]
async fn reading_one_takes_two_round_trips_and_a_list_three() {
    let app = with_views().await;
    let path = one(&made(&app, json!({"query": views()})).await["id"]);
    app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    for (path, most) in [(path.clone(), 2), (format!("{path}?basic=true"), 1), (INSIGHTS.to_owned(), 3)] {
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.get(&path).await.expect(200);
        assert!(app.round_trips.sequential() <= most, "{path}: {:?}", app.round_trips.calls());
    }
}
