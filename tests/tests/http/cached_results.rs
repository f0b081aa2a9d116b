//! Cached results: which calculation may replace them, and how long they are used.

use pennon::args::{Data, Engine, Query, Target};
use pennon::delete::DeleteRequest;
use pennon_core::store::{PartitionQuery as Rows, WriteCondition, keys};
use pennon_eventstore::{ErasureTarget, Event};
use pennon_tests::{NOW, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

const TREND: &str = "/api/projects/1/insights/trend/";
const INSIGHTS: &str = "/api/projects/1/insights/";

fn micros(instant: &str) -> i64 {
    instant.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros()
}

/// A person buys.
async fn bought(app: &TestApp, who: &str, when: &str) {
    let event = Event {
        uuid: Uuid::new_v4(),
        event: "bought".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: micros(when),
        properties: json!({"plan": who}).as_object().unwrap().clone(),
    };
    app.services.events.append(1, &[event], micros(NOW)).await.unwrap();
}

fn past_range() -> Value {
    json!({"events": [{"id": "bought"}], "date_from": "2026-01-01", "date_to": "2026-01-02"})
}

/// `pennon query`, on the data of the API.
async fn command(app: &TestApp, query: &str, now: &str) -> Value {
    let options = Query {
        command: None,
        query: Some(query.to_owned()),
        target: Target { data: Data { data: "unused".into() }, cloud: false },
        project: Some(1),
        json: true,
        csv: false,
        stats: false,
        now: Some(now.parse().unwrap()),
        engine: Engine::Pennon,
        print: false,
        clickhouse_url: None,
        cluster: None,
        files: None,
    };
    let (store, url) = (app.services.app.store.clone(), app.events_url());
    // As in a process of its own.
    let events = pennon::data::open_events(&store, &url).unwrap();
    let text = pennon::query::run(&options, store, (events, &url), true).await.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_command_as_of_another_instant_leaves_the_kept_result_alone() {
    let app = TestApp::new().await;
    bought(&app, "ann", "2026-01-02T10:00:00Z").await;
    let insight = json!({"name": "i", "query": {"kind": "TrendsQuery",
        "series": [{"kind": "EventsNode", "event": "bought"}], "dateRange": {"date_from": "-7d"}}});
    let made = app.post(INSIGHTS, insight).await.expect(201);
    let path = format!("{INSIGHTS}{}/", made["id"]);
    let calculated = app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    assert_eq!(calculated["result"][0]["count"], 1.0);
    for now in ["2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z"] {
        let response = command(&app, &made["id"].to_string(), now).await;
        assert_eq!(response["result"][0]["count"], 0.0, "as of then, there are no purchases");
        let shown = app.get(&path).await.expect(200);
        assert_eq!((&shown["result"], &shown["is_cached"]), (&calculated["result"], &json!(true)), "{now}");
    }
}

#[tokio::test]
async fn a_result_never_replaces_a_later_one() {
    let app = TestApp::new().await;
    bought(&app, "ann", "2026-01-01T10:00:00Z").await;
    app.at("2026-01-04T10:00:00Z", "POST", TREND, past_range()).await.expect(200);
    bought(&app, "bob", "2026-01-01T11:00:00Z").await;
    let forced = json!({"refresh": true});
    let forced =
        past_range().as_object().unwrap().clone().into_iter().chain(forced.as_object().unwrap().clone());
    let forced = Value::Object(forced.collect());
    let later = app.at("2026-01-04T12:00:00Z", "POST", TREND, forced.clone()).await.expect(200);
    assert_eq!((&later["result"][0]["count"], &later["is_cached"]), (&json!(2.0), &json!(false)));
    // A calculation that began before the later one, and ends after it.
    let slow = app.at("2026-01-04T11:59:59Z", "POST", TREND, forced).await.expect(200);
    assert_eq!((&slow["last_refresh"], &slow["is_cached"]), (&json!("2026-01-04T11:59:59Z"), &json!(false)));
    let shown = app.at("2026-01-04T12:01:00Z", "POST", TREND, past_range()).await.expect(200);
    assert_eq!((&shown["last_refresh"], &shown["is_cached"]), (&json!("2026-01-04T12:00:00Z"), &json!(true)));
    // A request with an earlier clock does not get it.
    let before = app.at("2026-01-04T11:00:00Z", "POST", TREND, past_range()).await.expect(200);
    assert_eq!(
        (&before["last_refresh"], &before["is_cached"]),
        (&json!("2026-01-04T11:00:00Z"), &json!(false))
    );
}

#[tokio::test]
async fn a_calculation_that_ends_after_an_erasure_stores_no_result() {
    let app = TestApp::new().await;
    for who in ["ann", "bob"] {
        bought(&app, who, "2026-01-01T10:00:00Z").await;
    }
    let query = json!({"events": [{"id": "bought"}], "date_from": "2026-01-01", "date_to": "2026-01-02",
        "breakdown": "plan", "breakdown_type": "event"});
    let seen = app.post(TREND, query.clone()).await.expect(200);
    assert_eq!(seen["result"].as_array().unwrap().len(), 2);
    // The result that a running calculation stores after it has read the events.
    let store = &app.services.app.store;
    let kept = store.records.query(Rows::partition(keys::result(1, "").pk)).await.unwrap();
    assert_eq!(kept.len(), 1);
    let ann = DeleteRequest { project: 1, target: ErasureTarget::Person("ann".to_owned()) };
    ann.erase(store, &app.services.events, &|| micros(NOW)).await.unwrap();
    assert_eq!(store.records.query(Rows::partition(keys::result(1, "").pk)).await.unwrap(), []);
    for item in kept {
        store.records.put(item, WriteCondition::None).await.unwrap();
    }
    let after = app.post(TREND, query.clone()).await.expect(200);
    assert_eq!(after["is_cached"], false);
    let values: Vec<&Value> =
        after["result"].as_array().unwrap().iter().map(|series| &series["breakdown_value"]).collect();
    assert_eq!(values, [&json!("bob")]);
    assert_eq!(app.post(TREND, query).await.expect(200)["is_cached"], true);
}
