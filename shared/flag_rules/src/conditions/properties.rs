//! Validates single properties of conditions: types, operators, values.
//!
//! Must stay true: they run on filters of the right shape (see `shape`), and evaluation understands every value that
//! passes.

use std::collections::BTreeSet;

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, python};
use pennon_filters::operator::{FilterSide, Operator};
use serde_json::Value;

use super::{date_value, filter_view as view, pattern, record_ids};
use crate::limits;

/// Operators whose value must be a string.
const TEXT_OPERATORS: [Operator; 8] = [
    Operator::Regex,
    Operator::NotRegex,
    Operator::Icontains,
    Operator::NotIcontains,
    Operator::Gt,
    Operator::Gte,
    Operator::Lt,
    Operator::Lte,
];

/// Checks that each property has a key and a known operator, and the limits on regular expressions.
pub fn check_form(filters: &Object) -> Result<(), FieldError> {
    for_each(filters, |i, j, property| {
        let is_flag = view::text(property, "type") == Some("flag");
        let has_key = match property.get("key") {
            Some(Value::String(key)) => !key.is_empty(),
            Some(Value::Number(_)) => is_flag,
            _ => false,
        };
        let detail = || format!("groups[{i}].properties[{j}].key: a property key is required");
        if has_key { Ok(()) } else { Err(invalid_filters(detail())) }
    })?;
    for_each(filters, |i, j, property| {
        let known = match property.get("operator") {
            None | Some(Value::Null) => true,
            Some(Value::String(name)) => is_operator(name),
            Some(_) => false,
        };
        let detail = || format!("groups[{i}].properties[{j}].{}", unsupported_operator());
        if known { Ok(()) } else { Err(invalid_filters(detail())) }
    })?;
    check_pattern_caps(filters)
}

/// Whether flags have an operator of this name.
pub fn is_operator(name: &str) -> bool {
    Operator::parse(name, FilterSide::Flags).is_some()
}

/// The detail of an unknown operator, after the path of its property.
pub fn unsupported_operator() -> String {
    let allowed = Operator::names(FilterSide::Flags).join(", ");
    format!("operator: unsupported operator for feature flags; operator must be one of {allowed}")
}

fn check_pattern_caps(filters: &Object) -> Result<(), FieldError> {
    let mut patterns = 0;
    for_each(filters, |i, j, property| {
        let Some(text) = pattern_of(property) else { return Ok(()) };
        patterns += 1;
        let most = limits::PATTERN_BYTES;
        if text.len() > most {
            let detail =
                format!("groups[{i}].properties[{j}].value: a pattern must not be longer than {most} bytes");
            return Err(invalid_filters(detail));
        }
        let most = limits::PATTERNS;
        if patterns > most {
            return Err(invalid_filters(format!(
                "A feature flag must not have more than {most} regular expressions"
            )));
        }
        Ok(())
    })
}

fn pattern_of(property: &Value) -> Option<&str> {
    if !is_pattern(property) {
        return None;
    }
    view::text(property, "value")
}

/// Whether the values of a property are regular expressions.
pub fn is_pattern(property: &Value) -> bool {
    matches!(view::operator(property), Some(Operator::Regex | Operator::NotRegex))
}

/// Checks that every regular expression compiles; only required on create.
pub fn check_patterns(filters: &Object) -> Result<(), FieldError> {
    let mut patterns = view::group_properties(filters).filter_map(pattern_of);
    if patterns.all(|text| pattern::compile(text).is_some()) {
        return Ok(());
    }
    Err(FieldError::general("Can't evaluate flag - please check release conditions"))
}

