//! Every list, log, feed and table at its largest: responses that pass a gateway are returned, larger ones are rejected by name.
//!
//! That each response of each test goes through a gateway is checked where tests send their requests (`pennon_tests`). The
//! lists of flags, of roles' access and the logs at their largest are in `large_records`, `role_access` and `activity`,
//! dashboards in `dashboards`, definitions in `feed_size` and `definitions`.

use axum::http::header;
use chrono::{DateTime, Utc};
use pennon_eventstore::{Event, PersonRecord};
use pennon_tests::{Keys, NOW, TestApp, TestResponse, noise, now_micros};
use serde_json::{Value, json};
use uuid::Uuid;

const INSIGHTS: &str = "/api/projects/1/insights/";
const TREND: &str = "/api/projects/1/insights/trend/";
const PERSONS: &str = "/api/projects/1/persons/";
const TOO_LARGE: &str =
    "The response is larger than 6 MB. Request less, or send the header Accept-Encoding: gzip.";

fn micros(instant: &str) -> i64 {
    instant.parse::<DateTime<Utc>>().unwrap().timestamp_micros()
}

/// A shop in which a thousand plans have names of 2,900 characters.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let events: Vec<Event> = (0..1000)
        .map(|number| Event {
            uuid: Uuid::new_v4(),
            event: "bought".to_owned(),
            distinct_id: format!("p{number}"),
            timestamp: micros("2026-01-02T10:00:00Z"),
            properties: json!({"plan": noise(number, 2_900)}).as_object().unwrap().clone(),
        })
        .collect();
    app.services.events.append(1, &events, micros(NOW)).await.unwrap();
    app
}

fn query() -> Value {
    json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "bought"}],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-02"},
        "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": 1000}})
}

async fn packed(app: &TestApp, method: &str, path: &str, body: Value) -> TestResponse {
    let mut request = TestApp::request(Keys::OWNER, method, path, body);
    request.headers_mut().insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    app.send(request).await
}

/// The largest limit that the error of a page names.
fn named_limit(response: &TestResponse) -> usize {
    let refusal = response.expect(400);
    assert_eq!((&refusal["code"], &refusal["attr"]), (&json!("invalid_input"), &json!("limit")), "{refusal}");
    let detail = refusal["detail"].as_str().unwrap();
    let number =
        detail.strip_prefix("The response is too large. The largest limit that fits here is ").unwrap();
    number.strip_suffix('.').unwrap().parse().unwrap()
}

#[tokio::test]
async fn too_long_results_are_compressed_or_rejected_and_never_undo_a_write() {
    let app = shop().await;
    let legacy = json!({"events": [{"id": "bought"}], "date_from": "2026-01-01", "date_to": "2026-01-02",
        "breakdown": "plan", "breakdown_type": "event", "breakdown_limit": 1000});
    app.post(TREND, legacy.clone()).await.expect_invalid("invalid_input", TOO_LARGE, None);
    let response = packed(&app, "POST", TREND, legacy).await;
    assert_eq!((response.status.as_u16(), response.header("content-encoding")), (200, "gzip"));

    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let made = app.post(INSIGHTS, json!({"name": name, "query": query()})).await.expect(201);
        ids.push(made["id"].as_u64().unwrap());
    }
    let one = format!("{INSIGHTS}{}/", ids[0]);
    let wait = format!("{one}?refresh=blocking");
    app.get(&wait).await.expect_invalid("invalid_input", TOO_LARGE, None);
    let response = packed(&app, "GET", &wait, Value::Null).await;
    assert_eq!((response.status.as_u16(), response.header("content-encoding")), (200, "gzip"));
    // The write is done, whether its result can be shown or not.
    let changed = app.patch(&one, json!({"name": "changed"})).await.expect(200);
    assert_eq!((&changed["name"], &changed["result"]), (&json!("changed"), &Value::Null));
    assert_eq!(app.get(&format!("{one}?basic=true")).await.expect(200)["name"], "changed");
    let table = app.patch(&format!("{one}?format=csv"), json!({"name": "again"})).await;
    assert_eq!((table.status.as_u16(), table.text.contains("again")), (200, true));

    let table = app.get(&format!("{one}?format=csv&refresh=blocking")).await;
    assert_eq!(table.status, 400);
    assert!(table.text.contains("larger than 6 MB"), "{}", table.text);

    // A page of three such results is too long even when it is packed.
    let list = format!("{INSIGHTS}?limit=3&refresh=blocking");
    let most = named_limit(&packed(&app, "GET", &list, Value::Null).await);
    assert!((1..3).contains(&most), "{most}");
    let page = packed(&app, "GET", &format!("{INSIGHTS}?limit={most}&refresh=blocking"), Value::Null).await;
    assert_eq!(page.status, 200);
    assert_eq!(app.get(&format!("{INSIGHTS}?limit=3&basic=true")).await.expect(200)["count"], 3);
}

