//! Validates query nodes before they are stored in an insight.
//!
//! Must stay true: unknown fields are kept and never validated, because newer clients send newer fields. A known field with
//! a value of the wrong type or outside its choices is rejected, and so is a node of an unknown kind.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::{FilterSide, Operator};
use serde_json::{Map, Value};

use super::InsightKind;
use crate::query::node::{SAVED_INSIGHT, WRAPPERS, get_kind};
use crate::query::parse_integer;

/// Maximum nesting depth of nodes.
const MAX_DEPTH: usize = 8;
/// Maximum nesting depth of property filter groups. The size of the request body is limited elsewhere.
const MAX_NESTING: usize = 64;
/// Operator of feature flag conditions, which insights accept but calculations do not support.
pub const FLAG_OPERATOR: &str = Operator::FlagEvaluatesTo.name();

/// A field of a node: the nested object (empty for the node itself), the field's name, its type.
pub type SavedField = (&'static str, &'static str, FieldType);

/// The type of a known field; null is always allowed.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names are those of JSON types")]
pub enum FieldType {
    String,
    Boolean,
    Integer,
    Number,
    Object,
    List,
    ListOrObject,
    OneOf(&'static [&'static str]),
}

/// Allowed intervals of a saved insight, including one that is not calculated.
pub const INTERVALS: &[&str] = &["second", "minute", "hour", "day", "week", "month"];
/// Allowed breakdown types, including those that only other implementations calculate.
pub const BREAKDOWN_TYPES: &[&str] = &[
    "event",
    "event_metadata",
    "person",
    "session",
    "group",
    "cohort",
    "hogql",
    "data_warehouse",
    "data_warehouse_person_property",
    "revenue_analytics",
];
/// Allowed types of property filters, likewise.
pub const CONDITION_TYPES: &[&str] = &[
    "event",
    "event_metadata",
    "feature",
    "person",
    "element",
    "session",
    "cohort",
    "static-cohort",
    "dynamic-cohort",
    "precalculated-cohort",
    "group",
    "hogql",
    "flag",
    "recording",
    "log_entry",
    "data_warehouse",
    "data_warehouse_person_property",
    "error_tracking_issue",
    "revenue_analytics",
    "AND",
    "OR",
];

/// The fields that nodes of all kinds share.
const SHARED_FIELDS: &[SavedField] = &[
    ("", "dateRange", FieldType::Object),
    ("", "interval", FieldType::OneOf(INTERVALS)),
    ("", "filterTestAccounts", FieldType::Boolean),
    ("", "properties", FieldType::ListOrObject),
    ("", "aggregation_group_type_index", FieldType::Integer),
    ("", "samplingFactor", FieldType::Number),
    ("", "breakdownFilter", FieldType::Object),
    ("", "compareFilter", FieldType::Object),
    ("dateRange", "date_from", FieldType::String),
    ("dateRange", "date_to", FieldType::String),
    ("dateRange", "explicitDate", FieldType::Boolean),
    ("breakdownFilter", "breakdown_type", FieldType::OneOf(BREAKDOWN_TYPES)),
    ("breakdownFilter", "breakdowns", FieldType::List),
    ("breakdownFilter", "breakdown_limit", FieldType::Integer),
    ("compareFilter", "compare", FieldType::Boolean),
    ("compareFilter", "compare_to", FieldType::String),
];

/// Kinds of series of a saved query; an [`ACTION_SERIES`] needs an id. Without a kind a series is of an event.
pub const SERIES_KINDS: [&str; 4] = ["EventsNode", ACTION_SERIES, "DataWarehouseNode", "GroupNode"];
/// The kind of a series of an action.
pub const ACTION_SERIES: &str = "ActionsNode";

/// Fields of a series.
pub const SERIES_FIELDS: &[(&str, FieldType)] = &[
    ("event", FieldType::String),
    ("name", FieldType::String),
    ("custom_name", FieldType::String),
    ("math", FieldType::String),
    ("math_property", FieldType::String),
    ("math_group_type_index", FieldType::Integer),
    ("math_multiplier", FieldType::Number),
    ("properties", FieldType::List),
    ("optionalInFunnel", FieldType::Boolean),
];

/// The fields that are validated in a node of any kind that has series.
pub fn validated_fields() -> impl Iterator<Item = &'static SavedField> {
    SHARED_FIELDS.iter().chain(InsightKind::ALL.iter().flat_map(|kind| kind.description().saved_fields))
}

/// Validates the `query` field of a write request: null, an object, or a JSON string of an object, which is decoded.
/// Errors are parse errors that name the invalid field.
pub fn decode_and_validate_query(value: &Value) -> CalcResult<Option<Value>> {
    let node = match value {
        Value::Null => return Ok(None),
        Value::String(text) => Cow::Owned(
            serde_json::from_str(text)
                .map_err(|_| CalcError::parse("The query is a text that is not valid JSON."))?,
        ),
        other => Cow::Borrowed(other),
    };
    validate_node(&node)?;
    Ok(Some(node.into_owned()))
}

