//! Results that are too large for the table are in the object store: they cost one more read, and missing ones are calculated again.

use std::path::PathBuf;

use chrono::{DateTime, Duration, Utc};
use pennon::delete::DeleteRequest;
use pennon_core::clock::Clock;
use pennon_core::store::{PartitionQuery as Rows, keys};
use pennon_eventstore::{ErasureTarget, Event};
use pennon_tests::{NOW, Random, TestApp, as_worker};
use serde_json::{Value, json};
use uuid::Uuid;

const TREND: &str = "/api/projects/1/insights/trend/";
const INSIGHTS: &str = "/api/projects/1/insights/";
/// Values of the breakdown.
const VALUES: usize = 600;

fn micros(instant: &str) -> i64 {
    instant.parse::<DateTime<Utc>>().unwrap().timestamp_micros()
}

/// A shop in which plans have long names that do not compress.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let mut random = Random::new(5);
    let mut name =
        || (0..1500).map(|_| char::from_digit(random.below(36) as u32, 36).unwrap()).collect::<String>();
    let events: Vec<Event> = (0..VALUES)
        .map(|number| Event {
            uuid: Uuid::new_v4(),
            event: "bought".to_owned(),
            distinct_id: format!("p{number}"),
            timestamp: micros("2026-01-02T10:00:00Z"),
            properties: json!({"plan": name()}).as_object().unwrap().clone(),
        })
        .collect();
    app.services.events.append(1, &events, micros(NOW)).await.unwrap();
    app
}

fn query() -> Value {
    json!({"events": [{"id": "bought"}], "date_from": "2026-01-01", "date_to": "2026-01-02", "breakdown": "plan",
        "breakdown_type": "event", "breakdown_limit": 1000})
}

/// The same as an insight.
fn insight() -> Value {
    json!({"name": "i", "query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "bought"}],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-02"},
        "breakdownFilter": {"breakdown": "plan", "breakdown_type": "event", "breakdown_limit": 1000}}})
}

/// The objects of results of the project.
fn objects(app: &TestApp) -> Vec<PathBuf> {
    let folder = app.events_url().replace("file://", "") + "/results/project=1";
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_result_larger_than_an_item_is_cached_and_returned() {
    let app = shop().await;
    let calculated = app.post(TREND, query()).await.expect(200);
    assert_eq!(calculated["result"].as_array().unwrap().len(), VALUES);
    assert_eq!(objects(&app).len(), 1);
    let rows = app.services.app.store.records.query(Rows::partition(keys::result(1, "").pk)).await.unwrap();
    assert!(rows.len() == 1 && rows[0].text.len() < 2_000, "{}", rows[0].text);
    let shown = app.post(TREND, query()).await.expect(200);
    assert_eq!((&shown["is_cached"], &shown["result"]), (&json!(true), &calculated["result"]));
    // For every process, not only from the memory of this one.
    let shown = app.another_process().post(TREND, query()).await.expect(200);
    assert_eq!((&shown["is_cached"], &shown["result"]), (&json!(true), &calculated["result"]));
    assert_eq!(objects(&app).len(), 1);
}

#[tokio::test]
async fn an_insight_with_a_large_result_takes_the_same_round_trips() {
    let app = shop().await;
    let small = json!({"name": "s", "query": {"kind": "TrendsQuery",
        "series": [{"kind": "EventsNode", "event": "bought"}]}});
    let mut trips = Vec::new();
    for body in [small, insight()] {
        let path = format!("{INSIGHTS}{}/", app.post(INSIGHTS, body).await.expect(201)["id"]);
        app.get(&format!("{path}?refresh=blocking")).await.expect(200);
        let before = app.round_trips.sequential();
        let shown = app.get(&path).await.expect(200);
        assert_eq!(shown["is_cached"], true);
        trips.push(app.round_trips.sequential() - before);
    }
    assert_eq!(trips[0], trips[1]);
}

#[tokio::test]
async fn a_missing_or_damaged_object_is_calculated_again_without_an_error() {
    let app = shop().await;
    let path = format!("{INSIGHTS}{}/", app.post(INSIGHTS, insight()).await.expect(201)["id"]);
    let blocking = format!("{path}?refresh=blocking");
    let calculated = app.get(&blocking).await.expect(200);
    type Spoils = fn(&PathBuf);
    let spoils: [Spoils; 3] = [
        |file| std::fs::remove_file(file).unwrap(),
        |file| {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).unwrap();
        },
        |file| std::fs::write(file, b"").unwrap(),
    ];
    for spoil in spoils {
        objects(&app).iter().for_each(spoil);
        let shown = app.get(&path).await.expect(200);
        assert_eq!((&shown["result"], &shown["last_refresh"]), (&Value::Null, &Value::Null));
        let again = app.get(&blocking).await.expect(200);
        assert_eq!((&again["is_cached"], &again["result"]), (&json!(false), &calculated["result"]));
        let kept = app.get(&blocking).await.expect(200);
        assert_eq!((&kept["is_cached"], &kept["result"]), (&json!(true), &calculated["result"]));
    }
    // A page is not affected.
    objects(&app).iter().for_each(spoils[0]);
    app.post(INSIGHTS, json!({"name": "other"})).await.expect(201);
    let page = app.get(INSIGHTS).await.expect(200);
    assert_eq!(page["count"], 2);
}

#[tokio::test]
async fn a_result_whose_object_cannot_be_written_is_returned_and_not_cached() {
    let app = shop().await;
    std::fs::write(app.events_url().replace("file://", "") + "/results", b"no folder").unwrap();
    for _ in 0..2 {
        let response = app.post(TREND, query()).await.expect(200);
        assert_eq!(
            (&response["is_cached"], response["result"].as_array().unwrap().len()),
            (&json!(false), VALUES)
        );
    }
    let rows = app.services.app.store.records.query(Rows::partition(keys::result(1, "").pk)).await.unwrap();
    assert_eq!(rows, []);
}

#[tokio::test]
async fn erasing_removes_the_objects_of_the_project() {
    let app = shop().await;
    app.post(TREND, query()).await.expect(200);
    assert_eq!(objects(&app).len(), 1);
    let store = &app.services.app.store;
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("p7".to_owned()) };
    request.erase(store, &app.services.events, &|| micros(NOW)).await.unwrap();
    assert_eq!(objects(&app), Vec::<PathBuf>::new());
    let after = app.post(TREND, query()).await.expect(200);
    assert_eq!((&after["is_cached"], after["result"].as_array().unwrap().len()), (&json!(false), VALUES - 1));
}

#[tokio::test]
async fn a_sweep_keeps_listed_objects_and_removes_the_others() {
    let app = shop().await;
    let mut forced = query();
    forced["refresh"] = json!(true);
    for _ in 0..3 {
        app.post(TREND, forced.clone()).await.expect(200);
    }
    assert_eq!(objects(&app).len(), 3);
    let sweep = async |later: Duration| {
        let now = Clock::Running.now(None) + later;
        as_worker(app.services.calculator.sweep_results(now)).await.unwrap()
    };
    assert_eq!(sweep(Duration::minutes(59)).await, 0, "a row may come yet");
    assert_eq!(sweep(Duration::minutes(61)).await, 2);
    assert_eq!(objects(&app).len(), 1);
    assert_eq!(app.post(TREND, query()).await.expect(200)["is_cached"], true);
    assert_eq!(sweep(Duration::days(8) - Duration::minutes(1)).await, 0);
    assert_eq!(sweep(Duration::days(8) + Duration::minutes(1)).await, 1);
    assert_eq!(app.post(TREND, query()).await.expect(200)["is_cached"], false);
}
