//! Dashboards over HTTP: created, changed, filled, arranged, deleted and restored.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::clock::NOW_HEADER;
use pennon_core::store::{PartitionQuery, keys};
use pennon_eventstore::Event;
use pennon_insights::run_scheduled_tasks;
use pennon_tests::{Keys, TestApp, as_worker, now_micros};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::actions::entry;

const DASHBOARDS: &str = "/api/projects/1/dashboards/";
const INSIGHTS: &str = "/api/projects/1/insights/";

/// The reason why results in lists and tiles have no links to persons.
const OMITTED: &str =
    "Lists of insights and dashboards contain no links to people. For links, get the insight by its id.";

fn one(id: &Value) -> String {
    format!("{DASHBOARDS}{id}/")
}

async fn made(app: &TestApp, body: Value) -> Value {
    app.post(DASHBOARDS, body).await.expect(201)
}

/// Creates an insight on dashboards.
async fn placed(app: &TestApp, name: &str, on: Value) -> Value {
    app.post(INSIGHTS, json!({"name": name, "dashboards": on})).await.expect(201)
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn tile_names(dashboard: &Value) -> Vec<&str> {
    let tiles = dashboard["tiles"].as_array().unwrap();
    tiles.iter().map(|tile| tile["insight"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_new_dashboard_has_these_fields_in_this_order() {
    let app = TestApp::new().await;
    let sent = json!({"name": "Main", "description": "d", "pinned": true, "tags": ["B", "a"], "id": 5,
                      "filters": {"date_from": "-7d"}, "created_by": null, "deleted": false});
    let response = app.post(DASHBOARDS, sent).await;
    let got = response.expect(201);
    let basic = json!({
        "id": 1, "name": "Main", "description": "d", "pinned": true, "created_at": "2026-01-05T10:00:00Z",
        "created_by": got["created_by"], "last_accessed_at": null, "last_viewed_at": null, "is_shared": false,
        "deleted": false, "creation_mode": "default", "tags": ["a", "b"], "restriction_level": 21,
        "effective_restriction_level": 21, "effective_privilege_level": 37, "user_access_level": "manager",
        "access_control_version": "v2", "last_refresh": null, "team_id": 1,
    });
    let mut expected = basic.clone();
    for (name, value) in [
        ("filters", json!({"date_from": "-7d"})),
        ("persisted_filters", json!({"date_from": "-7d"})),
        ("variables", json!({})),
        ("persisted_variables", Value::Null),
        ("breakdown_colors", json!([])),
        ("data_color_theme_id", Value::Null),
        ("tiles", json!([])),
    ] {
        expected[name] = value;
    }
    assert_eq!(response.text, expected.to_string());
    assert_eq!(got["created_by"]["email"], "owner@example.com");
    assert_eq!(app.get(&one(&json!(1))).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/dashboards/1").await.text, expected.to_string());
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["results"], json!([basic]));
    let log = entry(&app, "Dashboard", "created").await;
    assert_eq!((&log["detail"]["name"], &log["detail"]["type"]), (&json!("Main"), &json!("dashboard")));
    assert_eq!(made(&app, json!({})).await["name"], Value::Null);
}

#[tokio::test]
async fn scopes_methods_and_projects_are_checked() {
    let keys = json!([{"label": "ro", "user": "owner@example.com", "scopes": ["dashboard:read"], "projects": [],
                       "value": "phx_dashboards_ro"}]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = made(&app, json!({"name": "x"})).await["id"].clone();
    let detail = "API key missing required scope 'dashboard:write'";
    for (method, path) in
        [("POST", DASHBOARDS.to_owned()), ("PATCH", one(&id)), ("PUT", one(&id)), ("DELETE", one(&json!(99)))]
    {
        let refused = app.call("phx_dashboards_ro", method, &path, json!({"name": []})).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    assert_eq!(app.call("phx_dashboards_ro", "GET", &one(&id), Value::Null).await.expect(200)["name"], "x");
    assert_eq!(app.call(Keys::READ_FLAGS, "GET", DASHBOARDS, Value::Null).await.status, 403);
    assert_eq!(app.call(Keys::STRANGER, "GET", DASHBOARDS, Value::Null).await.status, 403);
    assert_eq!(app.get("/api/projects/2/dashboards/").await.expect(200)["count"], 0);
    assert_eq!(app.get(&format!("/api/projects/2/dashboards/{id}/")).await.status, 404);
    for unknown in ["99", "x", "1.5", "-1"] {
        let path = format!("{DASHBOARDS}{unknown}/");
        app.get(&path).await.expect_error(404, "invalid_request", "not_found", "Not found.", None);
        assert_eq!(app.patch(&path, json!({"name": []})).await.status, 404);
    }
    let refused = app.call(Keys::OWNER, "DELETE", &one(&id), Value::Null).await;
    assert_eq!((refused.status.as_u16(), refused.text.as_str()), (405, ""));
    let refused = app.post(DASHBOARDS, json!({"name": "y", "use_template": "x"})).await;
    refused.expect_invalid("invalid_input", "Not supported yet: use_template.", Some("use_template"));
    app.patch(&one(&id), json!({"restriction_level": 22})).await.expect_invalid(
        "invalid_choice",
        "\"22\" is not a valid choice.",
        Some("restriction_level"),
    );
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["count"], 1);
}

#[tokio::test]
async fn only_collaborators_edit_a_restricted_one() {
    let app = TestApp::new().await;
    let own =
        app.call(Keys::MEMBER, "POST", DASHBOARDS, json!({"name": "Mel's", "restriction_level": 37})).await;
    let id = own.expect(201)["id"].clone();
    let other = made(&app, json!({"name": "Olive's", "restriction_level": 37})).await;
    let seen = app.call(Keys::MEMBER, "GET", &one(&other["id"]), Value::Null).await.expect(200);
    assert_eq!(
        (
            &seen["effective_restriction_level"],
            &seen["effective_privilege_level"],
            &seen["user_access_level"]
        ),
        (&json!(37), &json!(21), &json!("editor"))
    );
    assert_eq!(seen["access_control_version"], "v1");
    let detail = "You don't have edit permissions for this dashboard.";
    for body in [json!({"name": "mine"}), json!({"name": []}), json!({"deleted": true})] {
        let refused = app.call(Keys::MEMBER, "PATCH", &one(&other["id"]), body).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    // Its creator and administrators may.
    app.call(Keys::MEMBER, "PATCH", &one(&id), json!({"name": "still Mel's"})).await.expect(200);
    app.patch(&one(&id), json!({"name": "Olive was here"})).await.expect(200);
    // An editor may not change who can edit.
    app.patch(&one(&other["id"]), json!({"restriction_level": 21})).await.expect(200);
    app.call(Keys::MEMBER, "PATCH", &one(&other["id"]), json!({"name": "open"})).await.expect(200);
    let refused = app.call(Keys::MEMBER, "PATCH", &one(&other["id"]), json!({"restriction_level": 21})).await;
    assert_eq!(refused.expect(403)["code"], "permission_denied");
    assert!(refused.text.contains("restriction rights"));
}

#[tokio::test]
async fn a_dashboard_returns_its_insights_with_its_filters() {
    let app = TestApp::new().await;
    let now = now_micros();
    let event = |days: i64| Event {
        uuid: Uuid::new_v4(),
        event: "viewed".to_owned(),
        distinct_id: "ann".to_owned(),
        timestamp: now - days * 86_400_000_000,
        properties: serde_json::Map::new(),
    };
    app.services.events.append(1, &[event(1), event(20)], now).await.unwrap();
    let dashboard = made(&app, json!({"name": "D", "filters": {"date_from": "-7d"}})).await["id"].clone();
    let query = json!({"kind": "TrendsQuery", "dateRange": {"date_from": "-30d"},
                       "series": [{"kind": "EventsNode", "event": "viewed"}]});
    let body = json!({"name": "views", "query": query, "dashboards": [dashboard]});
    let insight = app.post(INSIGHTS, body).await.expect(201)["id"].clone();
    let path = format!("{}?refresh=blocking", one(&dashboard));
    let shown = app.get(&path).await.expect(200);
    let tile = &shown["tiles"][0];
    // Of the two events one is within the dashboard's dates.
    assert_eq!(tile["insight"]["result"][0]["count"], 1.0);
    assert_eq!(tile["insight"]["id"], insight);
    let alone = app.get(&format!("{INSIGHTS}{insight}/?from_dashboard={dashboard}")).await.expect(200);
    let again = app.get(&one(&dashboard)).await.expect(200);
    // Several insights are returned without links to persons.
    let mut plain = alone["result"].clone();
    assert!(plain[0].as_object_mut().unwrap().shift_remove("persons_urls").is_some());
    plain[0]["persons_urls_omitted"] = json!(OMITTED);
    assert_eq!(again["tiles"][0]["insight"]["result"], plain);
    let listed = app.get(&format!("{INSIGHTS}?refresh=blocking")).await.expect(200);
    let series = &listed["results"][0]["result"][0];
    assert_eq!((series.get("persons_urls"), &series["persons_urls_omitted"]), (None, &json!(OMITTED)));
    assert_eq!(again["tiles"][0]["insight"]["filters_hash"], alone["filters_hash"]);
    assert_eq!(again["tiles"][0]["is_cached"], true);
    assert_eq!(again["tiles"][0]["last_refresh"], alone["last_refresh"]);
    let over = "filters_override=%7B%22date_from%22%3A%22-30d%22%7D";
    let wider = app.get(&format!("{path}&{over}")).await.expect(200);
    assert_eq!(wider["tiles"][0]["insight"]["result"][0]["count"], 2.0);
    let bad = app.get(&format!("{path}&filters_override=x")).await.expect(400);
    assert_eq!(bad["attr"], "filters_override");
    // A failed insight does not affect the others.
    placed(&app, "empty", json!([dashboard])).await;
    let broken = json!({"name": "broken", "query": {"kind": "PathsV2Query"}, "dashboards": [dashboard]});
    app.post(INSIGHTS, broken).await.expect(201);
    let all = app.get(&path).await.expect(200);
    assert_eq!(tile_names(&all), ["views", "empty", "broken"]);
    assert_eq!(all["tiles"][0]["insight"]["result"][0]["count"], 1.0);
}

#[tokio::test]
async fn an_invalid_query_string_of_a_write_is_rejected_before_anything_is_written() {
    let app = TestApp::new().await;
    let dashboard = made(&app, json!({"name": "D"})).await["id"].clone();
    let long = format!("client_query_id={}", "x".repeat(1001));
    for (query, attr) in [
        ("filters_override=x", "filters_override"),
        ("variables_override=%5B%5D", "variables_override"),
        (long.as_str(), "client_query_id"),
    ] {
        for (method, path) in [("POST", DASHBOARDS), ("PATCH", &one(&dashboard)), ("PUT", &one(&dashboard))] {
            let requested =
                TestApp::request(Keys::OWNER, method, &format!("{path}?{query}"), json!({"name": "changed"}));
            assert_eq!(app.send(requested).await.expect(400)["attr"], attr, "{method}");
        }
    }
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["count"], 1);
    assert_eq!(app.get(&one(&dashboard)).await.expect(200)["name"], "D");
}

#[tokio::test]
async fn tiles_are_arranged_by_their_numbers_in_one_write() {
    let app = TestApp::new().await;
    let dashboard = made(&app, json!({"name": "D"})).await["id"].clone();
    for name in ["a", "b", "c"] {
        placed(&app, name, json!([dashboard])).await;
    }
    let first = app.get(&one(&dashboard)).await.expect(200);
    let ids: Vec<Value> = first["tiles"].as_array().unwrap().iter().map(|tile| tile["id"].clone()).collect();
    assert_eq!(tile_names(&first), ["a", "b", "c"]);
    let at = |y: u64| json!({"sm": {"x": 0, "y": y, "w": 6, "h": 5}});
    let tiles = json!([{"id": ids[2], "layouts": at(0), "color": "blue"}, {"id": ids[0], "layouts": at(5)}]);
    let arranged = app.patch(&one(&dashboard), json!({"tiles": tiles})).await.expect(200);
    assert_eq!(tile_names(&arranged), ["c", "a", "b"], "the order of the layouts when they are next read");
    let read = app.get(&one(&dashboard)).await.expect(200);
    assert_eq!(tile_names(&read), ["c", "a", "b"]);
    assert_eq!((&read["tiles"][0]["color"], &read["tiles"][0]["layouts"]), (&json!("blue"), &at(0)));
    assert_eq!(read["tiles"][0]["insight"]["color"], "blue");
    // All or nothing.
    let tiles = json!([{"id": ids[0], "color": "red"}, {"id": 999, "color": "red"}]);
    let refused = app.patch(&one(&dashboard), json!({"tiles": tiles, "name": "no"})).await;
    refused.expect_invalid("does_not_exist", "Invalid pk \"999\" - object does not exist.", Some("tiles"));
    let same = app.get(&one(&dashboard)).await.expect(200);
    assert_eq!((&same["name"], &same["tiles"][1]["color"]), (&json!("D"), &Value::Null));
    // Concurrent changes of the insights are not lost.
    let insight = read["tiles"][1]["insight"]["id"].clone();
    let path = format!("{INSIGHTS}{insight}/");
    let own = one(&dashboard);
    let (moved, named) = tokio::join!(
        app.patch(&own, json!({"tiles": [{"id": ids[0], "color": "green"}]})),
        app.patch(&path, json!({"name": "renamed"}))
    );
    moved.expect(200);
    named.expect(200);
    let both = app.get(&one(&dashboard)).await.expect(200);
    let tile = &both["tiles"][1];
    assert_eq!((&tile["color"], &tile["insight"]["name"]), (&json!("green"), &json!("renamed")));
}

#[tokio::test]
async fn a_dashboard_has_a_limited_number_of_tiles_and_all_of_them_move_at_once() {
    let app = TestApp::new().await;
    let dashboard = made(&app, json!({"name": "D"})).await["id"].clone();
    for name in 0..90 {
        placed(&app, &format!("{name:02}"), json!([dashboard])).await;
    }
    let detail = format!("The dashboard {dashboard} has 90 tiles or more, and no more are put on it.");
    let refused = app.post(INSIGHTS, json!({"name": "x", "dashboards": [dashboard]})).await;
    refused.expect_invalid("invalid_input", &detail, Some("dashboards"));
    let free = placed(&app, "free", json!([])).await["id"].clone();
    let refused = app.patch(&format!("{INSIGHTS}{free}/"), json!({"dashboards": [dashboard]})).await;
    refused.expect_invalid("invalid_input", &detail, Some("dashboards"));
    let shown = app.get(&one(&dashboard)).await.expect(200);
    let tiles: Vec<Value> = shown["tiles"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(at, tile)| json!({"id": tile["id"], "layouts": {"sm": {"x": 0, "y": 90 - at}}}))
        .collect();
    assert_eq!(tiles.len(), 90);
    app.patch(&one(&dashboard), json!({"tiles": tiles, "name": "turned"})).await.expect(200);
    let turned = app.get(&one(&dashboard)).await.expect(200);
    assert_eq!((tile_names(&turned)[0], tile_names(&turned)[89]), ("89", "00"));
    let reported = app.get(&format!("{}activity/", one(&dashboard))).await.expect(200);
    assert_eq!(
        (&reported["total_count"], &reported["results"][0]["activity"]),
        (&json!(2), &json!("updated"))
    );
    assert_eq!(app.get("/api/projects/1/dashboards/activity/").await.expect(200)["total_count"], 2);
    // After one is removed, another can be added.
    let first = turned["tiles"][0]["insight"]["id"].clone();
    app.patch(&format!("{INSIGHTS}{first}/"), json!({"dashboards": []})).await.expect(200);
    app.patch(&format!("{INSIGHTS}{free}/"), json!({"dashboards": [dashboard]})).await.expect(200);
}

#[tokio::test]
async fn a_deletion_is_one_write_and_a_restoration_restores_everything() {
    let app = TestApp::new().await;
    let dashboard = made(&app, json!({"name": "D"})).await["id"].clone();
    for name in 0..20 {
        placed(&app, &format!("{name:02}"), json!([dashboard])).await;
    }
    app.services.app.keys.clear();
    app.round_trips.reset();
    let gone = app.patch(&one(&dashboard), json!({"deleted": true})).await.expect(200);
    assert_eq!((&gone["deleted"], &gone["tiles"]), (&json!(true), &json!([])));
    assert!(app.round_trips.sequential() <= 2, "{:?}", app.round_trips.calls());
    assert_eq!(app.get(&one(&dashboard)).await.status, 404);
    assert_eq!(app.patch(&one(&dashboard), json!({"name": "x"})).await.status, 404);
    assert_eq!(app.get(DASHBOARDS).await.expect(200)["count"], 0);
    let list = app.get(INSIGHTS).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["dashboards"]), (&json!(20), &json!([])));
    assert_eq!(app.get(&format!("{INSIGHTS}?dashboards=%5B{dashboard}%5D")).await.expect(200)["count"], 0);
    app.post(INSIGHTS, json!({"dashboards": [dashboard]})).await.expect(400);
    assert_eq!(entry(&app, "Dashboard", "deleted").await["item_id"], dashboard.to_string());
    // No scheduled task is due yet, and it is restored unchanged.
    let records = &app.services.app.store.records;
    let run =
        as_worker(run_scheduled_tasks(records, instant("2026-02-04T09:59:59Z"), Duration::from_secs(60)))
            .await
            .unwrap();
    assert_eq!(run.notes, 0);
    let back = app.patch(&one(&dashboard), json!({"deleted": "false", "name": "E"})).await.expect(200);
    assert_eq!((back["tiles"].as_array().unwrap().len(), &back["name"]), (20, &json!("E")));
    assert_eq!(entry(&app, "Dashboard", "restored").await["item_id"], dashboard.to_string());
    let run =
        as_worker(run_scheduled_tasks(records, instant("2027-01-01T00:00:00Z"), Duration::from_secs(60)))
            .await
            .unwrap();
    assert_eq!(run.notes, 0, "a restoration takes the note back");
    assert_eq!(app.get(&one(&dashboard)).await.expect(200)["tiles"].as_array().unwrap().len(), 20);
    // Deleted for so long that its tiles are removed.
    app.patch(&one(&dashboard), json!({"deleted": true})).await.expect(200);
    let run =
        as_worker(run_scheduled_tasks(records, instant("2026-02-04T10:00:00Z"), Duration::from_secs(60)))
            .await
            .unwrap();
    assert_eq!((run.notes, run.failed, run.unfinished), (1, 0, false));
    let id = dashboard.as_u64().unwrap();
    let left = records.query(PartitionQuery::partition(keys::dashboard_children_pk(1, id))).await.unwrap();
    assert!(left.is_empty());
    assert!(records.query(PartitionQuery::partition(keys::SCHEDULED_TASKS)).await.unwrap().is_empty());
    let insight: Value =
        records.get(&keys::record(1, keys::RecordKind::Insight, 1)).await.unwrap().unwrap().body().unwrap();
    assert_eq!(insight["tiles"], json!([]));
    let back = app.patch(&one(&dashboard), json!({"deleted": false})).await.expect(200);
    assert_eq!(back["tiles"], json!([]));
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 20);
}

#[tokio::test]
async fn insights_on_no_other_dashboard_may_be_deleted_with_it() {
    let app = TestApp::new().await;
    let (first, second) = (
        made(&app, json!({"name": "1"})).await["id"].clone(),
        made(&app, json!({"name": "2"})).await["id"].clone(),
    );
    placed(&app, "only here", json!([first])).await;
    placed(&app, "on both", json!([first, second])).await;
    placed(&app, "elsewhere", json!([second])).await;
    placed(&app, "nowhere", json!([])).await;
    app.patch(&one(&first), json!({"deleted": true, "delete_insights": true})).await.expect(200);
    let list = app.get(&format!("{INSIGHTS}?order=id")).await.expect(200);
    let names: Vec<&str> =
        list["results"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["on both", "elsewhere", "nowhere"]);
    let deleted = entry(&app, "Insight", "deleted").await;
    assert_eq!(deleted["detail"]["name"], "only here");
    let records = &app.services.app.store.records;
    assert_eq!(
        records.query(PartitionQuery::partition(keys::SCHEDULED_TASKS)).await.unwrap().len(),
        1,
        "the tiles, later"
    );
    // After a restore it has its existing tiles; the insight is restored separately.
    assert_eq!(
        tile_names(&app.patch(&one(&first), json!({"deleted": false})).await.expect(200)),
        ["on both"]
    );
    // The next run completes an interrupted one.
    let note = json!({"user": deleted_by(&app).await, "at": pennon_tests::NOW});
    app.patch(&one(&second), json!({"deleted": true})).await.expect(200);
    let mark = keys::dashboard_insights_task(instant(pennon_tests::NOW), 1, second.as_u64().unwrap());
    let item = pennon_core::store::Item::new(mark, &note).unwrap();
    records.put(item, pennon_core::store::WriteCondition::None).await.unwrap();
    let run =
        as_worker(run_scheduled_tasks(records, instant("2026-01-05T10:05:00Z"), Duration::from_secs(60)))
            .await
            .unwrap();
    assert_eq!((run.notes, run.failed), (1, 0));
    let list = app.get(&format!("{INSIGHTS}?order=id")).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["name"]), (&json!(2), &json!("on both")));
}