/// Validates a query node that an insight stores.
pub fn validate_node(node: &Value) -> CalcResult<()> {
    let mut node = node.as_object().ok_or_else(|| CalcError::parse("A query must be an object."))?;
    for _ in 0..MAX_DEPTH {
        let kind = get_kind(node)?;
        if !(kind.ends_with("Query") || kind.ends_with("Node")) {
            return Err(CalcError::parse(format!("There is no query node of kind \"{kind}\".")));
        }
        if InsightKind::of_node(kind).is_some() {
            return validate_insight_query(node);
        }
        node = match node.get("source") {
            Some(Value::Object(source)) => source,
            Some(Value::Null) | None if !WRAPPERS.contains(&kind) || kind == SAVED_INSIGHT => {
                return Ok(());
            }
            Some(_) if !WRAPPERS.contains(&kind) => return Ok(()),
            _ => return Err(CalcError::parse(format!("A {kind} needs a \"source\" that is a query node."))),
        };
    }
    Err(CalcError::parse("The query is wrapped too many times."))
}

fn validate_insight_query(node: &Map<String, Value>) -> CalcResult<()> {
    let Some(Value::Array(series)) = node.get("series") else {
        return Err(CalcError::parse("A query needs a \"series\" that is an array."));
    };
    for entry in series {
        validate_series(entry)?;
    }
    // The fields of the node before those of its nested objects.
    for (parent, field, field_type) in validated_fields().filter(|(parent, ..)| parent.is_empty()) {
        check_field(node.get(*field), *field_type, parent, field)?;
    }
    for (parent, field, field_type) in validated_fields().filter(|(parent, ..)| !parent.is_empty()) {
        let object = node.get(*parent).and_then(Value::as_object);
        check_field(object.and_then(|object| object.get(*field)), *field_type, parent, field)?;
    }
    validate_property_filters(node.get("properties"), MAX_NESTING)
}

/// Validates the types and operators of property filters: a list, or nested groups.
fn validate_property_filters(value: Option<&Value>, levels_left: usize) -> CalcResult<()> {
    let inner_levels = levels_left
        .checked_sub(1)
        .ok_or_else(|| CalcError::parse("The properties are nested too deeply."))?;
    match value {
        Some(Value::Array(list)) => {
            list.iter().try_for_each(|one| validate_property_filters(Some(one), inner_levels))
        }
        Some(Value::Object(one)) => {
            check_field(one.get("type"), FieldType::OneOf(CONDITION_TYPES), "properties", "type")?;
            let operator = one.get("operator").filter(|operator| !operator.is_null());
            let is_known = |name: &str| {
                Operator::parse(name, FilterSide::Calculations).is_some() || name == FLAG_OPERATOR
            };
            if operator.is_some_and(|operator| !operator.as_str().is_some_and(is_known)) {
                return Err(CalcError::parse(format!(
                    "\"properties.operator\" must be one of {}, {FLAG_OPERATOR}.",
                    Operator::names(FilterSide::Calculations).join(", ")
                )));
            }
            validate_property_filters(one.get("values"), inner_levels)
        }
        // The field's type was checked before; the rest is validated when the query is calculated.
        _ => Ok(()),
    }
}

fn validate_series(entry: &Value) -> CalcResult<()> {
    let fields =
        entry.as_object().ok_or_else(|| CalcError::parse("Each entry of \"series\" must be an object."))?;
    match fields.get("kind") {
        None => {}
        Some(Value::String(kind)) if kind == ACTION_SERIES && !fields.get("id").is_some_and(is_id) => {
            return Err(CalcError::parse("An ActionsNode needs an \"id\" that is an integer."));
        }
        Some(Value::String(kind)) if SERIES_KINDS.contains(&kind.as_str()) => {}
        Some(other) => {
            let detail =
                format!("There is no series of kind {other}. The kind must be EventsNode or ActionsNode.");
            return Err(CalcError::parse(detail));
        }
    }
    for (field, field_type) in SERIES_FIELDS {
        check_field(fields.get(*field), *field_type, "series", field)?;
    }
    validate_property_filters(fields.get("properties"), MAX_NESTING)
}

fn is_id(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn check_field(value: Option<&Value>, field_type: FieldType, parent: &str, field: &str) -> CalcResult<()> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(()) };
    let (fits, expected) = match field_type {
        FieldType::String => (value.is_string(), "a string".to_owned()),
        FieldType::Boolean => (value.is_boolean(), "true or false".to_owned()),
        FieldType::Integer => (parse_integer(value).is_some() && value.is_number(), "an integer".to_owned()),
        FieldType::Number => (value.is_number(), "a number".to_owned()),
        FieldType::Object => (value.is_object(), "an object".to_owned()),
        FieldType::List => (value.is_array(), "an array".to_owned()),
        FieldType::ListOrObject => {
            (value.is_array() || value.is_object(), "an array or an object".to_owned())
        }
        FieldType::OneOf(choices) => (
            value.as_str().is_some_and(|text| choices.contains(&text)),
            format!("one of {}", choices.join(", ")),
        ),
    };
    let separator = if parent.is_empty() { "" } else { "." };
    if fits {
        Ok(())
    } else {
        Err(CalcError::parse(format!("\"{parent}{separator}{field}\" must be {expected}.")))
    }
}
