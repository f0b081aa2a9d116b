//! The operator cases: one filter, one value. Those of analytics are counted by a trend of one day, those of flags are
//! conditions of a flag that a person with the property is evaluated for.

use crate::support::flags::flag_matches;
use crate::support::{World, cases, instant};
use pennon_engine::Query;
use serde_json::{Value, json};

#[test]
fn filters_let_the_expected_values_through() {
    let mut failures = Vec::new();
    let mut run = 0;
    for case in cases("operators.json") {
        if case["context"] != json!("query") {
            continue;
        }
        run += 1;
        let missing = case["property_missing"] == json!(true);
        let properties = if missing { json!({}) } else { json!({"value": case["property_value"]}) };
        let instant = case["now"].as_str().unwrap_or("2024-01-01T12:00:00Z").to_owned();
        let world = World::of_case(&json!({
            "now": instant, "project": {"timezone": "UTC"}, "persons": [],
            "events": [{"event": "e", "distinct_id": "d", "timestamp": instant, "properties": properties}],
        }));
        let filter = json!({"key": "value", "type": "event", "operator": case["operator"],
            "value": case["filter_value"]});
        let body = json!({"events": [{"id": "e", "properties": [filter]}], "date_from": &instant[..10]});
        let answer = world.ask(Query::from_trends_filters(body.as_object().unwrap())).unwrap();
        let want: Value = json!(u8::from(case["expect"] == json!(true)));
        if answer[0]["data"][0] != want {
            failures.push(format!("{case}"));
        }
    }
    assert!(run >= 57, "only {run} cases");
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn conditions_of_flags_let_the_expected_values_through() {
    let mut failures = Vec::new();
    let mut run = 0;
    for case in cases("operators.json") {
        if case["context"] != json!("flag") {
            continue;
        }
        run += 1;
        let missing = case["property_missing"] == json!(true);
        let properties = if missing { json!({}) } else { json!({"value": case["property_value"]}) };
        let property = json!({"key": "value", "type": "person", "operator": case["operator"],
            "value": case["filter_value"]});
        let now = instant(case["now"].as_str().unwrap_or("2024-01-01T12:00:00Z"));
        if flag_matches(&property, &properties, now) != (case["expect"] == json!(true)) {
            failures.push(format!("{case}"));
        }
    }
    assert_eq!(run, 47);
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
}
