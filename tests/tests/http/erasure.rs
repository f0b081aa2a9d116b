//! The erasure of a person, from the capture of the first event to later queries: no response has anything of the person,
//! all other numbers are unchanged, and the distinct ids belong to a new person.

use pennon::delete::DeleteRequest;
use pennon_eventstore::{ErasureTarget, GRACE_MICROS};
use pennon_tests::{TestApp, as_worker, now_micros};
use serde_json::{Value, json};

const PERSONS: &str = "/api/projects/1/persons/";
const WHO: [&str; 3] = ["device", "ada", "tablet"];

/// Ada has a device, an alias without events, a cohort and a purchase; Bob has a purchase too; Cy only page views.
async fn shop() -> TestApp {
    let cohort = json!({"project": "1", "id": 5, "name": "beta", "is_static": true, "distinct_ids": ["device", "bob"]});
    let app = TestApp::with(json!({"cohorts": [cohort]})).await;
    let at = |hour: u32| format!("2026-01-04T{hour:02}:00:00Z");
    let events = json!([
        {"event": "seen", "distinct_id": "device", "timestamp": at(1)},
        {"event": "seen", "distinct_id": "bob", "timestamp": at(2)},
        {"event": "$identify", "distinct_id": "ada", "timestamp": at(3),
            "properties": {"$anon_distinct_id": "device", "$set": {"email": "ada@lovelace.org"}}},
        {"event": "$create_alias", "distinct_id": "ada", "timestamp": at(4), "properties": {"alias": "tablet"}},
        {"event": "bought", "distinct_id": "ada", "timestamp": at(5), "properties": {"price": 7}},
        {"event": "bought", "distinct_id": "bob", "timestamp": at(6), "properties": {"price": 5}},
    ]);
    app.capture(events).await;
    as_worker(app.services.events.compact(1, now_micros())).await.unwrap();
    app.capture(json!([{"event": "seen", "distinct_id": "cy", "timestamp": at(7)}])).await;
    let condition = json!([{"key": "id", "type": "cohort", "value": 5}]);
    let flag = json!({"key": "beta", "filters": {"groups": [{"properties": condition}]}});
    app.post("/api/projects/1/feature_flags/", flag).await.expect(201);
    app
}

/// Numbers of views and purchases, the revenue, and the numbers of persons and of persons with an email.
async fn numbers(app: &TestApp) -> Value {
    let funnel = json!({"events": [{"id": "seen", "order": 0}, {"id": "bought", "order": 1}]});
    let funnel = app.post("/api/projects/1/insights/funnel/", funnel).await.expect(200);
    let paid = json!({"events": [{"id": "bought", "math": "sum", "math_property": "price"}], "date_from": "2026-01-04"});
    let paid = app.post("/api/projects/1/insights/trend/", paid).await.expect(200);
    let named = json!([{"key": "email", "operator": "is_set", "type": "person"}]);
    let named =
        json!({"events": [{"id": null, "math": "dau"}], "properties": named, "date_from": "2026-01-04"});
    let named = app.post("/api/projects/1/insights/trend/", named).await.expect(200);
    let beta = json!([{"key": "id", "type": "cohort", "value": 5}]);
    let beta =
        json!({"events": [{"id": null, "math": "dau"}], "properties": beta, "date_from": "2026-01-04"});
    let beta = app.post("/api/projects/1/insights/trend/", beta).await.expect(200);
    json!([
        funnel["result"][0]["count"],
        funnel["result"][1]["count"],
        paid["result"][0]["count"],
        app.get(PERSONS).await.expect(200)["count"],
        named["result"][0]["count"],
        beta["result"][0]["count"],
    ])
}

/// Who of `who` is in the cohort, according to the flag.
async fn in_beta(app: &TestApp, who: &[&str]) -> Vec<Value> {
    let mut values = Vec::new();
    for id in who {
        let path = format!("/api/projects/1/feature_flags/evaluation_reasons/?distinct_id={id}");
        values.push(app.get(&path).await.expect(200)["beta"]["value"].clone());
    }
    values
}