async fn deleted_by(app: &TestApp) -> Value {
    app.get(&format!("{INSIGHTS}?order=id")).await.expect(200)["results"][0]["created_by"].clone()
}

#[tokio::test]
async fn changes_are_logged_and_concurrent_changes_are_all_kept() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "D", "tags": ["x"]})).await["id"].clone();
    app.patch(&one(&id), json!({})).await.expect(200);
    app.patch(&one(&id), json!({"pinned": true, "tags": [], "filters": {"date_from": "-1d"}}))
        .await
        .expect(200);
    let changes = entry(&app, "Dashboard", "updated").await["detail"]["changes"].clone();
    let fields: Vec<&str> =
        changes.as_array().unwrap().iter().map(|it| it["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["pinned", "filters", "tags"]);
    assert_eq!(app.patch(&one(&id), json!({"filters": {}})).await.expect(200)["filters"], json!({}));
    let bodies =
        [json!({"name": "E"}), json!({"description": "d"}), json!({"pinned": false}), json!({"tags": ["t"]})];
    for response in futures::future::join_all(bodies.map(async |body| app.patch(&one(&id), body).await)).await
    {
        response.expect(200);
    }
    let all = app.get(&one(&id)).await.expect(200);
    assert_eq!(
        (&all["name"], &all["description"], &all["pinned"], &all["tags"]),
        (&json!("E"), &json!("d"), &json!(false), &json!(["t"]))
    );
}

#[tokio::test]
async fn lists_are_ordered_filtered_and_complete_for_ten_thousand() {
    let declared = |id: u64| json!({"project": "1", "id": id, "name": format!("Board {id:05}")});
    let app = TestApp::with(json!({"dashboards": (1..=10_000).map(declared).collect::<Vec<_>>()})).await;
    let first = app.get(&format!("{DASHBOARDS}?limit=3")).await.expect(200);
    assert_eq!((&first["count"], &first["results"][0]["name"]), (&json!(10_000), &json!("Board 00001")));
    app.patch(&one(&json!(7777)), json!({"pinned": true, "tags": ["Top"]})).await.expect(200);
    made(&app, json!({"name": "Generated Dashboard: x"})).await;
    app.services.app.keys.clear();
    app.round_trips.reset();
    let page = app.get(&format!("{DASHBOARDS}?limit=2&offset=0")).await.expect(200);
    assert!(app.round_trips.sequential() <= 4, "{:?}", app.round_trips.calls());
    assert_eq!((&page["results"][0]["id"], &page["results"][1]["id"]), (&json!(7777), &json!(1)));
    for (query, count) in [
        ("search=board%2000", 999),
        ("search=TOP", 1),
        ("tags=top", 1),
        ("tags=none", 0),
        ("exclude_generated=true", 10_000),
        ("creation_mode=template", 0),
        ("creation_mode=default", 10_001),
    ] {
        assert_eq!(app.get(&format!("{DASHBOARDS}?{query}")).await.expect(200)["count"], count, "{query}");
    }
    let last = app.get(&format!("{DASHBOARDS}?limit=1000&offset=10000")).await.expect(200);
    assert_eq!((last["results"].as_array().unwrap().len(), &last["next"]), (1, &Value::Null));
}

#[tokio::test]
async fn a_usage_dashboard_is_one_of_them() {
    let app = TestApp::new().await;
    let flag = app.flag("alpha").await;
    app.post(&format!("/api/projects/1/feature_flags/{flag}/dashboard/"), json!({})).await.expect(200);
    let list = app.get(DASHBOARDS).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["creation_mode"]), (&json!(1), &json!("template")));
    let id = list["results"][0]["id"].clone();
    assert_eq!(app.get(&one(&id)).await.expect(200)["tiles"].as_array().unwrap().len(), 2);
    // An edit keeps the link from the flag.
    app.patch(&one(&id), json!({"description": "mine"})).await.expect(200);
    let path = format!("/api/projects/1/feature_flags/{flag}/");
    app.patch(&path, json!({"has_enriched_analytics": true})).await.expect(200);
    app.post(&format!("{path}enrich_usage_dashboard/"), json!({})).await.expect(200);
    let now = app.get(&one(&id)).await.expect(200);
    assert_eq!((&now["description"], now["tiles"].as_array().unwrap().len()), (&json!("mine"), 4));
}

