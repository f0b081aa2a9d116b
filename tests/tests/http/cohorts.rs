//! Cohorts over HTTP: created, changed, listed, filled, and used in queries.

use pennon_eventstore::{Event, PersonRecord};
use pennon_tests::{Keys, TestApp, now_micros};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::actions::entry;

pub const COHORTS: &str = "/api/projects/1/cohorts/";
const TREND: &str = "/api/projects/1/insights/trend/";
pub const FLAGS: &str = "/api/projects/1/feature_flags/";

pub fn one(id: &Value) -> String {
    format!("{COHORTS}{id}/")
}

pub async fn made(app: &TestApp, body: Value) -> Value {
    app.post(COHORTS, body).await.expect(201)
}

/// Rules of one criterion.
pub fn rule(criterion: Value) -> Value {
    json!({"properties": {"type": "OR", "values": [{"type": "AND", "values": [criterion]}]}})
}

pub fn vip() -> Value {
    json!({"key": "vip", "type": "person", "value": ["true"], "operator": "exact"})
}

fn in_cohort(id: &Value) -> Value {
    json!({"key": "id", "type": "cohort", "value": id})
}

fn behaved() -> Value {
    json!({"key": "signed up", "type": "behavioral", "value": "performed_event", "event_type": "events",
           "time_value": 30, "time_interval": "day"})
}

/// Ann, of two devices, Bob and Cat sign up. Ann and Bob are vips.
pub async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let now = now_micros();
    let event = |who: &str| Event {
        uuid: Uuid::new_v4(),
        event: "signed up".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: now - 86_400_000_000,
        properties: serde_json::Map::new(),
    };
    let person = |ids: &[&str], vip: bool| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: json!({"vip": vip, "email": format!("{}@example.com", ids[0])})
            .as_object()
            .unwrap()
            .clone(),
        created_at: None,
    };
    let persons = vec![person(&["ann", "ann@home"], true), person(&["bob"], true), person(&["cat"], false)];
    app.services.events.add_persons(1, persons, now).await.unwrap();
    app.services.events.append(1, &["ann@home", "bob", "cat"].map(event), now).await.unwrap();
    app
}

/// The number of persons of a cohort who signed up.
pub async fn counted(app: &TestApp, id: &Value) -> Value {
    let body = json!({"events": [{"id": "signed up", "math": "dau", "properties": [in_cohort(id)]}]});
    app.post(TREND, body).await.expect(200)["result"][0]["count"].clone()
}

