//! Operators on a group's own key.
//!
//! Must stay true: every operator that passes here compares strings.

use pennon_filters::body::FieldError;
use pennon_filters::operator::Operator;
use serde_json::Value;

use crate::conditions::filter_view as view;
use crate::evaluate::GROUP_KEY;

/// Operators on a group's key.
const OPERATORS: [Operator; 8] = [
    Operator::Exact,
    Operator::IsNot,
    Operator::In,
    Operator::NotIn,
    Operator::Icontains,
    Operator::NotIcontains,
    Operator::Regex,
    Operator::NotRegex,
];

/// Operators that take a single string.
const SINGLE: [Operator; 4] =
    [Operator::Icontains, Operator::NotIcontains, Operator::Regex, Operator::NotRegex];

/// Validates the operator and the value of a property on the group key. An unknown operator was refused before.
pub fn check(property: &Value) -> Result<(), FieldError> {
    if view::text(property, "key") != Some(GROUP_KEY) {
        return Ok(());
    }
    let Some(operator) = view::operator(property) else { return Ok(()) };
    let name = operator.name();
    if !OPERATORS.contains(&operator) {
        let detail = format!(
            "Operator '{name}' is not supported for {GROUP_KEY}. The operator must be one of {}.",
            OPERATORS.map(Operator::name).join(", ")
        );
        return Err(FieldError::general(detail));
    }
    if SINGLE.contains(&operator) && property.get("value").is_some_and(Value::is_array) {
        let detail = format!("Operator '{name}' is not supported with a list of values for {GROUP_KEY}.");
        return Err(FieldError::general(detail));
    }
    Ok(())
}
