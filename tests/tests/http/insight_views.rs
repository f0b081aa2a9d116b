//! Views of insights, and measurements of clients.

use pennon_core::clock::NOW_HEADER;
use pennon_core::store::PartitionQuery;
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";
const LAST: &str = "/api/projects/1/insights/my_last_viewed/";

async fn made(app: &TestApp, name: &str) -> u64 {
    app.post(INSIGHTS, json!({"name": name})).await.expect(201)["id"].as_u64().unwrap()
}

/// Views an insight at a second of one minute.
async fn view(app: &TestApp, key: &str, id: u64, second: u32) -> TestResponse {
    at(app, key, "POST", &format!("{INSIGHTS}{id}/viewed/"), json!({}), second).await
}

async fn at(app: &TestApp, key: &str, method: &str, path: &str, body: Value, second: u32) -> TestResponse {
    let mut request = TestApp::request(key, method, path, body);
    let now = format!("2026-01-06T12:00:{second:02}Z");
    request.headers_mut().insert(NOW_HEADER, now.parse().unwrap());
    app.send(request).await
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|insight| insight["id"].as_u64().unwrap()).collect()
}

async fn last(app: &TestApp, key: &str) -> Vec<u64> {
    ids(&app.call(key, "GET", LAST, Value::Null).await.expect(200))
}

#[tokio::test]
async fn the_last_five_views_are_of_the_user_without_deleted_insights() {
    let app = TestApp::new().await;
    assert_eq!(app.get(LAST).await.expect(200), json!([]));
    for number in 1..=8 {
        assert_eq!(made(&app, &format!("n{number}")).await, number);
    }
    for (second, id) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 2)] {
        let viewed = view(&app, Keys::OWNER, id, second).await;
        assert_eq!((viewed.status.as_u16(), viewed.text.as_str()), (200, ""));
    }
    assert_eq!(last(&app, Keys::OWNER).await, [2, 7, 6, 5, 4]);
    // A view that arrives late changes nothing.
    view(&app, Keys::OWNER, 7, 1).await.expect(200);
    assert_eq!(last(&app, Keys::OWNER).await, [2, 7, 6, 5, 4]);
    for id in [2, 6] {
        app.patch(&format!("{INSIGHTS}{id}/"), json!({"deleted": true})).await.expect(200);
    }
    assert_eq!(last(&app, Keys::OWNER).await, [7, 5, 4, 3, 1], "deleted ones leave room for others");
    assert_eq!(view(&app, Keys::OWNER, 2, 20).await.status, 404);
    app.patch(&format!("{INSIGHTS}2/"), json!({"deleted": false})).await.expect(200);
    assert_eq!(last(&app, Keys::OWNER).await, [2, 7, 5, 4, 3]);
    assert_eq!(last(&app, Keys::MEMBER).await, [] as [u64; 0]);
    view(&app, Keys::MEMBER, 8, 9).await.expect(200);
    assert_eq!(last(&app, Keys::MEMBER).await, [8]);
    assert_eq!(app.get("/api/projects/2/insights/my_last_viewed").await.expect(200), json!([]));
    let short = app.get(LAST).await.expect(200)[0].clone();
    let listed =
        app.get(&format!("{INSIGHTS}?basic=true&short_id={}", short["short_id"].as_str().unwrap())).await;
    let mut expected = listed.expect(200)["results"][0].clone();
    assert_eq!(expected["last_viewed_at"], "2026-01-06T12:00:08Z");
    expected["last_viewed_at"] = Value::Null;
    assert_eq!(short, expected);
}

#[tokio::test]
async fn only_existing_insights_are_viewed_by_users_who_may_read_them() {
    let keys = json!([{"label": "r", "user": "member@example.com", "scopes": ["insight:read"], "projects": [], "value": "phx_reads_insights"}]);
    let dashboards = json!([{"project": "1", "id": 5, "name": "Five", "restriction_level": 37, "created_by": "owner@example.com"}]);
    let app = TestApp::with(json!({"keys": keys, "dashboards": dashboards})).await;
    let id =
        app.post(INSIGHTS, json!({"name": "x", "dashboards": [5]})).await.expect(201)["id"].as_u64().unwrap();
    assert_eq!(view(&app, "phx_reads_insights", id, 1).await.status, 200, "who may only look may view");
    assert_eq!(view(&app, Keys::READ_FLAGS, id, 1).await.status, 403);
    assert_eq!(view(&app, "", id, 1).await.status, 401);
    for path in [
        format!("{INSIGHTS}99/viewed/"),
        format!("{INSIGHTS}x/viewed/"),
        format!("/api/projects/2/insights/{id}/viewed/"),
    ] {
        app.post(&path, json!({})).await.expect_error(
            404,
            "invalid_request",
            "not_found",
            "Not found.",
            None,
        );
    }
    // The body is ignored.
    let mut text = TestApp::request(Keys::OWNER, "POST", &format!("{INSIGHTS}{id}/viewed"), Value::Null);
    *text.body_mut() = "not json".into();
    assert_eq!(app.send(text).await.status, 200);
    let log = app.get(&format!("{INSIGHTS}{id}/activity/")).await.expect(200);
    assert_eq!(log["total_count"], 1, "views are not logged");
    assert_eq!(app.get(&format!("{INSIGHTS}{id}/")).await.expect(200)["last_viewed_at"], Value::Null);
}

