//! Unwraps single breakdown values for older clients, which expect a text instead of a list with one text.

use serde_json::{Map, Value};

use crate::query::Field;

/// Rewrites the `result` of a funnel request if its insight filters require the older form: `insight` is `FUNNELS`,
/// `breakdown_type` is `person` or `event`, and `breakdown` is a text or `breakdowns` is set. Results other than steps
/// with a breakdown stay unchanged.
pub fn unwrap_single_breakdown_values(request: &Map<String, Value>, result: &mut Value) {
    let is = |key: &str, texts: &[&str]| {
        request.get(key).and_then(Value::as_str).is_some_and(|text| texts.contains(&text))
    };
    if !is("insight", &["FUNNELS"]) || !is("breakdown_type", &["person", "event"]) {
        return;
    }
    // An empty list is no breakdown: the query used `breakdown`.
    let several = Field::of(request, "breakdowns", "breakdowns").has_content();
    if !several && !request.get("breakdown").is_some_and(is_single_key) {
        return;
    }
    for step in result.as_array_mut().into_iter().flatten().filter_map(Value::as_array_mut).flatten() {
        let Some(step) = step.as_object_mut() else { continue };
        if several {
            if let Some(value) = step.remove("breakdown") {
                step.insert("breakdowns".to_owned(), unwrap_single(value));
            }
        } else {
            for key in ["breakdown", "breakdown_value"] {
                if let Some(value) = step.get_mut(key) {
                    *value = unwrap_single(value.take());
                }
            }
        }
    }
}

/// Whether it is a text rather than a list, which query strings send as a JSON string.
fn is_single_key(breakdown: &Value) -> bool {
    breakdown
        .as_str()
        .is_some_and(|text| !serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_array()))
}

/// Unwraps a list with one entry.
fn unwrap_single(value: Value) -> Value {
    match value {
        Value::Array(mut list) if list.len() == 1 => list.pop().unwrap_or_default(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn unboxed(request: Value, value: Value) -> Value {
        let mut result = json!([[{"breakdown": value, "breakdown_value": value}]]);
        unwrap_single_breakdown_values(request.as_object().unwrap(), &mut result);
        result[0][0].take()
    }

    #[test]
    fn only_older_requests_get_texts() {
        let text = json!({"insight": "FUNNELS", "breakdown_type": "event", "breakdown": "k"});
        assert_eq!(unboxed(text, json!(["v"])), json!({"breakdown": "v", "breakdown_value": "v"}));
        let boxed = json!({"breakdown": ["v"], "breakdown_value": ["v"]});
        for request in [
            json!({"insight": "FUNNELS", "breakdown_type": "event", "breakdown": ["k"]}),
            json!({"insight": "FUNNELS", "breakdown_type": "event", "breakdown": "[\"k\"]"}),
            json!({"insight": "FUNNELS", "breakdown": "k"}),
            json!({"breakdown_type": "event", "breakdown": "k"}),
            json!({"insight": "funnels", "breakdown_type": "event", "breakdown": "k"}),
            json!({"insight": "FUNNELS", "breakdown_type": "hogql", "breakdown": "k"}),
        ] {
            assert_eq!(unboxed(request, json!(["v"])), boxed);
        }
        let several =
            json!({"insight": "FUNNELS", "breakdown_type": "person", "breakdowns": [{"property": "k"}]});
        assert_eq!(unboxed(several.clone(), json!(["v"]))["breakdowns"], "v");
        assert_eq!(unboxed(several, json!(["v", "w"]))["breakdowns"], json!(["v", "w"]));
    }

    #[test]
    fn results_over_time_are_unchanged() {
        let request = json!({"insight": "FUNNELS", "breakdown_type": "event", "breakdown": "k"});
        let mut result = json!([{"breakdown_value": ["v"], "data": [1.0]}]);
        unwrap_single_breakdown_values(request.as_object().unwrap(), &mut result);
        assert_eq!(result[0]["breakdown_value"], json!(["v"]));
    }
}
