//! Normalizes stored filters for strict decoders, and adds dependency chains by flag key.
//!
//! Must stay true: a list, an object or a flag is never null; each property has a key and a value; everything else is
//! unchanged, including the digits of numbers.

use std::borrow::Cow;

use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use super::TooLarge;
use crate::conditions::filter_view::{self as view, CONDITION_LISTS};
use crate::conditions::filters;
use crate::conditions::record_ids;
use crate::evaluate::dependency_graph::DependencyGraph;

/// Bytes of a list element besides the key: two quotes and a comma.
const QUOTES: usize = 3;

/// Fields of filters in which null means absent.
const NEVER_NULL: [&str; 5] = ["groups", "super_groups", "holdout_groups", "payloads", "early_exit"];

/// The same for properties.
const NEVER_NULL_IN_PROPERTIES: [&str; 4] = ["operator", "type", "negation", "group_type_index"];

/// The filters without cohort names and without nulls that strict decoders reject. Nearly all are stored that way
/// already.
pub fn normalized(stored: &Object) -> Cow<'_, Object> {
    if stored.is_empty() {
        return Cow::Owned(filters::default_filters());
    }
    if is_clean(stored) { Cow::Borrowed(stored) } else { Cow::Owned(clean(stored.clone())) }
}

/// Whether [`clean`] would change nothing.
fn is_clean(filters: &Object) -> bool {
    let no_null = |object: &Object, keys: &[&str]| {
        keys.iter().all(|key| object.get(*key).is_none_or(|value| !value.is_null()))
    };
    let property_is_clean = |property: &Value| {
        property.as_object().is_some_and(|property| {
            !property.contains_key(filters::COHORT_NAME)
                && no_null(property, &NEVER_NULL_IN_PROPERTIES)
                && property.get("key").is_some_and(|key| !key.is_null())
                && property.contains_key("type")
                && property.contains_key("value")
        })
    };
    let condition_is_clean = |condition: &Value| {
        condition.as_object().is_some_and(|condition| {
            no_null(condition, &["properties"])
                && view::properties_of(condition).iter().all(property_is_clean)
        })
    };
    no_null(filters, &NEVER_NULL) && view::all_conditions(filters).all(condition_is_clean)
}

fn clean(mut cleaned: Object) -> Object {
    for key in NEVER_NULL {
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

/// Ensures that a property has a key, a type and a value, and removes nulls and the cohort name.
pub fn clean_property(property: &mut Object) {
    property.shift_remove(filters::COHORT_NAME);
    for key in NEVER_NULL_IN_PROPERTIES {
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

/// Adds the dependency chain of each flag property: clients know flags by key, and need the evaluation order. Chains
/// may be much larger than the stored data, so they reduce the remaining bytes.
pub fn add_dependency_chains(
    filters: &mut Cow<'_, Object>,
    graph: &DependencyGraph<'_>,
    bytes_left: &mut usize,
) -> Result<(), TooLarge> {
    let is_dependency = |property: &Value| view::text(property, "type") == Some("flag");
    if !view::all_conditions(filters).flat_map(view::properties).any(is_dependency) {
        return Ok(());
    }
    let key_of = |number: &usize| graph.nodes.get(*number).map(|node| node.flag.key.as_str());
    let mut fits = true;
    filters::for_each_property_mut(filters.to_mut(), |property| {
        if !fits || property.get("type").is_none_or(|kind| kind != "flag") {
            return;
        }
        let id = record_ids::flag_id(&json!({"key": property.get("key")}));
        let number = id.and_then(|id| graph.number(id));
        let numbers = number.map(|number| graph.chain(number)).unwrap_or_default();
        let keys: Vec<&str> = numbers.iter().filter_map(key_of).collect();
        let bytes = keys.iter().map(|key| key.len() + QUOTES).sum();
        match bytes_left.checked_sub(bytes) {
            Some(rest) => *bytes_left = rest,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn is_clean_exactly_when_cleaning_changes_nothing() {
        let with = |property: Value| json!({"groups": [{"properties": [property]}], "payloads": {}});
        let fine = json!({"key": "a", "type": "person", "value": null});
        let without = |key: &str| {
            let mut property = testing::object(fine.clone());
            property.shift_remove(key);
            Value::Object(property)
        };
        let and = |key: &str, value: Value| {
            let mut property = testing::object(fine.clone());
            property.insert(key.to_owned(), value);
            Value::Object(property)
        };
        for (filters, expected) in [
            (with(fine.clone()), true),
            (with(and("operator", json!("exact"))), true),
            (with(and("other", json!(null))), true),
            (json!({"groups": [{"rollout_percentage": null, "variant": null}], "multivariate": null}), true),
            (json!({"groups": "x"}), true),
            (with(without("key")), false),
            (with(without("type")), false),
            (with(without("value")), false),
            (with(and("key", json!(null))), false),
            (with(and("operator", json!(null))), false),
            (with(and("type", json!(null))), false),
            (with(and("negation", json!(null))), false),
            (with(and("group_type_index", json!(null))), false),
            (with(and("cohort_name", json!("x"))), false),
            (with(json!(null)), false),
            (json!({"groups": [{"properties": null}]}), false),
            (json!({"groups": [1]}), false),
            (json!({"groups": null}), false),
            (json!({"super_groups": null}), false),
            (json!({"holdout_groups": [{"properties": [{}]}]}), false),
            (json!({"payloads": null}), false),
            (json!({"early_exit": null}), false),
        ] {
            let filters = testing::object(filters);
            assert_eq!(is_clean(&filters), expected, "{filters:?}");
            assert_eq!(clean(filters.clone()) == filters, expected, "{filters:?}");
        }
    }
}
