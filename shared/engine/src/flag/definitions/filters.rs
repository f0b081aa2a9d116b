//! Stored filters made fit for strict decoders, and dependencies named by keys.
//!
//! Must stay true: no null stands where a list, an object or a flag is expected, each property has a key and a value;
//! everything else is as stored, numbers to the digit.

use serde_json::{Value, json};

use super::TooLarge;
use crate::flag::{evaluate::graph::Graph, filter_view::CONDITION_LISTS, filters, json::Object, references};

/// What a list's text has besides a key: two quotes and a comma.
const QUOTES: usize = 3;

/// The filters without names of cohorts and without nulls that a decoder would stumble over.
pub fn cleaned(stored: &Object) -> Object {
    if stored.is_empty() {
        return filters::default_shown();
    }
    let mut cleaned = stored.clone();
    for key in ["groups", "super_groups", "holdout_groups", "payloads", "early_exit"] {
        drop_null(&mut cleaned, key);
    }
    for list in CONDITION_LISTS {
        let Some(Value::Array(conditions)) = cleaned.get_mut(list) else { continue };
        conditions.retain(Value::is_object);
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            drop_null(condition, "properties");
            let Some(Value::Array(properties)) = condition.get_mut("properties") else { continue };
            properties.retain(Value::is_object);
            properties.iter_mut().filter_map(Value::as_object_mut).for_each(clean_property);
        }
    }
    cleaned
}

/// Gives a property a key, a type and a value, and takes away its nulls and the name of its cohort.
pub fn clean_property(property: &mut Object) {
    property.shift_remove(filters::COHORT_NAME);
    for key in ["operator", "type", "negation", "group_type_index"] {
        drop_null(property, key);
    }
    let is_cohort = property.get("type").is_some_and(|kind| kind == "cohort");
    if property.get("key").is_none_or(Value::is_null) {
        property.insert("key".to_owned(), json!(if is_cohort { "id" } else { "" }));
    }
    property.entry("value").or_insert(Value::Null);
    property.entry("type").or_insert_with(|| json!("person"));
}

fn drop_null(object: &mut Object, key: &str) {
    if object.get(key).is_some_and(Value::is_null) {
        object.shift_remove(key);
    }
}

/// Flags are depended on by id; clients know them by key, and want to know in which order to evaluate them. Chains may
/// be much larger than what is stored, so they take from the bytes that are left.
pub fn name_dependencies(filters: &mut Object, graph: &Graph<'_>, left: &mut usize) -> Result<(), TooLarge> {
    let key_of = |number: &usize| graph.nodes.get(*number).map(|node| node.flag.key.as_str());
    let mut fits = true;
    filters::for_each_property_mut(filters, |property| {
        if !fits || property.get("type").is_none_or(|kind| kind != "flag") {
            return;
        }
        let id = references::flag_id(&json!({"key": property.get("key")}));
        let number = id.and_then(|id| graph.number(id));
        let numbers = number.map(|number| graph.chain(number)).unwrap_or_default();
        let keys: Vec<&str> = numbers.iter().filter_map(key_of).collect();
        let bytes = keys.iter().map(|key| key.len() + QUOTES).sum();
        match left.checked_sub(bytes) {
            Some(rest) => *left = rest,
            None => fits = false,
        }
        if fits {
            if let Some(key) = number.as_ref().and_then(key_of) {
                property.insert("key".to_owned(), json!(key));
            }
            property.insert("dependency_chain".to_owned(), json!(keys));
        }
    });
    if fits { Ok(()) } else { Err(TooLarge) }
}
