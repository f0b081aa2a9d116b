//! Operators on a group's own key.
//!
//! Must stay true: every operator that passes here compares strings.

use pennon_filters::body::FieldError;
use serde_json::Value;

use crate::conditions::filter_view as view;
use crate::evaluate::GROUP_KEY;

/// Operators on a group's key.
const OPERATORS: [&str; 8] =
    ["exact", "is_not", "in", "not_in", "icontains", "not_icontains", "regex", "not_regex"];

/// Operators that take a single string.
const SINGLE: [&str; 4] = ["icontains", "not_icontains", "regex", "not_regex"];

/// Validates the operator and the value of a property on the group key.
pub fn check(property: &Value) -> Result<(), FieldError> {
    if view::text(property, "key") != Some(GROUP_KEY) {
        return Ok(());
    }
    let operator = view::operator(property);
    if !OPERATORS.contains(&operator) {
        let detail = format!(
            "Operator '{operator}' is not supported for {GROUP_KEY}. The operator must be one of {}.",
            OPERATORS.join(", ")
        );
        return Err(FieldError::general(detail));
    }
    if SINGLE.contains(&operator) && property.get("value").is_some_and(Value::is_array) {
        let detail = format!("Operator '{operator}' is not supported with a list of values for {GROUP_KEY}.");
        return Err(FieldError::general(detail));
    }
    Ok(())
}
