//! The operator cases of analytics: one filter, one value, counted by a trend of one day.

use pennon_analytics::InsightKind;
use serde_json::{Value, json};

use crate::support::{World, cases};

#[test]
fn filters_match_the_expected_values() {
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
        let result =
            world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap())).unwrap();
        let want: Value = json!(u8::from(case["expect"] == json!(true)));
        if result[0]["data"][0] != want {
            failures.push(format!("{case}"));
        }
    }
    assert!(run >= 57, "only {run} cases");
    assert!(failures.is_empty(), "{} wrong:\n{}", failures.len(), failures.join("\n"));
}