/// Checks that a flag on persons has no property of a group or an event.
pub fn check_person_types(filters: &Object) -> Result<(), FieldError> {
    if view::aggregation_index(filters).is_some() {
        return Ok(());
    }
    let allowed = |p: &Value| matches!(view::text(p, "type"), Some("person" | "cohort" | "flag"));
    let Some(refused) = view::group_properties(filters).find(|p| !allowed(p)) else { return Ok(()) };
    let detail = "Filters are not valid (can only use person, cohort, and flag properties)";
    // Without a type it counts as an event's, which is rarely what the sender meant.
    let has_type = refused.get("type").is_some_and(|kind| !kind.is_null());
    let hint = if has_type { "" } else { r#"; add "type": "person""# };
    Err(invalid_filters(format!("{detail}{hint}")))
}

/// Checks that a flag on groups has only properties of its own group type.
pub fn check_group_types(filters: &Object) -> Result<(), FieldError> {
    let Some(index) = view::aggregation_index(filters) else { return Ok(()) };
    let of_group = |p: &Value| {
        view::text(p, "type") == Some("group")
            && p.get("group_type_index").and_then(Value::as_i64) == Some(index)
    };
    if view::group_properties(filters).all(of_group) {
        return Ok(());
    }
    Err(invalid_filters("Filters are not valid (can only use group properties)".to_owned()))
}

/// Checks the operator of properties on other flags.
pub fn check_flag_operators(filters: &Object) -> Result<(), FieldError> {
    let mut flags = view::group_properties(filters).filter(|p| view::text(p, "type") == Some("flag"));
    if flags.all(|p| view::operator(p) == Some(Operator::FlagEvaluatesTo)) {
        return Ok(());
    }
    Err(invalid_filters("Flag properties must use the 'flag_evaluates_to' operator".to_owned()))
}

/// Checks the number of other records that the flag refers to.
pub fn check_reference_caps(filters: &Object) -> Result<(), FieldError> {
    let most = limits::REFERENCES;
    let counts =
        [("flags", record_ids::flag_ids(filters).len()), ("cohorts", record_ids::cohort_ids(filters).len())];
    match counts.iter().find(|(_, count)| *count > most) {
        Some((what, _)) => {
            Err(invalid_filters(format!("A feature flag must not refer to more than {most} {what}")))
        }
        None => Ok(()),
    }
}

/// Checks conditions one by one: first the variant of the condition, then each property's value. `check_cohort` checks
/// the cohort that a property names.
pub fn check_values(
    filters: &Object,
    check_cohort: impl Fn(&Value) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    let variants: BTreeSet<&str> =
        view::variants(filters).iter().filter_map(|v| view::text(v, "key")).collect();
    for condition in view::groups(filters) {
        if view::condition_variant(condition).is_some_and(|variant| !variants.contains(variant)) {
            return Err(invalid_filters(
                "Filters are not valid (variant override does not exist)".to_owned(),
            ));
        }
        for property in view::properties(condition) {
            check_list_length(property)?;
            check_cohort(property)?;
            check_date(property)?;
            check_text_value(property)?;
            check_membership_operator(property)?;
        }
    }
    Ok(())
}

/// Checks the number of values of a list.
pub fn check_list_length(property: &Value) -> Result<(), FieldError> {
    let length = property.get("value").and_then(Value::as_array).map_or(0, Vec::len);
    if length <= limits::VALUES {
        return Ok(());
    }
    let key = python::text(property.get("key").unwrap_or(&Value::Null));
    let most = limits::VALUES;
    Err(invalid_filters(format!(
        "Property group expressions of type {key} cannot contain more than {most} values."
    )))
}

fn check_date(property: &Value) -> Result<(), FieldError> {
    let readable = view::text(property, "value").and_then(date_value::parse).is_some();
    let operator = view::operator(property);
    if readable || !matches!(operator, Some(Operator::IsDateBefore | Operator::IsDateAfter)) {
        return Ok(());
    }
    let value = python::text(property.get("value").unwrap_or(&Value::Null));
    Err(FieldError::new("filters", "invalid_date", format!("Invalid date value: {value}")))
}

fn check_text_value(property: &Value) -> Result<(), FieldError> {
    let Some(operator) = view::operator(property) else { return Ok(()) };
    if view::text(property, "value").is_some() || !TEXT_OPERATORS.contains(&operator) {
        return Ok(());
    }
    let value = python::text(property.get("value").unwrap_or(&Value::Null));
    Err(FieldError::new(
        "filters",
        "invalid_value",
        format!("Invalid value for operator {}: {value}", operator.name()),
    ))
}

fn check_membership_operator(property: &Value) -> Result<(), FieldError> {
    let Some(operator @ (Operator::In | Operator::NotIn)) = view::operator(property) else { return Ok(()) };
    let kind = view::text(property, "type").unwrap_or("event");
    if kind == "cohort" {
        return Ok(());
    }
    let name = operator.name();
    let detail =
        format!("The '{name}' operator is only valid for cohort properties, not '{kind}' properties.");
    Err(FieldError::new("filters", "invalid_operator", detail))
}

fn for_each(
    filters: &Object,
    mut rule: impl FnMut(usize, usize, &Value) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    for (i, condition) in view::groups(filters).iter().enumerate() {
        for (j, property) in view::properties(condition).iter().enumerate() {
            rule(i, j, property)?;
        }
    }
    Ok(())
}

fn invalid_filters(detail: String) -> FieldError {
    FieldError::invalid("filters", detail)
}
