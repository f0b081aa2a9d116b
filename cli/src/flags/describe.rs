//! The conditions of a flag in words.

use serde_json::Value;

use crate::show::quantities::percent;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The conditions of a flag.
pub(super) fn conditions(flag: &Value) -> &[Value] {
    list(&flag["filters"]["groups"])
}

/// The variants of a flag.
pub(super) fn variants(flag: &Value) -> &[Value] {
    list(&flag["filters"]["multivariate"]["variants"])
}

/// The rollout of a condition; without one it is 100.
pub(super) fn rollout(condition: &Value) -> f64 {
    condition["rollout_percentage"].as_f64().unwrap_or(100.0)
}

/// A value of a property.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(value_text).collect::<Vec<_>>().join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn property_text(property: &Value) -> String {
    let name = value_text(&property["key"]);
    let operator = property["operator"].as_str().unwrap_or("exact").replace('_', " ");
    let value = value_text(&property["value"]);
    match property["type"].as_str() {
        Some("cohort") => format!("in cohort {}", property["cohort_name"].as_str().unwrap_or(&value)),
        Some("flag") => format!("flag {name} is {value}"),
        Some("group") => format!("group's {name} {operator} {value}"),
        _ => format!("{name} {operator} {value}"),
    }
    .trim_end()
    .to_owned()
}

/// Whom a condition matches, how many of them, and the variant they get.
pub(super) fn condition_text(condition: &Value) -> String {
    let properties: Vec<String> = list(&condition["properties"]).iter().map(property_text).collect();
    let matched = if properties.is_empty() { "all".to_owned() } else { properties.join(" and ") };
    let variant = condition["variant"].as_str().map(|name| format!(", variant {name}")).unwrap_or_default();
    format!("{matched}: {}{variant}", percent(rollout(condition)))
}

/// The rollout of a flag in a list.
pub(super) fn rollout_text(flag: &Value) -> String {
    let conditions = conditions(flag);
    let text = match conditions {
        [] => "no condition".to_owned(),
        [only] if list(&only["properties"]).is_empty() => percent(rollout(only)),
        [only] => format!("{} of matching", percent(rollout(only))),
        several => format!("{} conditions", several.len()),
    };
    match variants(flag).len() {
        0 => text,
        count => format!("{text}, {count} variants"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_names_its_properties_rollout_and_variant() {
        let plain = json!({"properties": [], "rollout_percentage": 20});
        assert_eq!(condition_text(&plain), "all: 20 %");
        let properties = json!([
            {"key": "plan", "type": "person", "operator": "exact", "value": ["pro", "max"]},
            {"key": "id", "type": "cohort", "value": 4, "cohort_name": "beta"},
            {"key": "email", "type": "person", "operator": "is_set", "value": ""},
            {"key": "other", "type": "flag", "operator": "flag_evaluates_to", "value": true},
        ]);
        let condition = json!({"properties": properties, "rollout_percentage": null, "variant": "test"});
        let text = "plan exact pro, max and in cohort beta and email is set and flag other is true: 100 %, variant test";
        assert_eq!(condition_text(&condition), text);
    }

    #[test]
    fn a_list_summarises_the_rollout() {
        let flag = |groups: Value| json!({"filters": {"groups": groups}});
        assert_eq!(rollout_text(&flag(json!([]))), "no condition");
        assert_eq!(rollout_text(&flag(json!([{"rollout_percentage": 12.5}]))), "12.5 %");
        let property = json!({"key": "a", "value": "b"});
        assert_eq!(rollout_text(&flag(json!([{"properties": [property]}]))), "100 % of matching");
        assert_eq!(rollout_text(&flag(json!([{}, {}]))), "2 conditions");
        let variants = json!({"variants": [{"key": "a"}, {"key": "b"}]});
        assert_eq!(
            rollout_text(&json!({"filters": {"groups": [{}], "multivariate": variants}})),
            "100 %, 2 variants"
        );
    }
}
