//! Parses the formulas of a trend from the three fields that clients of different versions send.
//!
//! Must stay true: every formula of a request is calculated, in the order sent, or the request is rejected.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::{Value, json};

use super::formula::Formula;
use super::limits;
use super::raw_query::RawTrends;
use crate::query::Field;

/// A formula and its optional name.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedFormula {
    /// The formula.
    pub formula: Formula,
    /// The label of the result's series; `None` labels it with the formula's text.
    pub custom_name: Option<String>,
}

/// Parses the formulas. `formulaNodes` takes precedence over `formulas`, and `formulas` over the single `formula` of older
/// clients.
pub fn parse(raw: &RawTrends<'_>, series: usize) -> CalcResult<Vec<NamedFormula>> {
    for (field, is_object) in [(&raw.formula_nodes, true), (&raw.formulas, false)] {
        let entries = match field.value.as_deref() {
            None => continue,
            Some(Value::Array(entries)) if entries.is_empty() => continue,
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(CalcError::invalid(field.attr, "Expected a list of formulas.")),
        };
        if entries.len() > limits::FORMULAS {
            return Err(limits::too_many(field.attr, "formulas", limits::FORMULAS));
        }
        return entries.iter().map(|entry| parse_entry(entry, is_object, series, field.attr)).collect();
    }
    let formula = match raw.formula.value.as_deref() {
        Some(node @ Value::Object(_)) => Some(parse_entry(node, true, series, raw.formula.attr)?),
        _ => match raw.formula.text()? {
            Some(text) => Some(NamedFormula {
                formula: Formula::parse(text, series, raw.formula.attr)?,
                custom_name: None,
            }),
            None => None,
        },
    };
    Ok(formula.into_iter().collect())
}

/// Parses one entry of a formula list.
fn parse_entry(
    entry: &Value,
    is_object: bool,
    series: usize,
    attr: &'static str,
) -> CalcResult<NamedFormula> {
    let (text, custom_name) = match entry {
        Value::Object(node) if is_object => {
            (Field::of(node, "formula", attr), Field::of(node, "custom_name", attr))
        }
        Value::String(_) if !is_object => {
            (Field { attr, value: Some(Cow::Borrowed(entry)) }, Field { attr, value: None })
        }
        _ if is_object => {
            return Err(CalcError::invalid(attr, "Each entry must be an object with the field formula."));
        }
        _ => return Err(CalcError::invalid(attr, "Each entry must be a text such as \"A / B\".")),
    };
    let Some(text) = text.text()? else {
        return Err(CalcError::invalid(attr, "A formula must not be empty."));
    };
    let custom_name = custom_name.text()?.map(|name| name.trim().to_owned());
    Ok(NamedFormula { formula: Formula::parse(text, series, attr)?, custom_name })
}

/// The request fields that hold these formulas: `formula` for a single one without a name, as older clients send it,
/// else `formulaNodes`.
pub fn to_fields(formulas: &[NamedFormula]) -> Vec<(&'static str, Value)> {
    match formulas {
        [] => Vec::new(),
        [NamedFormula { formula, custom_name: None }] => vec![("formula", json!(formula.text()))],
        several => {
            let node = |one: &NamedFormula| match &one.custom_name {
                Some(name) => json!({"formula": one.formula.text(), "custom_name": name}),
                None => json!({"formula": one.formula.text()}),
            };
            vec![("formulaNodes", several.iter().map(node).collect())]
        }
    }
}