#[tokio::test]
async fn a_new_cohort_has_these_fields_in_this_order() {
    let app = shop().await;
    let sent = json!({"name": "Vips", "description": "d", "filters": rule(vip()), "id": 9, "count": 7});
    let response = app.post(COHORTS, sent).await;
    let got = response.expect(201);
    let expected = json!({
        "id": 1, "name": "Vips", "description": "d", "groups": [], "deleted": false, "filters": rule(vip()),
        "query": null, "is_calculating": false, "created_by": got["created_by"], "created_at": "2026-01-05T10:00:00Z",
        "last_calculation": "2026-01-05T10:00:00Z", "errors_calculating": 0, "count": 2, "is_static": false,
        "cohort_type": null, "experiment_set": [],
    });
    assert_eq!(response.text, expected.to_string());
    assert_eq!(got["created_by"]["email"], "owner@example.com");
    assert_eq!(app.get(&one(&json!(1))).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/cohorts/1").await.text, expected.to_string());
    assert_eq!(app.get(COHORTS).await.expect(200)["results"], json!([expected]));
    assert_eq!(counted(&app, &json!(1)).await, 2.0);
    assert_eq!(entry(&app, "Cohort", "created").await["detail"]["name"], "Vips");
    // The older format, and no rules.
    let older = made(&app, json!({"groups": [{"properties": [vip()]}]})).await;
    assert_eq!(older["filters"], rule(vip()));
    assert_eq!((&older["count"], counted(&app, &older["id"]).await), (&json!(2), json!(2.0)));
    let none = made(&app, json!({})).await;
    assert_eq!((&none["filters"], &none["count"]), (&json!({"properties": {}}), &json!(0)));
}

#[tokio::test]
async fn scopes_methods_and_projects_are_checked() {
    let keys = json!([{"label": "ro", "user": "owner@example.com", "scopes": ["cohort:read"], "projects": [],
                       "value": "phx_cohorts_ro"}]);
    let app = TestApp::with(json!({"keys": keys})).await;
    let id = made(&app, json!({"name": "x", "is_static": true})).await["id"].clone();
    let detail = "API key missing required scope 'cohort:write'";
    let add = format!("{}add_persons_to_static_cohort/", one(&id));
    let remove = format!("{}remove_person_from_static_cohort/", one(&id));
    for (method, path) in [
        ("POST", COHORTS.to_owned()),
        ("PATCH", one(&id)),
        ("PUT", one(&id)),
        ("DELETE", one(&json!(99))),
        ("PATCH", add),
        ("PATCH", remove),
    ] {
        let refused = app.call("phx_cohorts_ro", method, &path, json!({"name": []})).await;
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    }
    assert_eq!(app.call("phx_cohorts_ro", "GET", &one(&id), Value::Null).await.expect(200)["name"], "x");
    for path in [format!("{COHORTS}activity/"), format!("{}activity/", one(&id))] {
        assert_eq!(app.call("phx_cohorts_ro", "GET", &path, Value::Null).await.status, 403);
        assert_eq!(app.get(&path).await.expect(200)["total_count"], 1);
    }
    let none = app.get(&format!("{COHORTS}99/activity/")).await;
    assert_eq!((none.status.as_u16(), none.text.as_str()), (404, ""));
    assert_eq!(app.call(Keys::READ_FLAGS, "GET", COHORTS, Value::Null).await.status, 403);
    assert_eq!(app.call(Keys::STRANGER, "GET", COHORTS, Value::Null).await.status, 403);
    assert_eq!(app.get("/api/projects/2/cohorts/").await.expect(200)["count"], 0);
    assert_eq!(app.get(&format!("/api/projects/2/cohorts/{id}/")).await.status, 404);
    for unknown in ["99", "x", "1.5", "-1"] {
        let path = format!("{COHORTS}{unknown}/");
        app.get(&path).await.expect_error(404, "invalid_request", "not_found", "Not found.", None);
        assert_eq!(app.patch(&path, json!({"name": []})).await.status, 404);
    }
    let refused = app.call(Keys::OWNER, "DELETE", &one(&id), Value::Null).await;
    assert_eq!((refused.status.as_u16(), refused.text.as_str()), (405, ""));
}

#[tokio::test]
async fn definitions_that_cannot_be_calculated_are_rejected_and_not_stored() {
    let app = TestApp::new().await;
    let negated =
        json!({"key": "a", "type": "person", "value": ["b"], "operator": "exact", "negation": true});
    for (filters, text) in [
        (rule(json!({"key": "a", "type": "event", "value": 1, "operator": "exact"})), "no criteria of type"),
        (rule(json!({"key": "a", "type": "person", "operator": "like", "value": 1})), ""),
        (rule(in_cohort(&json!(99))), "There is no cohort 99"),
        (rule(negated), "negated"),
        (rule(json!({"type": "behavioral", "key": "x", "value": "danced", "event_type": "events"})), ""),
        (json!({"properties": 5}), ""),
        (json!({}), "Must contain a 'properties' key"),
    ] {
        let refused = app.post(COHORTS, json!({"name": "x", "filters": filters})).await;
        // An empty criterion is not a rule and matches no person.
        if filters["properties"] == 5 {
            assert_eq!(refused.expect(201)["count"], 0);
            continue;
        }
        let body = refused.expect(400);
        assert_eq!(
            (&body["attr"], &body["type"]),
            (&json!("filters"), &json!("validation_error")),
            "{filters}"
        );
        assert!(body["detail"].as_str().unwrap().contains(text), "{body}");
    }
    app.post(COHORTS, json!({"groups": [{"properties": [{"key": "a", "operator": "like", "value": 1}]}]}))
        .await
        .expect(400);
    assert_eq!(app.get(COHORTS).await.expect(200)["count"], 1);
}

#[tokio::test]
async fn circular_references_are_rejected_also_of_concurrent_changes() {
    let app = TestApp::new().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(made(&app, json!({"name": name, "filters": rule(vip())})).await["id"].clone());
    }
    let point = async |from: usize, to: usize| {
        app.patch(&one(&ids[from]), json!({"filters": rule(in_cohort(&ids[to]))})).await
    };
    point(0, 1).await.expect(200);
    point(1, 2).await.expect(200);
    let detail = "Cohorts cannot reference other cohorts in a loop.";
    point(2, 0).await.expect_invalid("invalid_input", detail, Some("filters"));
    point(0, 0).await.expect_invalid("invalid_input", detail, Some("filters"));
    point(2, 2).await.expect_invalid("invalid_input", detail, Some("filters"));
    for _ in 0..5 {
        app.patch(&one(&ids[0]), json!({"filters": rule(vip())})).await.expect(200);
        app.patch(&one(&ids[1]), json!({"filters": rule(vip())})).await.expect(200);
        let (there, back) = tokio::join!(point(0, 1), point(1, 0));
        let statuses = [there.status.as_u16(), back.status.as_u16()];
        assert!(statuses == [200, 400] || statuses == [400, 200], "{statuses:?}");
    }
}

