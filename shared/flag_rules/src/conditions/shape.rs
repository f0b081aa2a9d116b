//! Validates the shape of `filters`: types and ranges of conditions and variants, and limits on their number.
//!
//! Must stay true: in filters that pass, conditions are objects with lists of objects as properties, and variants have
//! a string key and a percentage; later rules rely on it. Rules run in order, each over all conditions.

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, json, python};
use serde_json::Value;

use super::filter_view as view;
use crate::limits;

/// A rule about one condition; the path is for the error.
type Rule = fn(&str, &Value) -> Result<(), FieldError>;

/// Runs all checks, in the order of the contract's table.
pub fn check(filters: &Object) -> Result<(), FieldError> {
    aggregation_index(filters)?;
    conditions(filters)?;
    multivariate(filters)?;
    other_conditions(filters)
}

/// Checks size and nesting, before anything reads the content.
pub fn check_size(filters: &Value) -> Result<(), FieldError> {
    if json::depth(filters) > limits::NESTING {
        return Err(invalid_filters(format!(
            "filters must not be nested deeper than {} levels",
            limits::NESTING
        )));
    }
    if json::text_bytes(filters) > limits::FILTERS_BYTES {
        return Err(invalid_filters(format!(
            "filters must not be larger than {} KiB as JSON",
            limits::FILTERS_BYTES / 1024
        )));
    }
    Ok(())
}

fn aggregation_index(filters: &Object) -> Result<(), FieldError> {
    match filters.get("aggregation_group_type_index") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Number(number)) if !number.is_f64() => Ok(()),
        Some(other) => Err(wrong_type("aggregation_group_type_index", "an integer or null", other)),
    }
}

fn conditions(filters: &Object) -> Result<(), FieldError> {
    let groups = match filters.get("groups") {
        Some(Value::Array(groups)) => groups,
        other => return Err(wrong_type("groups", "a list", other.unwrap_or(&Value::Null))),
    };
    at_most(groups.len(), limits::CONDITIONS, "groups")?;
    let rules: [Rule; 5] =
        [condition_is_object, condition_variant, rollout_is_number, rollout_in_range, condition_properties];
    for rule in rules {
        for (i, group) in groups.iter().enumerate() {
            rule(&format!("groups[{i}]"), group)?;
        }
    }
    Ok(())
}

fn condition_is_object(path: &str, condition: &Value) -> Result<(), FieldError> {
    if condition.is_object() { Ok(()) } else { Err(wrong_type(path, "a dictionary", condition)) }
}

fn condition_variant(path: &str, condition: &Value) -> Result<(), FieldError> {
    match condition.get("variant") {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{path}.variant"), "a string or null", other)),
    }
}

fn rollout_is_number(path: &str, condition: &Value) -> Result<(), FieldError> {
    match condition.get("rollout_percentage") {
        None | Some(Value::Null | Value::Number(_)) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{path}.rollout_percentage"), "a number or null", other)),
    }
}

fn rollout_in_range(path: &str, value: &Value) -> Result<(), FieldError> {
    match view::rollout(value) {
        Some(percentage) if !(0.0..=100.0).contains(&percentage) => {
            let got = python::text(value.get("rollout_percentage").unwrap_or(&Value::Null));
            Err(invalid_filters(format!("{path}.rollout_percentage must be between 0 and 100, got {got}")))
        }
        _ => Ok(()),
    }
}

fn condition_properties(path: &str, condition: &Value) -> Result<(), FieldError> {
    let properties = match condition.get("properties") {
        None => return Ok(()),
        Some(Value::Array(properties)) => properties,
        Some(other) => return Err(wrong_type(&format!("{path}.properties"), "a list", other)),
    };
    at_most(properties.len(), limits::PROPERTIES, &format!("{path}.properties"))?;
    match properties.iter().enumerate().find(|(_, property)| !property.is_object()) {
        Some((j, other)) => Err(wrong_type(&format!("{path}.properties[{j}]"), "a dictionary", other)),
        None => Ok(()),
    }
}

fn multivariate(filters: &Object) -> Result<(), FieldError> {
    let multivariate = match filters.get("multivariate") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(multivariate)) if multivariate.is_empty() => return Ok(()),
        Some(Value::Object(multivariate)) => multivariate,
        Some(other) => return Err(wrong_type("multivariate", "a dictionary or null", other)),
    };
    let Some(Value::Array(variants)) = multivariate.get("variants") else {
        return Err(invalid_filters("multivariate.variants must be a list".to_owned()));
    };
    at_most(variants.len(), limits::VARIANTS, "multivariate.variants")?;
    for (i, variant) in variants.iter().enumerate() {
        if view::text(variant, "key").is_none() {
            return Err(invalid_filters(format!("multivariate.variants[{i}].key must be a string")));
        }
    }
    for (i, variant) in variants.iter().enumerate() {
        let path = format!("multivariate.variants[{i}]");
        let wrong =
            |got| Err(invalid_filters(format!("{path}.rollout_percentage must be a number, got {got}")));
        match variant.get("rollout_percentage") {
            Some(Value::Number(_)) => rollout_in_range(&path, variant)?,
            None | Some(Value::Null) => return wrong("null"),
            Some(other) => return wrong(python::type_name(other)),
        }
    }
    Ok(())
}

/// Super groups and holdouts are stored as sent; only shapes that later readers cannot handle are refused.
fn other_conditions(filters: &Object) -> Result<(), FieldError> {
    for name in ["super_groups", "holdout_groups"] {
        match filters.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Array(conditions)) => {
                at_most(conditions.len(), limits::CONDITIONS, name)?;
                for (i, condition) in conditions.iter().enumerate() {
                    let path = format!("{name}[{i}]");
                    condition_is_object(&path, condition)?;
                    condition_properties(&path, condition)?;
                }
            }
            Some(other) => return Err(wrong_type(name, "a list or null", other)),
        }
    }
    check_holdout(filters)
}

/// Checks the shape of the newer form of a holdout.
pub fn check_holdout(filters: &Object) -> Result<(), FieldError> {
    match filters.get("holdout") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => Err(wrong_type("holdout", "a dictionary or null", other)),
    }
}

/// Checks that the percentages of the variants, if there are any, sum to 100.
pub fn check_variant_sum(filters: &Object) -> Result<(), FieldError> {
    const TOLERANCE: f64 = 1e-9;
    let variants = view::variants(filters);
    let sum: f64 = variants.iter().filter_map(view::rollout).sum();
    if variants.is_empty() || (sum - 100.0).abs() <= TOLERANCE {
        return Ok(());
    }
    let detail = "Invalid variant definitions: Variant rollout percentages must sum to 100.";
    Err(invalid_filters(detail.to_owned()))
}

fn at_most(count: usize, most: usize, what: &str) -> Result<(), FieldError> {
    if count <= most {
        Ok(())
    } else {
        Err(invalid_filters(format!("{what} must not have more than {most} entries")))
    }
}

fn wrong_type(what: &str, expected: &str, got: &Value) -> FieldError {
    invalid_filters(format!("{what} must be {expected}, got {}", python::type_name(got)))
}

fn invalid_filters(detail: String) -> FieldError {
    FieldError::invalid("filters", detail)
}
