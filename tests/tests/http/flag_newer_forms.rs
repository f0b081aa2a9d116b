//! The newer forms of early access and holdout in a static cohort of a flag, in evaluation reasons and in my flags.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";

/// The evaluation of a flag in a response: value, reason, index of the condition.
type Evaluation = (Value, &'static str, Value);

async fn flag(app: &TestApp, key: &str, filters: Value) -> u64 {
    app.post(FLAGS, json!({"key": key, "filters": filters})).await.expect(201)["id"].as_u64().unwrap()
}

async fn cohort_size(app: &TestApp, flag: u64) -> Value {
    let made = app.post(&format!("{FLAGS}{flag}/create_static_cohort_for_flag/"), json!({})).await;
    made.expect(201)["cohort"]["count"].clone()
}

/// The value of each flag for the owner of a key.
async fn my_values(app: &TestApp, key: &str) -> Vec<(String, Value)> {
    let mine = app.call(key, "GET", &format!("{FLAGS}my_flags/"), Value::Null).await.expect(200);
    let value =
        |entry: &Value| (entry["feature_flag"]["key"].as_str().unwrap().to_owned(), entry["value"].clone());
    mine.as_array().unwrap().iter().map(value).collect()
}

/// user-1 enrolled, user-2 declined, user-3 did neither. Of them the holdout of 50 % has user-1 (0.178), not user-2
/// (0.928) and user-3 (0.925).
#[tokio::test]
async fn enrollment_and_holdouts_apply_in_cohorts_reasons_and_my_flags() {
    let app = TestApp::new().await;
    let no_rollout = json!([{"rollout_percentage": 0}]);
    let pro =
        json!([{"properties": [{"key": "plan", "type": "person", "value": "pro", "operator": "exact"}]}]);
    let holdout = json!({"id": 7, "exclusion_percentage": 50});
    let beta = flag(&app, "beta", json!({"groups": no_rollout, "feature_enrollment": true})).await;
    let open = flag(&app, "open", json!({"groups": [{}], "feature_enrollment": true})).await;
    let held = flag(&app, "held", json!({"groups": pro, "holdout": holdout})).await;
    let person =
        |id: &str, properties: Value| json!({"event": "$set", "distinct_id": id, "$set": properties});
    let (of_beta, of_open) = ("$feature_enrollment/beta", "$feature_enrollment/open");
    let batch = json!([
        person("user-1", json!({of_beta: true, of_open: "true"})),
        person("user-2", json!({of_beta: false, of_open: "no", "plan": "pro"})),
        person("user-3", json!({"plan": "free"})),
    ]);
    app.capture(batch).await;

    let early = |on: bool| -> Evaluation { (json!(on), "super_condition_value", json!(0)) };
    let held_out: Evaluation = (json!("holdout-7"), "holdout_condition_value", Value::Null);
    let by_condition = |on: bool, reason: &'static str| -> Evaluation { (json!(on), reason, json!(0)) };
    let expected: [(&str, [Evaluation; 3]); 4] = [
        ("user-1", [early(true), early(true), held_out.clone()]),
        ("user-2", [early(false), early(false), by_condition(true, "condition_match")]),
        (
            "user-3",
            [
                by_condition(false, "out_of_rollout_bound"),
                by_condition(true, "condition_match"),
                by_condition(false, "no_condition_match"),
            ],
        ),
        // A person without events: `holdout-user-7` hashes to 0.098.
        (
            "user-7",
            [by_condition(false, "out_of_rollout_bound"), by_condition(true, "condition_match"), held_out],
        ),
    ];
    for (who, shown) in expected {
        let reasons = app.get(&format!("{FLAGS}evaluation_reasons/?distinct_id={who}")).await.expect(200);
        for (key, (value, reason, index)) in ["beta", "open", "held"].into_iter().zip(shown) {
            let evaluation = &reasons[key]["evaluation"];
            assert_eq!(
                (&reasons[key]["value"], &evaluation["reason"], &evaluation["condition_index"]),
                (&value, &json!(reason), &index),
                "{who} {key}"
            );
        }
    }

    // user-1; user-1 and user-3; user-1, held out, and user-2, by the condition.
    let sizes = [cohort_size(&app, beta).await, cohort_size(&app, open).await, cohort_size(&app, held).await];
    assert_eq!(sizes, [json!(1), json!(2), json!(2)]);

    let mine = |held: Value, open: bool, beta: bool| {
        [("held", held), ("open", json!(open)), ("beta", json!(beta))]
            .map(|(key, value)| (key.to_owned(), value))
    };
    assert_eq!(my_values(&app, Keys::OWNER).await, mine(json!("holdout-7"), true, true));
    assert_eq!(my_values(&app, Keys::MEMBER).await, mine(json!(true), false, false));
}
