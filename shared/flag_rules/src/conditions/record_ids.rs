//! The ids of flags and cohorts that filters name.
//!
//! Must stay true: reading never fails; a property of the wrong shape names nothing.

use std::collections::BTreeSet;

use pennon_filters::body::fields;
use pennon_filters::body::json::Object;
use serde_json::Value;

use super::filter_view as view;

/// The id of the flag in a property of type `flag`. `None` when its key is not an integer.
pub fn flag_id(property: &Value) -> Option<i64> {
    match property.get("key")? {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_i64(),
        _ => None,
    }
}

/// Whether a property or a criterion refers to a cohort; several type names mean a cohort.
pub fn is_cohort(property: &Value) -> bool {
    let kind = view::text(property, "type");
    matches!(kind, Some("cohort" | "static-cohort" | "dynamic-cohort" | "precalculated-cohort"))
}

/// The id of the cohort in a property of type `cohort`. `None` when its value is not an integer.
pub fn cohort_id(property: &Value) -> Option<i64> {
    property.get("value").and_then(fields::as_integer)
}

/// The properties that make a flag depend on other flags: those of `groups`, and of the first early access condition
/// (the only one that is evaluated).
pub fn flag_properties(filters: &Object) -> impl Iterator<Item = &Value> {
    let conditions = view::groups(filters).iter().chain(view::super_groups(filters).first());
    conditions.flat_map(view::properties).filter(|property| view::text(property, "type") == Some("flag"))
}

/// The ids of the flags that filters depend on, in order of appearance, without duplicates; `None` for a property
/// without a valid id.
pub fn dependency_ids(filters: &Object) -> Vec<Option<i64>> {
    unique(flag_properties(filters).map(flag_id))
}

/// The ids of the flags that filters depend on, in order of appearance, without duplicates.
pub fn flag_ids(filters: &Object) -> Vec<i64> {
    dependency_ids(filters).into_iter().flatten().collect()
}

/// The ids of all cohorts in filters, in order of appearance, without duplicates.
pub fn cohort_ids(filters: &Object) -> Vec<i64> {
    let properties = view::all_conditions(filters).flat_map(view::properties);
    unique(properties.filter(|property| is_cohort(property)).filter_map(cohort_id))
}

fn unique<T: Ord + Copy>(ids: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    ids.filter(|id| seen.insert(*id)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_that_filters_name() {
        let filters = json!({
            "groups": [{"properties": [
                {"key": "7", "type": "flag"}, {"key": " 8 ", "type": "flag"}, {"key": 7, "type": "flag"},
                {"key": "beta", "type": "flag"}, {"key": "id", "type": "cohort", "value": "3"},
            ]}],
            "super_groups": [
                {"properties": [{"key": "id", "type": "static-cohort", "value": 5}, {"key": "9", "type": "flag"}]},
                // Only the first one is evaluated.
                {"properties": [{"key": "10", "type": "flag"}]},
            ],
            "holdout_groups": [{"properties": [{"key": "id", "type": "dynamic-cohort", "value": 6}]}],
        });
        let Some(filters) = filters.as_object() else { unreachable!() };
        assert_eq!(flag_ids(filters), [7, 8, 9]);
        assert_eq!(cohort_ids(filters), [3, 5, 6]);
        assert_eq!(dependency_ids(filters), [Some(7), Some(8), None, Some(9)]);
    }
}
