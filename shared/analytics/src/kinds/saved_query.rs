//! Validates query nodes before they are stored in an insight.
//!
//! Must stay true: unknown fields are kept and never validated, because newer clients send newer fields. A known field with
//! a value of the wrong type or outside its choices is rejected, and so is a node of an unknown kind. Which fields are known
//! and which are required is in the [`SavedNodeRules`] of each kind, not here.

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

/// A field of a node: the path of the nested object, separated by dots (empty for the node itself), the field's name, its type.
pub type SavedField = (&'static str, &'static str, FieldType);

/// The rules of a kind for nodes that insights store.
#[derive(Debug)]
pub struct SavedNodeRules {
    /// The fields that a node must have.
    pub required: &'static [(&'static str, FieldType)],
    /// The fields of this kind that are validated, beside the required ones and those that all kinds share.
    pub fields: &'static [SavedField],
    /// Whether the nodes of all kinds for which this is true are validated by the fields of all these kinds: when the kind
    /// of a chart changes, clients keep the fields of the former kind in its node. False for new kinds, so that they do
    /// not reject nodes of other kinds.
    pub shares_fields: bool,
}

/// The required fields of kinds with series.
pub const REQUIRED_SERIES: &[(&str, FieldType)] = &[("series", FieldType::Series)];

/// The type of a known field. Null is allowed where the field is not required.
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
    /// A list of events and actions, each of which is validated.
    Series,
    OneOf(&'static [&'static str]),
}

impl FieldType {
    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.is_number() && parse_integer(value).is_some(),
            Self::Number => value.is_number(),
            Self::Object => value.is_object(),
            Self::List | Self::Series => value.is_array(),
            Self::ListOrObject => value.is_array() || value.is_object(),
            Self::OneOf(choices) => value.as_str().is_some_and(|text| choices.contains(&text)),
        }
    }

    /// The type in error texts.
    fn description(self) -> Cow<'static, str> {
        match self {
            Self::String => "a string".into(),
            Self::Boolean => "true or false".into(),
            Self::Integer => "an integer".into(),
            Self::Number => "a number".into(),
            Self::Object => "an object".into(),
            Self::List | Self::Series => "an array".into(),
            Self::ListOrObject => "an array or an object".into(),
            Self::OneOf(choices) => format!("one of {}", choices.join(", ")).into(),
        }
    }
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

impl SavedNodeRules {
    /// The fields that are validated in a node with these rules, beside the required ones.
    pub fn validated_fields(&self) -> impl Iterator<Item = &'static SavedField> {
        let shares_fields = self.shares_fields;
        let own: &'static [SavedField] = if shares_fields { &[] } else { self.fields };
        let sharing = InsightKind::nodes()
            .map(|node| &node.saved)
            .filter(move |rules| shares_fields && rules.shares_fields)
            .flat_map(|rules| rules.fields);
        SHARED_FIELDS.iter().chain(own).chain(sharing)
    }
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
        if let Some(description) = InsightKind::find_node(kind) {
            return validate_insight_query(node, &description.saved);
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

fn validate_insight_query(node: &Map<String, Value>, rules: &SavedNodeRules) -> CalcResult<()> {
    for (field, field_type) in rules.required {
        let Some(value) = node.get(*field).filter(|value| field_type.accepts(value)) else {
            let expected = field_type.description();
            return Err(CalcError::parse(format!("A query needs a \"{field}\" that is {expected}.")));
        };
        validate_entries(value, *field_type)?;
    }
    // The fields of the node before those of its nested objects.
    let (own, nested): (Vec<&SavedField>, Vec<&SavedField>) =
        rules.validated_fields().partition(|(parent, ..)| parent.is_empty());
    for (parent, field, field_type) in own {
        check_field(node.get(*field), *field_type, parent, field)?;
    }
    for (parent, field, field_type) in nested {
        let object = parent.split('.').try_fold(node, |object, name| object.get(name)?.as_object());
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
    if field_type.accepts(value) {
        return validate_entries(value, field_type);
    }
    let separator = if parent.is_empty() { "" } else { "." };
    let expected = field_type.description();
    Err(CalcError::parse(format!("\"{parent}{separator}{field}\" must be {expected}.")))
}

/// Validates the entries of a list of series.
fn validate_entries(value: &Value, field_type: FieldType) -> CalcResult<()> {
    match (field_type, value) {
        (FieldType::Series, Value::Array(series)) => series.iter().try_for_each(validate_series),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Rules of a kind without series.
    const RULES: SavedNodeRules = SavedNodeRules {
        required: &[("retentionFilter", FieldType::Object)],
        fields: &[("retentionFilter", "period", FieldType::OneOf(&["Day", "Week"]))],
        shares_fields: false,
    };

    #[test]
    fn a_kind_is_validated_by_its_own_rules() {
        let validate = |node: Value| {
            validate_insight_query(node.as_object().unwrap(), &RULES).map_err(|error| error.detail)
        };
        let expected = "A query needs a \"retentionFilter\" that is an object.";
        for bad in [json!({}), json!({"retentionFilter": null}), json!({"retentionFilter": []})] {
            assert_eq!(validate(bad).unwrap_err(), expected);
        }
        let period = |period: &str| json!({"retentionFilter": {"period": period}, "trendsFilter": 7});
        assert_eq!(validate(period("Day")), Ok(()));
        let expected = "\"retentionFilter.period\" must be one of Day, Week.";
        assert_eq!(validate(period("Year")).unwrap_err(), expected);
        let interval = json!({"retentionFilter": {}, "interval": "fortnight"});
        assert!(validate(interval).unwrap_err().starts_with("\"interval\" must be"));
    }

    #[test]
    fn kinds_that_share_their_fields_reject_them_in_each_other() {
        let node = |kind: &str, field: &str| json!({"kind": kind, "series": [], field: 7});
        for kind in ["TrendsQuery", "FunnelsQuery"] {
            for field in ["trendsFilter", "funnelsFilter"] {
                let error = validate_node(&node(kind, field)).unwrap_err();
                assert_eq!(error.detail, format!("\"{field}\" must be an object."));
            }
            assert_eq!(validate_node(&node(kind, "retentionFilter")), Ok(()));
        }
    }
}
