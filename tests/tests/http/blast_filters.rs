//! Blast radius without a condition: of the filters of a flag, or of all persons.

use pennon_tests::TestApp;
use serde_json::{Value, json};

const RADIUS: &str = "/api/projects/1/feature_flags/user_blast_radius/";

/// Three persons, two of the age 25.
async fn app() -> TestApp {
    let app = TestApp::new().await;
    let person = |id: &str, age: u32| json!({"event": "$set", "distinct_id": id, "properties": {"$set": {"age": age}}});
    let batch = json!([person("p1", 25), person("p2", 25), person("p3", 30)]);
    app.capture(batch).await;
    app
}

/// Persons that match, and all persons.
async fn counts(app: &TestApp, body: Value) -> (u64, u64) {
    let radius = app.post(RADIUS, body).await.expect(200);
    assert_eq!((&radius["users_affected"], &radius["total_users"]), (&radius["affected"], &radius["total"]));
    (radius["affected"].as_u64().unwrap(), radius["total"].as_u64().unwrap())
}

#[tokio::test]
async fn early_access_counts_enrolled_persons() {
    let app = app().await;
    let enrolled = |id: &str, value: Value| json!({"event": "$set", "distinct_id": id, "$set": {"$feature_enrollment/beta": value}});
    let batch =
        json!([enrolled("p1", json!(true)), enrolled("p2", json!(false)), enrolled("p4", json!("true"))]);
    app.capture(batch).await;
    let body = |key: &str, groups: Value| {
        let filters =
            json!({"groups": groups, "feature_enrollment": true, "super_groups": [{"properties": []}]});
        json!({"key": key, "filters": filters})
    };
    let of_age = json!([{"properties": [{"key": "age", "type": "person", "value": [25, 30]}]}]);
    // p1 and p4 enrolled, p2 declined, p3 did neither.
    assert_eq!(counts(&app, body("beta", json!([]))).await, (2, 4));
    assert_eq!(counts(&app, body("beta", of_age.clone())).await, (3, 4));
    assert_eq!(counts(&app, body("beta", json!([{}]))).await, (3, 4));
    assert_eq!(counts(&app, body("other", of_age)).await, (3, 4));
    let keyless = app.post(RADIUS, json!({"filters": {"groups": [], "feature_enrollment": true}})).await;
    let detail = "feature_enrollment depends on the key of the flag. Send `key` beside `filters`.";
    keyless.expect_invalid("required", detail, Some("key"));
}

#[tokio::test]
async fn a_holdout_counts_persons_that_are_held_out() {
    let app = app().await;
    // By `holdout-` and distinct id: p1 0.234, p2 0.239, p3 0.961.
    let body = |percentage: f64, groups: Value| {
        let holdout = json!({"id": 7, "exclusion_percentage": percentage});
        json!({"filters": {"groups": groups, "holdout": holdout}})
    };
    for (percentage, affected) in
        [(0.0, 0), (23.4, 0), (23.5, 1), (24.0, 2), (96.0, 2), (96.1, 3), (100.0, 3)]
    {
        assert_eq!(counts(&app, body(percentage, json!([]))).await, (affected, 3), "{percentage}");
    }
    let thirty = json!([{"properties": [{"key": "age", "type": "person", "value": 30}]}]);
    assert_eq!(counts(&app, body(23.5, thirty)).await, (2, 3));
    let incomplete = json!({"filters": {"groups": [], "holdout": {"exclusion_percentage": 100}}});
    assert_eq!(counts(&app, incomplete).await, (0, 3));
}

#[tokio::test]
async fn the_filters_of_a_flag_or_no_filters_replace_a_condition() {
    let app = app().await;
    let counts = async |body: Value| counts(&app, body).await;
    for all_persons in [json!({}), json!({"key": "a", "filters": {}}), json!({"filters": null}), Value::Null]
    {
        assert_eq!(counts(all_persons).await, (3, 3));
    }
    let age = |ages: Value| json!({"key": "age", "type": "person", "value": ages});
    let either = json!([
        {"properties": [age(json!(30))], "rollout_percentage": 1},
        {"properties": [age(json!([25, 30]))], "variant": "x"},
    ]);
    assert_eq!(counts(json!({"filters": {"groups": either}, "active": "no"})).await, (3, 3));
    assert_eq!(counts(json!({"filters": {"groups": [either[0]]}})).await, (1, 3));
    assert_eq!(counts(json!({"filters": {"groups": []}})).await, (0, 3));
    assert_eq!(counts(json!({"condition": null, "filters": {"groups": []}})).await, (3, 3));
    let odd = app.post(RADIUS, json!({"filters": {"groups": [{"properties": 1}]}})).await;
    odd.expect_invalid("invalid_input", "groups[0].properties must be a list, got int", Some("filters"));
    let odd = app.post(RADIUS, json!({"condition": null, "filters": {"groups": [{"properties": 1}]}})).await;
    odd.expect_invalid("invalid_input", "groups[0].properties must be a list, got int", Some("filters"));
}