#[tokio::test]
async fn several_insights_are_viewed_at_once_and_unknown_ones_skipped() {
    let app = TestApp::new().await;
    let (a, b, gone) = (made(&app, "a").await, made(&app, "b").await, made(&app, "gone").await);
    app.patch(&format!("{INSIGHTS}{gone}/"), json!({"deleted": true})).await.expect(200);
    let path = format!("{INSIGHTS}viewed/");
    let sent = json!({"insight_ids": [b, 999, gone, a, a, "2", -5]});
    let response = at(&app, Keys::OWNER, "POST", &path, sent, 3).await;
    assert_eq!((response.status.as_u16(), response.text.as_str()), (200, ""));
    assert_eq!(last(&app, Keys::OWNER).await, [b, a]);
    let rows =
        app.services.app.store.records.query(PartitionQuery::partition("PROJECT#1#VIEWED#1")).await.unwrap();
    assert_eq!(rows.len(), 2);
    for (body, code, detail) in [
        (json!({}), "required", "This field is required."),
        (json!({"insight_ids": null}), "required", "This field is required."),
        (json!({"insight_ids": []}), "empty", "This list may not be empty."),
        (json!({"insight_ids": 5}), "not_a_list", "Expected a list of items but got type \"int\"."),
        (
            json!({"insight_ids": (0..101).collect::<Vec<u32>>()}),
            "invalid_input",
            "At most 100 entries are allowed.",
        ),
    ] {
        app.post(&path, body).await.expect_invalid(code, detail, Some("insight_ids"));
    }
    assert_eq!(app.post(&path, json!({"insight_ids": [{}]})).await.expect(400)["code"], "incorrect_type");
    app.post(&path, json!({"insight_ids": (0..100).collect::<Vec<u32>>()})).await.expect(200);
    assert_eq!(
        app.call(Keys::READ_FLAGS, "POST", &path, json!({})).await.status,
        403,
        "before the body is validated"
    );
}

/// Many users view a few insights concurrently: none waits for another, and the latest view of each counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_latest_of_many_views_counts() {
    let app = TestApp::new().await;
    for name in ["a", "b", "c", "d"] {
        made(&app, name).await;
    }
    let views = (0..240_u32).map(|number| {
        let key = if number % 2 == 0 { Keys::OWNER } else { Keys::MEMBER };
        let (id, second) = (u64::from(number % 3) + 1, number * 37 % 60);
        let app = &app;
        async move { (key, id, second, view(app, key, id, second).await.status.as_u16()) }
    });
    let done = futures::future::join_all(views).await;
    assert!(done.iter().all(|(.., status)| *status == 200));
    let latest = |id: u64| done.iter().filter(|it| it.1 == id).map(|it| it.2).max().unwrap();
    let list = app.get(&format!("{INSIGHTS}?order=-last_viewed_at")).await.expect(200);
    let mut expected: Vec<u64> = vec![1, 2, 3];
    expected.sort_by_key(|id| (std::cmp::Reverse(latest(*id)), *id));
    expected.push(4);
    assert_eq!(ids(&list["results"]), expected, "never viewed comes last");
    for insight in list["results"].as_array().unwrap() {
        let id = insight["id"].as_u64().unwrap();
        let shown = (id < 4).then(|| format!("2026-01-06T12:00:{:02}Z", latest(id)));
        assert_eq!(insight["last_viewed_at"], json!(shown));
    }
    let ascending = app.get(&format!("{INSIGHTS}?order=last_viewed_at&limit=2&basic=1")).await.expect(200);
    assert_eq!(ascending["results"][0]["id"], 4, "never viewed comes first");
    // Equal times are sorted by id.
    let mut rest: Vec<u64> = vec![1, 2, 3];
    rest.sort_by_key(|id| (latest(*id), *id));
    assert_eq!(ascending["results"][1]["id"], rest[0]);
}

#[tokio::test]
async fn a_view_takes_two_round_trips() {
    let app = TestApp::new().await;
    let id = made(&app, "a").await;
    let app = app.another_process();
    view(&app, Keys::OWNER, id, 1).await.expect(200);
    let app = app.another_process();
    app.round_trips.reset();
    view(&app, Keys::OWNER, id, 2).await.expect(200);
    assert_eq!(app.round_trips.sequential(), 2, "key, project and insight; then both rows");
}

#[tokio::test]
async fn measurements_of_clients_are_accepted_and_not_stored() {
    let app = TestApp::new().await;
    let path = format!("{INSIGHTS}timing/");
    let body = json!({"query_id": "q1", "type": "insight_load", "time_to_see_data_ms": 120, "is_primary_interaction": true});
    let response = app.post(&path, body).await;
    assert_eq!((response.status.as_u16(), response.text.as_str()), (200, ""));
    assert_eq!(app.post(&path, Value::Null).await.status, 200);
    let bytes = |count: usize| json!({"x": "x".repeat(count - "{\"x\":\"\"}".len())});
    assert_eq!(app.post(&path, bytes(32 * 1024)).await.status, 200);
    let large = app.post(&path, bytes(32 * 1024 + 1)).await;
    assert_eq!((large.status.as_u16(), &large.json()["code"]), (413, &json!("payload_too_large")));
    assert_eq!(app.post(&path, json!([1])).await.expect(400)["code"], "invalid_input");
    let mut text = TestApp::request(Keys::OWNER, "POST", &path, Value::Null);
    *text.body_mut() = "{".into();
    text.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(app.send(text).await.expect(400)["code"], "parse_error");
    assert_eq!(app.call(Keys::READ_FLAGS, "POST", &path, json!({})).await.status, 403);
}
