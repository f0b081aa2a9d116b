//! The cases of relative dates in conditions of flags.

use serde_json::{Value, json};

use crate::support::{cases, flag_matches, instant};

#[test]
fn relative_dates_mean_the_expected_instants() {
    let mut run = 0;
    for case in cases("dates.json") {
        if case["kind"] != json!("flag_relative") {
            continue;
        }
        run += 1;
        let name = &case["name"];
        let now = instant(case["now"].as_str().unwrap());
        let is = |operator: &str, given: &Value| {
            let property =
                json!({"key": "d", "type": "person", "operator": operator, "value": case["input"]});
            flag_matches(&property, &json!({"d": given}), now)
        };
        match &case["expect"] {
            Value::Null => {
                let given = json!("2019-06-01");
                assert!(!is("is_date_before", &given) && !is("is_date_after", &given), "{name}");
            }
            expected => assert!(is("is_date_exact", expected), "{name}"),
        }
    }
    assert_eq!(run, 12);
}