#[tokio::test]
async fn a_change_applies_to_queries_and_flags_at_once() {
    let app = shop().await;
    let id = made(&app, json!({"name": "Vips", "filters": rule(vip())})).await["id"].clone();
    let flag = json!({"key": "f", "filters": {"groups": [{"properties": [in_cohort(&id)], "rollout_percentage": 100}]}});
    app.post(FLAGS, flag).await.expect(201);
    let on = async |who: &str| {
        let path = format!("{FLAGS}evaluation_reasons/?distinct_id={who}");
        app.get(&path).await.expect(200)["f"]["value"].clone()
    };
    let feed = async || {
        app.get(&format!("{FLAGS}local_evaluation/?send_cohorts")).await.expect(200)["cohorts"].clone()
    };
    let before = feed().await;
    assert_eq!((on("bob").await, on("cat").await), (json!(true), json!(false)));
    assert_eq!(counted(&app, &id).await, 2.0);
    let plain = json!({"key": "vip", "type": "person", "value": ["false"], "operator": "exact"});
    let changed = app.patch(&one(&id), json!({"filters": rule(plain)})).await.expect(200);
    assert_eq!(changed["count"], 1);
    assert_eq!((on("bob").await, on("cat").await), (json!(false), json!(true)));
    assert_eq!(counted(&app, &id).await, 1.0);
    assert_ne!(feed().await, before);
    // If only the name changes, the calculated count is kept.
    assert_eq!(app.patch(&one(&id), json!({"name": "Others"})).await.expect(200)["count"], 1);
    let fields: Vec<Value> = app
        .activity("Cohort")
        .await
        .iter()
        .filter(|it| it["activity"] == "updated")
        .map(|it| it["detail"]["changes"][0]["field"].clone())
        .collect();
    assert_eq!(fields.len(), 2);
}

