//! Stored filters: the default, and changes to their properties.
//!
//! Must stay true: reading stored filters of any shape never fails. `cohort_name` is added by reads and never stored.

use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use super::filter_view as view;

/// The field that reads add to properties of type `cohort`.
pub const COHORT_NAME: &str = "cohort_name";

/// The filters of a flag without stored filters: one condition that matches everyone.
pub fn default_filters() -> Object {
    let mut shown = Object::new();
    shown.insert("groups".to_owned(), json!([{"properties": [], "rollout_percentage": null}]));
    shown
}

/// Calls `change` for each property of any condition.
pub fn for_each_property_mut(filters: &mut Object, mut change: impl FnMut(&mut Object)) {
    for list in view::CONDITION_LISTS {
        for_each_property_of(filters, list, &mut change);
    }
}

/// Calls `change` for each property of the conditions under one key of the filters.
pub fn for_each_property_of(filters: &mut Object, list: &str, change: &mut impl FnMut(&mut Object)) {
    let conditions = filters.get_mut(list).and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let properties = condition.get_mut("properties").and_then(Value::as_array_mut);
        properties.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut *change);
    }
}

/// Removes the names that reads add to properties of type `cohort`.
pub fn drop_cohort_names(filters: &mut Object) {
    for_each_property_mut(filters, |property| {
        if property.get("type").is_some_and(|kind| kind == "cohort") {
            property.shift_remove(COHORT_NAME);
        }
    });
}
