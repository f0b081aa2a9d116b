//! The persons behind numbers: links lead to the counted number of persons.

use std::io::Write as _;

use pennon::import::{ImportOptions, import_file};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FUNNEL: &str = "/api/projects/1/insights/funnel/";
const PEOPLE: &str = "/api/projects/1/persons/funnel/";

/// Two persons of two organizations sign up, one of them buys.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let event = |what: &str, who: &str, when: &str, organization: &str| {
        json!({"project": "1", "event": what, "distinct_id": who, "timestamp": when,
               "properties": {"$groups": {"organization": organization}}})
    };
    let lines = [
        json!({"project": "1", "group": {"type": "organization", "index": 0, "key": "a", "properties": {"x": 1}}}),
        json!({"project": "1", "group": {"type": "company", "index": 1, "key": "b", "properties": {"plan": "pro"}}}),
        json!({"project": "1", "person": {"distinct_ids": ["ann", "ann@home"], "properties": {"email": "ann@example.com"}}}),
        event("signed up", "ann@home", "2026-01-01T10:00:00Z", "a"),
        event("bought", "ann", "2026-01-01T12:00:00Z", "a"),
        event("signed up", "bob", "2026-01-02T10:00:00Z", "b"),
    ];
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
    let types = vec!["organization".to_owned(), "company".to_owned()];
    let options = ImportOptions { group_types: [(1, types)].into(), ..ImportOptions::default() };
    let now = app.services.app.clock.now(None).timestamp_micros();
    import_file(&app.services.events, file.path(), options, now, &mut |_| {}).await.unwrap();
    app
}

fn steps() -> Value {
    json!({"events": [{"id": "signed up", "order": 0}, {"id": "bought", "order": 1}]})
}

#[tokio::test]
async fn a_link_of_a_funnel_lists_persons_who_converted_or_dropped_off() {
    let app = shop().await;
    let response = app.post(FUNNEL, steps()).await.expect(200);
    let follow = async |link: &Value| app.get(link.as_str().unwrap()).await.expect(200);
    let converted = follow(&response["result"][1]["converted_people_url"]).await;
    assert_eq!((&converted["results"][0]["count"], &converted["total_count"]), (&json!(1), &json!(1)));
    let ann = &converted["results"][0]["people"][0];
    assert_eq!(ann["distinct_ids"], json!(["ann", "ann@home"]));
    assert_eq!(
        (&ann["properties"], &ann["name"]),
        (&json!({"email": "ann@example.com"}), &json!("ann@example.com"))
    );
    assert_eq!(ann["matched_times"], json!(["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"]));
    assert_eq!((&ann["type"], &ann["id"]), (&json!("person"), &ann["uuid"]));
    let dropped = follow(&response["result"][1]["dropped_people_url"]).await;
    assert_eq!(dropped["results"][0]["people"][0]["distinct_ids"], json!(["bob"]));
    assert_eq!((&dropped["next"], &dropped["previous"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn pages_contain_each_person_once() {
    let app = shop().await;
    let mut ids = Vec::new();
    let mut path = format!("{PEOPLE}?limit=1");
    let mut body = steps();
    body["funnel_step"] = json!(1);
    loop {
        let page = app.post(&path, body.clone()).await.expect(200);
        assert_eq!((&page["results"][0]["count"], &page["total_count"]), (&json!(1), &json!(2)));
        ids.push(page["results"][0]["people"][0]["id"].clone());
        match page["next"].as_str() {
            Some(next) => path = next.strip_prefix("http://api.test").unwrap().to_owned(),
            None => {
                assert_eq!(page["previous"], json!(format!("http://api.test{PEOPLE}?limit=1")));
                break;
            }
        }
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    let past = app.post(&format!("{PEOPLE}?offset=5"), body).await.expect(200);
    assert_eq!(past["results"], json!([{"people": [], "count": 0}]));
}

#[tokio::test]
async fn groups_are_shown_where_groups_are_counted() {
    let app = shop().await;
    let series =
        json!([{"kind": "EventsNode", "event": "signed up"}, {"kind": "EventsNode", "event": "bought"}]);
    let node = json!({"kind": "FunnelsQuery", "series": series, "aggregation_group_type_index": 0});
    let response = app.post("/api/projects/1/query/", json!({"query": node})).await.expect(200);
    assert_eq!(response["results"][0]["count"], 2);
    let link = response["results"][1]["converted_people_url"].as_str();
    if let Some(link) = link {
        let page = app.get(link).await.expect(200);
        let group = &page["results"][0]["people"][0];
        assert_eq!(
            (&group["type"], &group["id"], &group["group_type_index"]),
            (&json!("group"), &json!("a"), &json!(0))
        );
        assert_eq!(group["properties"], json!({"x": 1}));
    }
}

#[tokio::test]
async fn keys_are_checked_and_unknown_numbers_are_rejected() {
    let app = shop().await;
    assert_eq!(app.call("", "GET", PEOPLE, Value::Null).await.status, 401);
    let refused = app.call(Keys::READ_FLAGS, "GET", PEOPLE, Value::Null).await.expect(403);
    assert_eq!(refused["detail"], "API key missing required scope 'person:read'");
    assert_eq!(app.call(Keys::STRANGER, "GET", PEOPLE, Value::Null).await.status, 403);
    app.get(PEOPLE).await.expect_invalid("required", "This field is required.", Some("events"));
    app.post(PEOPLE, steps()).await.expect_invalid(
        "required",
        "This field is required.",
        Some("funnel_step"),
    );
    let mut body = steps();
    body["funnel_step"] = json!(7);
    assert_eq!(app.post(PEOPLE, body).await.expect(400)["attr"], "funnel_step");
    assert_eq!(app.call(Keys::OWNER, "PUT", PEOPLE, json!({})).await.status, 405);
    let environment = app.get("/api/environments/1/persons/funnel").await;
    assert_eq!(environment.status, 400);
}
