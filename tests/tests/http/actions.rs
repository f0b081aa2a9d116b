//! Actions over HTTP: created, changed, listed, and used in queries.

use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_core::store::{Item, Write, WriteCondition, keys};
use pennon_eventstore::Event;
use pennon_tests::{Keys, TestApp, now_micros};
use serde_json::{Value, json};
use uuid::Uuid;

const ACTIONS: &str = "/api/projects/1/actions/";
const TREND: &str = "/api/projects/1/insights/trend/";

fn one(id: &Value) -> String {
    format!("{ACTIONS}{id}/")
}

async fn made(app: &TestApp, body: Value) -> Value {
    app.post(ACTIONS, body).await.expect(201)
}

/// The only entry whose activity is this.
pub async fn entry(app: &TestApp, scope: &str, activity: &str) -> Value {
    let mut found: Vec<Value> =
        app.activity(scope).await.into_iter().filter(|entry| entry["activity"] == activity).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test]
async fn a_new_action_has_these_fields_in_this_order() {
    let app = TestApp::new().await;
    let sent = json!({
        "name": "Buys", "description": "d", "tags": ["B", "a"], "id": 77, "unknown": 1,
        "steps": [{"event": "purchase", "url": "/shop", "url_matching": "contains", "isNew": true}],
    });
    let response = app.post(ACTIONS, sent).await;
    let got = response.expect(201);
    let expected = json!({
        "id": 1, "name": "Buys", "description": "d", "tags": ["a", "b"], "post_to_slack": false,
        "slack_message_format": "",
        "steps": [{"event": "purchase", "properties": null, "selector": null, "tag_name": null, "text": null,
                   "text_matching": null, "href": null, "href_matching": null, "url": "/shop",
                   "url_matching": "contains"}],
        "created_at": "2026-01-05T10:00:00Z", "created_by": got["created_by"], "deleted": false,
        "is_calculating": false, "last_calculated_at": "2026-01-05T10:00:00Z", "team_id": 1, "is_action": true,
        "bytecode_error": null, "pinned_at": null, "creation_context": null, "user_access_level": "manager",
    });
    assert_eq!(response.text, expected.to_string());
    assert_eq!(got["created_by"]["email"], "owner@example.com");
    assert_eq!(app.get(&one(&json!(1))).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/actions/1").await.text, expected.to_string());
    let list = app.get(ACTIONS).await.expect(200);
    assert_eq!(list, json!({"count": 1, "next": null, "previous": null, "results": [expected]}));
    let member = app.call(Keys::MEMBER, "GET", &one(&json!(1)), Value::Null).await.expect(200);
    assert_eq!(member["user_access_level"], "editor");
    let created = entry(&app, "Action", "created").await;
    let detail =
        json!({"id": null, "name": "Buys", "short_id": null, "type": null, "trigger": null, "changes": null});
    assert_eq!((&created["item_id"], &created["detail"]), (&json!("1"), &detail));
}

#[tokio::test]
async fn scopes_methods_and_projects_are_checked() {
    let keys = json!([{"label": "ro", "user": "owner@example.com", "scopes": ["action:read"], "projects": [],
                       "value": "phx_actions_ro"}]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = made(&app, json!({"name": "x"})).await["id"].clone();
    let detail = "API key missing required scope 'action:write'";
    for (method, path) in
        [("POST", ACTIONS.to_owned()), ("PATCH", one(&id)), ("PUT", one(&id)), ("DELETE", one(&json!(99)))]
    {
        let refused = app.call("phx_actions_ro", method, &path, json!({"name": []})).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    assert_eq!(app.call("phx_actions_ro", "GET", &one(&id), Value::Null).await.expect(200)["name"], "x");
    assert_eq!(app.call(Keys::READ_FLAGS, "GET", ACTIONS, Value::Null).await.status, 403);
    assert_eq!(app.call(Keys::STRANGER, "GET", ACTIONS, Value::Null).await.status, 403);
    assert_eq!(app.get("/api/projects/2/actions/").await.expect(200)["count"], 0);
    assert_eq!(app.patch(&format!("/api/projects/2/actions/{id}/"), json!({"name": "y"})).await.status, 404);
    for unknown in ["99", "x", "1.5", "-1", "99999999999999999999"] {
        let path = format!("{ACTIONS}{unknown}/");
        app.get(&path).await.expect_error(404, "invalid_request", "not_found", "Not found.", None);
        assert_eq!(app.patch(&path, json!({"name": []})).await.status, 404);
    }
    let refused = app.call(Keys::OWNER, "DELETE", &one(&id), Value::Null).await;
    assert_eq!((refused.status.as_u16(), refused.text.as_str()), (405, ""));
    assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS, PATCH, PUT");
    assert_eq!(app.call(Keys::OWNER, "DELETE", ACTIONS, Value::Null).await.status, 405);
    let form = TestApp::request(Keys::OWNER, "POST", ACTIONS, json!({}));
    let (mut head, _) = form.into_parts();
    head.headers.insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    let body = "name=by+form&steps=%5B%7B%22event%22%3A%22x%22%7D%5D&tags=%5B%22T%22%5D";
    let form = app.send(axum::http::Request::from_parts(head, body.into())).await.expect(201);
    assert_eq!((&form["name"], &form["steps"][0]["event"]), (&json!("by form"), &json!("x")));
    assert_eq!(form["tags"], json!(["t"]));
}

#[tokio::test]
async fn a_change_keeps_what_is_not_sent_and_is_logged() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x", "tags": ["t"], "steps": [{"event": "a"}]})).await["id"].clone();
    let same = app.patch(&one(&id), json!({})).await.expect(200);
    assert_eq!((&same["name"], &same["tags"]), (&json!("x"), &json!(["t"])));
    let put = app.call(Keys::MEMBER, "PUT", &one(&id), json!({"description": "d"})).await.expect(200);
    assert_eq!((&put["name"], &put["description"]), (&json!("x"), &json!("d")));
    let entry = entry(&app, "Action", "updated").await;
    let change = json!([{"type": "Action", "action": "created", "field": "description", "before": null, "after": "d"}]);
    assert_eq!((&entry["detail"]["changes"], &entry["user"]["first_name"]), (&change, &json!("Mel")));
    let pinned = app.patch(&one(&id), json!({"pinned_at": "2020-01-01T00:00:00Z"})).await.expect(200);
    assert_eq!(pinned["pinned_at"], "2026-01-05T10:00:00Z");
    assert_eq!(app.patch(&one(&id), json!({"pinned_at": null})).await.expect(200)["pinned_at"], Value::Null);
    // A deleted action is not listed, and can be read and restored.
    assert_eq!(app.patch(&one(&id), json!({"deleted": true})).await.expect(200)["deleted"], true);
    assert_eq!(app.get(ACTIONS).await.expect(200)["count"], 0);
    assert_eq!(app.get(&one(&id)).await.expect(200)["deleted"], true);
    assert_eq!(app.patch(&one(&id), json!({"deleted": false})).await.expect(200)["deleted"], false);
    assert_eq!(app.get(ACTIONS).await.expect(200)["count"], 1);
    // The log over HTTP: created, updated by a description, deleted, restored.
    for path in [format!("{ACTIONS}activity/"), format!("{}activity/", one(&id))] {
        let reported = app.get(&path).await.expect(200);
        assert!(reported["total_count"].as_u64().unwrap() >= 4, "{path}: {reported}");
        assert_eq!(
            (&reported["results"][0]["scope"], &reported["results"][0]["item_id"]),
            (&json!("Action"), &json!(id.to_string()))
        );
    }
    assert_eq!(app.get(&format!("{ACTIONS}99/activity/")).await.status, 404);
    let words: Vec<Value> =
        app.activity("Action").await.into_iter().map(|it| it["activity"].clone()).collect();
    assert_eq!(words.iter().filter(|word| *word == "deleted").count(), 1, "{words:?}");
    assert_eq!(words.len(), 6, "{words:?}");
}

#[tokio::test]
async fn names_are_unique_among_existing_actions() {
    let app = TestApp::new().await;
    let first = made(&app, json!({"name": "x"})).await["id"].clone();
    let taken = |id: &Value| format!("This project already has an action with this name, ID {id}");
    let refused = app.post(ACTIONS, json!({"name": " x "})).await;
    refused.expect_invalid("unique", &taken(&first), Some("name"));
    let second = made(&app, json!({"name": "y"})).await["id"].clone();
    let refused = app.patch(&one(&second), json!({"name": "x"})).await;
    refused.expect_invalid("unique", &taken(&first), Some("name"));
    app.patch(&one(&first), json!({"name": "x", "description": "itself"})).await.expect(200);
    // A former name is free, and so is the name of a deleted action.
    app.patch(&one(&first), json!({"name": "z"})).await.expect(200);
    app.patch(&one(&second), json!({"name": "x"})).await.expect(200);
    app.patch(&one(&second), json!({"deleted": true})).await.expect(200);
    let third = made(&app, json!({"name": "x"})).await["id"].clone();
    let refused = app.patch(&one(&second), json!({"deleted": false})).await;
    refused.expect_invalid("unique", &taken(&third), Some("name"));
    app.patch(&one(&second), json!({"deleted": false, "name": null})).await.expect(200);
    made(&app, json!({})).await;
    assert_eq!(app.post("/api/projects/2/actions/", json!({"name": "x"})).await.status, 201);
}

#[tokio::test]
async fn one_of_several_concurrent_creates_of_a_name_succeeds() {
    let app = TestApp::new().await;
    let calls = (0..12).map(|_| app.post(ACTIONS, json!({"name": "x"})));
    let responses = futures::future::join_all(calls).await;
    let made = responses.iter().filter(|response| response.status == 201).count();
    let refused = responses.iter().filter(|response| response.status == 400).count();
    assert_eq!((made, refused), (1, 11));
    let ids = app.get(ACTIONS).await.expect(200);
    assert_eq!(ids["count"], 1);
    // Concurrent changes of different fields are all kept.
    let id = ids["results"][0]["id"].clone();
    let bodies =
        [json!({"description": "d"}), json!({"tags": ["t"]}), json!({"name": "z"}), json!({"steps": [{}]})];
    for response in futures::future::join_all(bodies.map(async |body| app.patch(&one(&id), body).await)).await
    {
        response.expect(200);
    }
    let action = app.get(&one(&id)).await.expect(200);
    assert_eq!(
        (&action["description"], &action["tags"], &action["name"]),
        (&json!("d"), &json!(["t"]), &json!("z"))
    );
    assert_eq!(app.activity("Action").await.len(), 5);
}

#[tokio::test]
async fn definitions_that_cannot_be_calculated_are_rejected_and_not_stored() {
    let app = TestApp::new().await;
    for (steps, attr) in [
        (json!([{"event": "$autocapture", "selector": "a:hover"}]), "steps__0"),
        (json!([{"properties": [{"key": "a", "operator": "like", "value": 1}]}]), "steps__0"),
        (json!([{"properties": [{"key": "id", "type": "cohort", "value": 99}]}]), "steps__0"),
        (json!([{"url_matching": "like"}]), "steps__0__url_matching"),
        (json!("x"), "steps"),
    ] {
        let refused = app.post(ACTIONS, json!({"name": "x", "steps": steps})).await.expect(400);
        assert_eq!(refused["attr"], attr, "{steps}: {refused}");
        assert_eq!(refused["type"], "validation_error");
    }
    assert_eq!(app.get(ACTIONS).await.expect(200)["count"], 0);
    let parse = app.post(ACTIONS, json!([1])).await.expect(400);
    assert_eq!(parse["detail"], "Invalid data. Expected a dictionary, but got list.");
}

#[tokio::test]
async fn a_changed_action_is_used_at_once() {
    let app = TestApp::new().await;
    let at = now_micros();
    let event = |name: &str, url: &str| Event {
        uuid: Uuid::new_v4(),
        event: name.to_owned(),
        distinct_id: "ann".to_owned(),
        timestamp: at - 3_600_000_000,
        properties: json!({"$current_url": url}).as_object().unwrap().clone(),
    };
    let events = [event("viewed", "/a"), event("viewed", "/b"), event("bought", "/b")];
    app.services.events.append(1, &events, at).await.unwrap();
    let id = made(&app, json!({"name": "looks", "steps": [{"event": "viewed"}]})).await["id"].clone();
    let count = async || {
        let trend = app.post(TREND, json!({"actions": [{"id": id}]})).await.expect(200);
        (trend["result"][0]["count"].clone(), trend["result"][0]["label"].clone(), trend["is_cached"].clone())
    };
    assert_eq!(count().await, (json!(2.0), json!("looks"), json!(false)));
    assert_eq!(count().await.2, true);
    app.patch(&one(&id), json!({"steps": [{"url": "/b", "url_matching": "exact"}, {"event": "none"}]}))
        .await
        .expect(200);
    assert_eq!(count().await, (json!(2.0), json!("looks"), json!(false)));
    app.patch(&one(&id), json!({"name": "all", "steps": []})).await.expect(200);
    assert_eq!(count().await, (json!(3.0), json!("all"), json!(false)));
}

fn file(actions: Value) -> Workspace {
    Workspace::parse(&json!({"actions": actions}).to_string()).unwrap()
}

async fn applied(app: &TestApp, actions: Value, prune: bool) -> Vec<String> {
    let options = ApplyOptions { prune, dry_run: false };
    let records = &app.services.app.store.records;
    // Pruning removes undeclared records, so the others are declared again from the existing records.
    let mut whole = file(actions);
    let state = pennon::workspace::Declarations::load(records).await.unwrap().workspace();
    whole = Workspace { actions: whole.actions, ..state };
    let now = pennon_tests::NOW.parse().unwrap();
    apply(records, &whole, options, now).await.unwrap().plan
}

#[tokio::test]
async fn workspace_files_and_http_write_the_same_records_and_keep_each_others_fields() {
    let declared = |name: &str, event: &str| json!([{"project": "1", "id": 7, "name": name, "steps": [{"event": event}]}]);
    let app = TestApp::with(json!({"actions": declared("file", "a")})).await;
    let shown = app.get(&one(&json!(7))).await.expect(200);
    assert_eq!(
        (&shown["name"], &shown["created_by"], &shown["tags"]),
        (&json!("file"), &Value::Null, &json!([]))
    );
    assert_eq!(app.get(ACTIONS).await.expect(200)["results"], json!([shown]));
    // A declared name is unique like any other.
    app.post(ACTIONS, json!({"name": "file"})).await.expect(400);
    assert_eq!(made(&app, json!({"name": "over http"})).await["id"], 8);
    // An edit is kept while the declaration is unchanged.
    let edit = json!({"name": "edited", "tags": ["t"], "steps": [{"event": "b"}]});
    app.patch(&one(&json!(7)), edit).await.expect(200);
    assert!(applied(&app, declared("file", "a"), false).await.is_empty());
    assert_eq!(app.get(&one(&json!(7))).await.expect(200)["name"], "edited");
    // After a changed declaration the declared fields are those of the file, and the others stay.
    assert_eq!(applied(&app, declared("file", "c"), false).await, ["~ action 1/7 \"file\""]);
    let now = app.get(&one(&json!(7))).await.expect(200);
    assert_eq!(
        (&now["name"], &now["tags"], &now["steps"][0]["event"]),
        (&json!("file"), &json!(["t"]), &json!("c"))
    );
    made(&app, json!({"name": "edited"})).await;
    // A record that was deleted over HTTP is restored by a changed declaration.
    app.patch(&one(&json!(7)), json!({"deleted": true})).await.expect(200);
    made(&app, json!({"name": "file"})).await;
    applied(&app, declared("newer", "c"), false).await;
    assert_eq!(app.get(&one(&json!(7))).await.expect(200)["deleted"], false);
    // It is removed with its declaration, including its name and its list row.
    applied(&app, json!([]), true).await;
    assert_eq!(app.get(&one(&json!(7))).await.status, 404);
    assert_eq!(app.get(ACTIONS).await.expect(200)["count"], 3);
    made(&app, json!({"name": "newer"})).await;
}

#[tokio::test]
async fn lists_are_searched_and_paged_and_complete_for_ten_thousand() {
    let app = TestApp::new().await;
    let records = &app.services.app.store.records;
    // Records from before there were summary rows.
    let record = |id: u64| {
        json!({"id": id, "name": format!("Action {id}"), "steps": [], "deleted": id.is_multiple_of(1000),
                                  "created_at": "2025-01-01T00:00:00Z"})
    };
    let put = |id: u64| {
        Write::Put(
            Item::new(keys::record(1, keys::RecordKind::Action, id), &record(id)).unwrap(),
            WriteCondition::None,
        )
    };
    let all: Vec<u64> = (1..=10_000).collect();
    for ids in all.chunks(100) {
        records.transact(ids.iter().map(|id| put(*id)).collect()).await.unwrap();
    }
    records.raise(&keys::counter(keys::Counter::Action), 10_000).await.unwrap();
    let first = app.get(&format!("{ACTIONS}?limit=2")).await.expect(200);
    assert_eq!((&first["count"], &first["results"][0]["name"]), (&json!(9990), &json!("Action 1")));
    assert_eq!(first["next"], "http://api.test/api/projects/1/actions/?limit=2&offset=2");
    let newest = made(&app, json!({"name": "newest", "tags": ["Special"]})).await;
    app.services.app.keys.clear();
    app.round_trips.reset();
    let page = app.get(&format!("{ACTIONS}?limit=1&offset=0")).await.expect(200);
    assert_eq!((&page["count"], &page["results"][0]), (&json!(9991), &newest));
    // The rows are two pages of the store, one after the other beside the key; then the records of the page.
    assert!(app.round_trips.sequential() <= 3, "{:?}", app.round_trips.calls());
    for (search, count) in [("ACTION%20999", 11), ("special", 1), ("nothing", 0), ("newest", 1)] {
        assert_eq!(
            app.get(&format!("{ACTIONS}?search={search}")).await.expect(200)["count"],
            count,
            "{search}"
        );
    }
    let last = app.get(&format!("{ACTIONS}?limit=1000&offset=9000")).await.expect(200);
    assert_eq!(last["results"].as_array().unwrap().len(), 991);
    assert_eq!(last["next"], Value::Null);
    app.post(ACTIONS, json!({"name": "Action 77"})).await.expect(400);
    let long = "x".repeat(401);
    let refused = app.get(&format!("{ACTIONS}?search={long}")).await;
    refused.expect_invalid(
        "max_length",
        "Ensure this field has no more than 400 characters.",
        Some("search"),
    );
}
