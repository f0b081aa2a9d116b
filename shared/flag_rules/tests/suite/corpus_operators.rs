//! The operator cases of flags: conditions of a flag that a person with the property is evaluated for.

use serde_json::json;

use crate::support::{cases, flag_matches, instant};

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