#[tokio::test]
async fn pages_of_persons_with_long_properties_pass_the_gateway() {
    let app = TestApp::new().await;
    let now = now_micros();
    let person = |number: u64| PersonRecord {
        distinct_ids: vec![format!("p{number}")],
        properties: json!({"note": noise(number, 100_000)}).as_object().unwrap().clone(),
        created_at: Some(now),
    };
    app.services.events.add_persons(1, (0..90).map(person).collect(), 1).await.unwrap();
    let most = named_limit(&app.get(&format!("{PERSONS}?limit=90")).await);
    assert!((55..60).contains(&most), "6 MB of 100 KB each: {most}");
    app.get(&format!("{PERSONS}?limit={most}")).await.expect(200);
    assert_eq!(named_limit(&app.get(&format!("{PERSONS}?limit={}", most + 1)).await), most);

    let events: Vec<Event> = (0..90)
        .map(|number| Event {
            uuid: Uuid::new_v4(),
            event: "bought".to_owned(),
            distinct_id: format!("p{number}"),
            timestamp: micros("2026-01-02T10:00:00Z"),
            properties: serde_json::Map::new(),
        })
        .collect();
    app.services.events.append(1, &events, micros(NOW)).await.unwrap();
    let people = "/api/projects/1/persons/trends/?events=%5B%7B%22id%22%3A%22bought%22%7D%5D&date_from=2026-01-01\
                  &date_to=2026-01-02&limit=";
    app.get(&format!("{people}90")).await.expect_invalid("invalid_input", TOO_LARGE, None);
    let page = app.get(&format!("{people}40")).await.expect(200);
    assert_eq!(page["results"][0]["people"].as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn pages_of_cohorts_and_actions_with_many_conditions_pass_the_gateway() {
    let app = TestApp::new().await;
    let values = |seed: u64| (0..200).map(|at| noise(seed * 1_000 + at, 1_000)).collect::<Vec<_>>();
    for number in 0..36 {
        let leaf = json!({"key": "email", "type": "person", "operator": "exact", "value": values(number)});
        let filters = json!({"properties": {"type": "OR", "values": [{"type": "OR", "values": [leaf]}]}});
        let body = json!({"name": format!("c{number}"), "filters": filters});
        app.post("/api/projects/1/cohorts/", body).await.expect(201);
        let step = json!({"event": "bought", "properties": [
            {"key": "email", "type": "event", "operator": "exact", "value": values(number)}]});
        let body = json!({"name": format!("a{number}"), "steps": [step]});
        app.post("/api/projects/1/actions/", body).await.expect(201);
    }
    for list in ["cohorts", "actions"] {
        let list = format!("/api/projects/1/{list}/?limit=");
        let most = named_limit(&app.get(&format!("{list}100")).await);
        assert!((25..30).contains(&most), "6 MB of 200 KB each: {list}{most}");
        app.get(&format!("{list}{most}")).await.expect(200);
        assert_eq!(named_limit(&app.get(&format!("{list}{}", most + 1)).await), most);
    }
}
