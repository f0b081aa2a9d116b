//! Actions and cohorts in queries over HTTP: they are resolved, also through each other, and their changes apply.

use pennon_core::store::keys::{self, RecordKind};
use pennon_core::store::{Item, WriteCondition};
use pennon_eventstore::{Event, PersonRecord};
use pennon_tests::TestApp;
use serde_json::{Value, json};
use uuid::Uuid;

const FUNNEL: &str = "/api/projects/1/insights/funnel/";
const TREND: &str = "/api/projects/1/insights/trend/";

fn instant(text: &str) -> i64 {
    text.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros()
}

/// Ann, of two devices, Bob and Cat sign up.
async fn shop(more: Value) -> TestApp {
    let app = TestApp::with(more).await;
    let event = |who: &str| Event {
        uuid: Uuid::new_v4(),
        event: "signed up".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: instant("2026-01-04T10:00:00Z"),
        properties: json!({"plan": if who == "bob" { "pro" } else { "free" }}).as_object().unwrap().clone(),
    };
    let now = instant(pennon_tests::NOW);
    let person = |ids: &[&str], vip: bool| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: json!({"vip": vip}).as_object().unwrap().clone(),
        created_at: None,
    };
    let persons = vec![person(&["ann", "ann@home"], true), person(&["bob"], true), person(&["cat"], false)];
    app.services.events.add_persons(1, persons, now).await.unwrap();
    app.services.events.append(1, &["ann@home", "bob", "cat"].map(event), now).await.unwrap();
    app
}

/// Writes a record directly.
async fn declare(app: &TestApp, kind: RecordKind, id: u64, body: Value) {
    let item = Item::new(keys::record(1, kind, id), &body).unwrap();
    app.services.app.store.records.put(item, WriteCondition::None).await.unwrap();
}

async fn trend(app: &TestApp, filter: Value) -> Value {
    let body = json!({"events": [{"id": "signed up", "math": "dau", "properties": [filter]}]});
    app.post(TREND, body).await.expect(200)
}

fn in_cohort(id: u64) -> Value {
    json!({"key": "id", "type": "cohort", "value": id})
}

#[tokio::test]
async fn a_static_cohort_has_all_distinct_ids_of_its_persons_and_its_changes_apply() {
    let cohort =
        json!({"project": "1", "id": 5, "name": "friends", "is_static": true, "distinct_ids": ["ann"]});
    let app = shop(json!({"cohorts": [cohort]})).await;
    let first = trend(&app, in_cohort(5)).await;
    assert_eq!((&first["result"][0]["count"], &first["is_cached"]), (&json!(1.0), &json!(false)));
    assert_eq!(trend(&app, in_cohort(5)).await["is_cached"], true);
    let more = json!({"id": 5, "name": "friends", "is_static": true, "distinct_ids": ["ann", "cat"]});
    declare(&app, RecordKind::Cohort, 5, more).await;
    let changed = trend(&app, in_cohort(5)).await;
    assert_eq!((&changed["result"][0]["count"], &changed["is_cached"]), (&json!(2.0), &json!(false)));
    declare(
        &app,
        RecordKind::Cohort,
        5,
        json!({"id": 5, "name": "friends", "is_static": true, "deleted": true}),
    )
    .await;
    let gone = app.post(TREND, json!({"events": [{"id": "signed up"}], "properties": [in_cohort(5)]})).await;
    assert_eq!(gone.status, 400, "{}", gone.text);
}

#[tokio::test]
async fn cohorts_are_resolved_through_other_cohorts_and_actions() {
    let rule =
        |value: Value| json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [value]}]}});
    let vip = json!({"key": "vip", "type": "person", "value": ["true"], "operator": "exact"});
    let cohorts = json!([
        {"project": "1", "id": 1, "name": "vips", "filters": rule(vip)},
        {"project": "1", "id": 2, "name": "also", "filters": rule(json!({"key": "id", "type": "cohort", "value": 1}))},
    ]);
    let step = json!({"event": "signed up", "properties": [in_cohort(2)]});
    let app = shop(json!({"cohorts": cohorts, "actions": [{"project": "1", "id": 9, "name": "joined", "steps": [step]}]})).await;
    let body = json!({"actions": [{"id": 9}]});
    let response = app.post(TREND, body.clone()).await;
    if response.text.contains(pennon_tests::queries::NOT_SUPPORTED) {
        return;
    }
    let first = response.expect(200);
    assert_eq!((&first["result"][0]["count"], &first["result"][0]["label"]), (&json!(2.0), &json!("joined")));
    // The definition at the end of the chain is part of the cache key.
    let no_person = json!({"key": "vip", "type": "person", "value": ["maybe"], "operator": "exact"});
    declare(&app, RecordKind::Cohort, 1, json!({"id": 1, "name": "vips", "filters": rule(no_person)})).await;
    let changed = app.post(TREND, body).await.expect(200);
    assert_eq!((&changed["result"][0]["count"], &changed["is_cached"]), (&json!(0.0), &json!(false)));
}

#[tokio::test]
async fn an_action_comes_with_the_key_and_an_unknown_one_is_refused_in_funnels() {
    let step = json!({"event": "signed up"});
    let app = shop(json!({"actions": [{"project": "1", "id": 9, "name": "joined", "steps": [step]},
                                      {"project": "2", "id": 8, "name": "other", "steps": [step]}]}))
    .await;
    let body =
        |id: u64| json!({"actions": [{"id": id, "order": 0}], "events": [{"id": "signed up", "order": 1}]});
    let first = app.post(FUNNEL, body(9)).await.expect(200);
    assert_eq!((&first["result"][0]["count"], &first["result"][0]["name"]), (&json!(3), &json!("joined")));
    app.services.app.keys.clear();
    app.round_trips.reset();
    assert_eq!(app.post(FUNNEL, body(9)).await.expect(200)["is_cached"], true);
    assert_eq!(app.round_trips.sequential(), 1, "{:?}", app.round_trips.calls());
    for unknown in [8, 666] {
        let refused = app.post(FUNNEL, body(unknown)).await.expect(400);
        assert_eq!(refused["detail"], format!("Action ID {unknown} does not exist!"));
    }
}

#[tokio::test]
async fn a_too_long_chain_of_cohorts_is_rejected_and_its_insight_is_still_returned() {
    let chain = (1..=60).map(|id| {
        let next = json!({"key": "id", "type": "cohort", "value": id + 1});
        json!({"project": "1", "id": id, "name": "link", "filters": {"properties": {"type": "OR", "values": [next]}}})
    });
    let app = shop(json!({"cohorts": chain.collect::<Vec<_>>()})).await;
    let body = json!({"events": [{"id": "signed up"}], "properties": [in_cohort(1)]});
    let refused = app.post(TREND, body.clone()).await.expect(400);
    assert_eq!(refused["code"], "invalid_input");
    assert!(refused["detail"].as_str().unwrap().contains("levels deep"), "{refused}");
    let made = app.post("/api/projects/1/insights/", json!({"filters": body})).await.expect(201);
    let path = format!("/api/projects/1/insights/{}/", made["id"]);
    assert_eq!(app.get(&path).await.expect(200)["result"], Value::Null);
    let listed = app.get("/api/projects/1/insights/?refresh=blocking").await.expect(200);
    assert_eq!(listed["results"][0]["query_status"]["error"], true);
}
