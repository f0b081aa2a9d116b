//! Whether the query of an insight refers to a flag.

use serde_json::{Value, json};

use super::record::Insight;

/// Whether an insight has a breakdown or property filters, which could refer to a flag.
pub fn has_properties(insight: &Insight) -> bool {
    let is = |value: Option<&Value>| {
        value.is_some_and(|value| !(value.is_null() || *value == json!([]) || *value == json!({})))
    };
    let node = innermost(insight);
    let part = |name: &str| node.and_then(|node| node.get(name));
    let mut series = part("series").and_then(Value::as_array).into_iter().flatten();
    is(insight.filters.get("breakdown"))
        || is(insight.filters.get("properties"))
        || is(part("breakdownFilter"))
        || is(part("properties"))
        || series.any(|entry| is(entry.get("properties")))
}

/// The innermost node of the insight's query.
fn innermost(insight: &Insight) -> Option<&Value> {
    let mut node = insight.query.as_ref();
    while let Some(source) = node.and_then(|node| node.get("source")) {
        node = Some(source);
    }
    node
}

/// Whether an insight refers to a flag: by a breakdown by the flag's property, or anywhere in its property filters.
pub fn refers_to_flag(insight: &Insight, key: &str) -> bool {
    let feature = format!("$feature/{key}");
    let has = |value: Option<&Value>, text: &str| value.is_some_and(|value| value.to_string().contains(text));
    if has(insight.filters.get("breakdown"), &feature) || has(insight.filters.get("properties"), key) {
        return true;
    }
    let node = innermost(insight);
    let part = |name: &str| node.and_then(|node| node.get(name));
    let series = part("series").and_then(Value::as_array).into_iter().flatten();
    has(part("breakdownFilter"), &feature)
        || has(part("properties"), key)
        || series.into_iter().any(|entry| has(entry.get("properties"), key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::record::tests::insight;

    #[test]
    fn a_flag_is_referenced_in_breakdowns_and_properties() {
        let property = json!([{"key": "$feature/beta", "value": ["true"]}]);
        let node = |field: &str, value: Value| json!({"query": {"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": [], field: value}}});
        for body in [
            json!({"filters": {"breakdown": "$feature/beta"}}),
            json!({"filters": {"properties": property}}),
            node("breakdownFilter", json!({"breakdown": "$feature/beta"})),
            node("properties", property.clone()),
            node("series", json!([{"kind": "EventsNode", "properties": property}])),
        ] {
            assert!(refers_to_flag(&insight(1, body.clone()), "beta"), "{body}");
            assert!(has_properties(&insight(1, body.clone())), "{body}");
            assert!(!refers_to_flag(&insight(1, body), "gamma"));
        }
        assert!(!refers_to_flag(
            &insight(1, json!({"filters": {"breakdown": "beta"}, "name": "beta"})),
            "beta"
        ));
    }
}
