//! Accessors for stored `filters`: conditions, properties, variants.
//!
//! Must stay true: nothing here fails. Filters may be imported or older than a rule, so a part of the wrong shape
//! counts as absent.

use pennon_filters::body::json::Object;
use pennon_filters::operator::{FilterSide, Operator};
use serde_json::Value;

/// The fields of `filters` that contain conditions.
pub const CONDITION_LISTS: [&str; 3] = ["groups", "super_groups", "holdout_groups"];

/// The conditions of a flag: the entries of `groups`.
pub fn groups(filters: &Object) -> &[Value] {
    items(filters.get("groups"))
}

/// The early access conditions.
pub fn super_groups(filters: &Object) -> &[Value] {
    items(filters.get("super_groups"))
}

/// The holdout conditions.
pub fn holdout_groups(filters: &Object) -> &[Value] {
    items(filters.get("holdout_groups"))
}

/// All conditions, including super groups and holdouts.
pub fn all_conditions(filters: &Object) -> impl Iterator<Item = &Value> {
    CONDITION_LISTS.into_iter().flat_map(|list| items(filters.get(list)))
}

/// The properties of a condition.
pub fn properties(condition: &Value) -> &[Value] {
    items(condition.get("properties"))
}

/// The properties of a condition that is known to be an object.
pub fn properties_of(condition: &Object) -> &[Value] {
    items(condition.get("properties"))
}

/// The properties of all `groups`, in order of appearance.
pub fn group_properties(filters: &Object) -> impl Iterator<Item = &Value> {
    groups(filters).iter().flat_map(properties)
}

/// The variants; none for a boolean flag.
pub fn variants(filters: &Object) -> &[Value] {
    items(filters.get("multivariate").and_then(|multivariate| multivariate.get("variants")))
}

/// The group type index of a flag on groups; `None` for a flag on persons.
pub fn aggregation_index(filters: &Object) -> Option<i64> {
    filters.get("aggregation_group_type_index").and_then(Value::as_i64)
}

/// A text field of a condition, property or variant.
pub fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The operator of a property; default `exact`. `None` for one that flags do not have.
pub fn operator(property: &Value) -> Option<Operator> {
    match text(property, "operator") {
        Some(name) => Operator::parse(name, FilterSide::Flags),
        None => Some(Operator::Exact),
    }
}

/// The `rollout_percentage` of a condition or variant; `None` when absent or null.
pub fn rollout(value: &Value) -> Option<f64> {
    value.get("rollout_percentage").and_then(Value::as_f64)
}

/// The variant that a condition assigns. An empty string assigns none.
pub fn condition_variant(condition: &Value) -> Option<&str> {
    text(condition, "variant").filter(|variant| !variant.is_empty())
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