async fn found(app: &TestApp, query: &str) -> Vec<Value> {
    app.get(&format!("{PERSONS}?{query}")).await.expect(200)["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn nothing_is_left_of_an_erased_person_and_no_other_person_changes() {
    let app = shop().await;
    assert_eq!(numbers(&app).await, json!([3, 2, 12.0, 3, 1.0, 2.0]));
    assert_eq!(in_beta(&app, &["ada", "tablet", "bob", "cy"]).await, [true, true, true, false]);
    let ada = found(&app, "search=lovelace").await.remove(0);
    assert_eq!(ada["distinct_ids"], json!(["device", "ada", "tablet"]));
    let by_id = format!("{PERSONS}{}/", ada["id"].as_str().unwrap());
    app.get(&by_id).await.expect(200);

    let (store, events) = (&app.services.app.store, &app.services.events);
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("tablet".to_owned()) };
    let would = request.count(events).await.unwrap();
    assert_eq!(
        request.describe(&would),
        "project 1, person \"tablet\": 4 events, in 1 segments; on the lists of 1 static cohorts"
    );
    assert_eq!(numbers(&app).await[0], 3, "a dry run erases nothing");
    let erased = request.erase(store, events, &|| now_micros() + 1).await.unwrap();
    assert_eq!((erased.events, erased.persons, erased.cohorts), (4, 1, 1));

    let other = app.another_process();
    for round in 0..3 {
        for app in [&app, &other] {
            // Without `refresh`: what was kept of the same queries is gone too.
            assert_eq!(numbers(app).await, json!([2, 1, 5.0, 2, 0.0, 1.0]), "round {round}");
            assert_eq!(
                in_beta(app, &["ada", "device", "tablet", "bob", "cy"]).await,
                [false, false, false, true, false]
            );
            for id in WHO {
                assert_eq!(found(app, &format!("distinct_id={id}")).await, Vec::<Value>::new(), "{id}");
            }
            assert_eq!(found(app, "search=lovelace").await, Vec::<Value>::new());
            app.get(&by_id).await.expect(404);
        }
        let later = now_micros() + (round + 1) * 2 * GRACE_MICROS;
        as_worker(events.compact(1, later)).await.unwrap();
        as_worker(events.sweep(1, later)).await.unwrap();
    }
    assert_eq!(request.describe(&request.count(events).await.unwrap()), "project 1 has no person \"tablet\"");

    // The device continues as a new person, without anything of Ada.
    other
        .capture(json!([
            {"event": "seen", "distinct_id": "device", "timestamp": "2026-01-05T01:00:00Z"},
            {"event": "$identify", "distinct_id": "eve", "timestamp": "2026-01-05T02:00:00Z",
                "properties": {"$anon_distinct_id": "device"}},
        ]))
        .await;
    for app in [&app, &other] {
        let eve = found(app, "distinct_id=device").await.remove(0);
        assert_eq!((&eve["distinct_ids"], &eve["properties"]), (&json!(["device", "eve"]), &json!({})));
        assert_eq!(found(app, "distinct_id=ada").await, Vec::<Value>::new());
        assert_eq!(in_beta(app, &["device", "eve"]).await, [false, false]);
    }
}

#[tokio::test]
async fn an_erased_project_has_the_results_of_a_project_without_events() {
    let app = shop().await;
    assert_eq!(numbers(&app).await[0], 3);
    let (store, events) = (&app.services.app.store, &app.services.events);
    let request = DeleteRequest { project: 1, target: ErasureTarget::Project };
    assert_eq!(request.erase(store, events, &|| now_micros() + 1).await.unwrap().cohorts, 1);
    for app in [&app, &app.another_process()] {
        assert_eq!(numbers(app).await, json!([0, 0, 0.0, 0, 0.0, 0.0]));
        assert_eq!(in_beta(app, &["ada", "bob"]).await, [false, false]);
    }
}