#[tokio::test]
async fn time_given_by_the_client_is_the_time_of_the_record() {
    let app = TestApp::new().await;
    let mut request = TestApp::request(Keys::OWNER, "POST", DASHBOARDS, json!({"name": "x"}));
    request.headers_mut().insert(NOW_HEADER, "2026-01-06T00:00:00Z".parse().unwrap());
    assert_eq!(app.send(request).await.expect(201)["created_at"], "2026-01-06T00:00:00Z");
}

/// Insights whose records together are more than a response, and more than a transaction.
#[tokio::test]
async fn a_dashboard_that_is_too_large_to_be_shown_is_still_managed() {
    let app = TestApp::new().await;
    let dashboard = made(&app, json!({"name": "D"})).await["id"].clone();
    let mut random = pennon_tests::Random::new(1);
    let mut text = || (0..12_500).map(|_| format!("{:016x}", random.number())).collect::<String>();
    for _ in 0..30 {
        let query = json!({"kind": "RetentionQuery", "text": text()});
        let body = json!({"query": query, "filters": {"text": text()}, "dashboards": [dashboard]});
        app.post(INSIGHTS, body).await.expect(201);
    }
    let refused = app.get(&one(&dashboard)).await.expect(400);
    assert!(refused["detail"].as_str().unwrap().contains("too large for one response"), "{refused}");
    let pinned = app.patch(&one(&dashboard), json!({"pinned": true})).await.expect(200);
    assert_eq!((&pinned["pinned"], &pinned["tiles"]), (&json!(true), &Value::Null));
    let tiles: Vec<Value> = (1..=30).map(|tile| json!({"id": tile, "color": "blue"})).collect();
    let refused = app.patch(&one(&dashboard), json!({"tiles": tiles})).await.expect(400);
    assert_eq!(refused["attr"], "tiles", "{refused}");
    app.patch(&one(&dashboard), json!({"tiles": tiles[..5]})).await.expect(200);
}