#[tokio::test]
async fn a_cohort_of_an_active_flag_cannot_be_deleted_or_use_events() {
    let app = shop().await;
    let inner = made(&app, json!({"name": "inner", "filters": rule(vip())})).await["id"].clone();
    let outer = made(&app, json!({"name": "outer", "filters": rule(in_cohort(&inner))})).await["id"].clone();
    let events = made(&app, json!({"name": "events", "filters": rule(behaved())})).await;
    assert_eq!(events["count"], 3);
    let flag =
        json!({"key": "f", "name": "The flag", "filters": {"groups": [{"properties": [in_cohort(&outer)]}]}});
    let flag = app.post(FLAGS, flag).await.expect(201)["id"].clone();
    let detail = "This cohort is used in 1 active feature flag(s): The flag. Please remove the cohort from these \
                  feature flags before deleting it.";
    for id in [&inner, &outer] {
        app.patch(&one(id), json!({"deleted": true})).await.expect_invalid("invalid_input", detail, None);
        let refused = app.patch(&one(id), json!({"filters": rule(behaved())})).await;
        refused.expect_invalid(
            "behavioral_cohort_found",
            "Behavioral filters cannot be added to cohorts used in feature flags.",
            Some("filters"),
        );
        let refused = app.patch(&one(id), json!({"filters": rule(in_cohort(&events["id"]))})).await;
        refused.expect_invalid(
            "behavioral_cohort_found",
            "A cohort dependency (events) has filters based on events. These cohorts can't be used in feature flags.",
            Some("filters"),
        );
    }
    app.patch(&format!("{FLAGS}{flag}/"), json!({"active": false})).await.expect(200);
    assert_eq!(app.patch(&one(&outer), json!({"deleted": true})).await.expect(200)["deleted"], true);
    let list = app.get(COHORTS).await.expect(200);
    assert_eq!(list["count"], 2);
    assert_eq!(app.get(&one(&outer)).await.expect(200)["deleted"], true);
    app.patch(&one(&inner), json!({"filters": rule(behaved())})).await.expect(200);
    app.post(TREND, json!({"events": [{"id": "signed up"}], "properties": [in_cohort(&outer)]}))
        .await
        .expect(400);
    // After a restore it is validated again.
    assert_eq!(app.patch(&one(&outer), json!({"deleted": false})).await.expect(200)["count"], 3);
}

#[tokio::test]
async fn a_flag_never_uses_a_cohort_that_is_deleted_at_the_same_moment() {
    let app = TestApp::new().await;
    for round in 0..8 {
        let id = made(&app, json!({"name": "c", "filters": rule(vip())})).await["id"].clone();
        let flag =
            json!({"key": format!("f{round}"), "filters": {"groups": [{"properties": [in_cohort(&id)]}]}});
        let path = one(&id);
        let (flag, gone) = tokio::join!(app.post(FLAGS, flag), app.patch(&path, json!({"deleted": true})));
        let statuses = (flag.status.as_u16(), gone.status.as_u16());
        assert!(
            statuses == (201, 400) || statuses == (400, 200),
            "{statuses:?}: {} {}",
            flag.text,
            gone.text
        );
    }
}

#[tokio::test]
async fn lists_are_filtered_and_complete_for_ten_thousand() {
    let declared = |id: u64| json!({"project": "1", "id": id, "name": format!("Cohort {id}"), "is_static": id.is_multiple_of(2)});
    let app = TestApp::with(json!({"cohorts": (1..=10_000).map(declared).collect::<Vec<_>>()})).await;
    let mel =
        app.call(Keys::MEMBER, "POST", COHORTS, json!({"name": "Mel's", "filters": rule(behaved())})).await;
    let mel = mel.expect(201)["id"].clone();
    let also = made(&app, json!({"name": "also", "filters": rule(in_cohort(&mel))})).await["id"].clone();
    app.get(COHORTS).await.expect(200);
    app.services.app.keys.clear();
    app.round_trips.reset();
    let page = app.get(&format!("{COHORTS}?limit=2")).await.expect(200);
    assert!(app.round_trips.sequential() <= 4, "{:?}", app.round_trips.calls());
    let ids: Vec<&Value> = page["results"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!((&page["count"], ids), (&json!(10_002), vec![&also, &mel]));
    for (query, count) in [
        ("type=static", 5000),
        ("type=dynamic", 5002),
        ("created_by_id=2", 1),
        ("search=cohort%2099", 111),
        ("hide_behavioral_cohorts=true", 10_000),
        ("type=static&search=cohort%2010", 57),
    ] {
        assert_eq!(app.get(&format!("{COHORTS}?{query}")).await.expect(200)["count"], count, "{query}");
    }
    assert_eq!(app.get(&format!("{COHORTS}?created_by_id=x")).await.expect(400)["attr"], "created_by_id");
    let last = app.get(&format!("{COHORTS}?limit=1000&offset=10000")).await.expect(200);
    assert_eq!(last["results"].as_array().unwrap().len(), 2);
}
