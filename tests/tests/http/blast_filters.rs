//! Blast radius without a condition: of the filters of a flag, or of all persons.

use pennon_tests::TestApp;
use serde_json::{Value, json};

const RADIUS: &str = "/api/projects/1/feature_flags/user_blast_radius/";

/// Three persons, two of the age 25.
async fn app() -> TestApp {
    let app = TestApp::new().await;
    let person = |id: &str, age: u32| json!({"event": "$set", "distinct_id": id, "properties": {"$set": {"age": age}}});
    let batch = json!([person("p1", 25), person("p2", 25), person("p3", 30)]);
    app.call("", "POST", "/batch/", json!({"api_key": "phc_project_1", "batch": batch})).await.expect(200);
    app
}

#[tokio::test]
async fn the_filters_of_a_flag_or_nothing_take_the_place_of_a_condition() {
    let app = app().await;
    let counts = async |body: Value| {
        let radius = app.post(RADIUS, body).await.expect(200);
        assert_eq!(
            (&radius["users_affected"], &radius["total_users"]),
            (&radius["affected"], &radius["total"])
        );
        (radius["affected"].as_u64().unwrap(), radius["total"].as_u64().unwrap())
    };
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
