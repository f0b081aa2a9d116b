//! Whether a query may be stored in an insight.
//!
//! Must stay true: unknown keys are kept and never judged, for newer clients send newer keys; a known field with a value
//! of the wrong type or outside of its choices is refused, and so is a node of no known kind.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::node::{WRAPPERS, kind_of};
use crate::error::{CalcError, CalcResult};
use crate::filter::Operator;

/// How many nodes may stand around each other.
const MAX_DEPTH: usize = 8;
/// How deep conditions may be grouped; what a write may hold at all is bounded before.
const MAX_NESTING: usize = 64;
/// What conditions on flags compare by, which no calculation does.
const FLAG_OPERATOR: &str = "flag_evaluates_to";

/// What a known field may hold; null is always allowed.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Switch,
    Whole,
    Number,
    Object,
    List,
    ListOrObject,
    OneOf(&'static [&'static str]),
}

const INTERVALS: &[&str] = &["second", "minute", "hour", "day", "week", "month"];
const DISPLAYS: &[&str] = &[
    "ActionsLineGraph",
    "ActionsBar",
    "ActionsUnstackedBar",
    "ActionsStackedBar",
    "ActionsAreaGraph",
    "ActionsLineGraphCumulative",
    "BoldNumber",
    "ActionsPie",
    "ActionsBarValue",
    "ActionsTable",
    "WorldMap",
    "CalendarHeatmap",
];

/// What breakdowns may be by, for those too who show them elsewhere.
const BREAKDOWN_TYPES: &[&str] = &[
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
/// What conditions may be about, likewise.
const CONDITION_TYPES: &[&str] = &[
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

/// Fields of trends and funnels: the object inside the node, empty for the node itself, the field, what it holds.
const FIELDS: &[(&str, &str, Shape)] = &[
    ("", "dateRange", Shape::Object),
    ("", "interval", Shape::OneOf(INTERVALS)),
    ("", "filterTestAccounts", Shape::Switch),
    ("", "properties", Shape::ListOrObject),
    ("", "aggregation_group_type_index", Shape::Whole),
    ("", "samplingFactor", Shape::Number),
    ("", "breakdownFilter", Shape::Object),
    ("", "compareFilter", Shape::Object),
    ("", "trendsFilter", Shape::Object),
    ("", "funnelsFilter", Shape::Object),
    ("dateRange", "date_from", Shape::Text),
    ("dateRange", "date_to", Shape::Text),
    ("dateRange", "explicitDate", Shape::Switch),
    ("breakdownFilter", "breakdown_type", Shape::OneOf(BREAKDOWN_TYPES)),
    ("breakdownFilter", "breakdowns", Shape::List),
    ("breakdownFilter", "breakdown_limit", Shape::Whole),
    ("compareFilter", "compare", Shape::Switch),
    ("compareFilter", "compare_to", Shape::Text),
    ("trendsFilter", "display", Shape::OneOf(DISPLAYS)),
    ("trendsFilter", "formula", Shape::Text),
    ("trendsFilter", "formulas", Shape::List),
    ("trendsFilter", "formulaNodes", Shape::List),
    ("trendsFilter", "smoothingIntervals", Shape::Whole),
    ("trendsFilter", "showLegend", Shape::Switch),
    ("trendsFilter", "yAxisScaleType", Shape::OneOf(&["linear", "log10"])),
    ("funnelsFilter", "funnelVizType", Shape::OneOf(&["steps", "trends", "time_to_convert", "flow"])),
    ("funnelsFilter", "funnelOrderType", Shape::OneOf(&["ordered", "strict", "unordered"])),
    ("funnelsFilter", "funnelWindowInterval", Shape::Whole),
    (
        "funnelsFilter",
        "funnelWindowIntervalUnit",
        Shape::OneOf(&["second", "minute", "hour", "day", "week", "month"]),
    ),
    ("funnelsFilter", "funnelFromStep", Shape::Whole),
    ("funnelsFilter", "funnelToStep", Shape::Whole),
    ("funnelsFilter", "funnelStepReference", Shape::OneOf(&["total", "previous"])),
    ("funnelsFilter", "layout", Shape::OneOf(&["horizontal", "vertical"])),
    (
        "funnelsFilter",
        "breakdownAttributionType",
        Shape::OneOf(&["first_touch", "last_touch", "all_events", "step"]),
    ),
    ("funnelsFilter", "breakdownAttributionValue", Shape::Whole),
    ("funnelsFilter", "binCount", Shape::Whole),
    ("funnelsFilter", "exclusions", Shape::List),
];

/// Fields of a series.
const SERIES_FIELDS: &[(&str, Shape)] = &[
    ("event", Shape::Text),
    ("name", Shape::Text),
    ("custom_name", Shape::Text),
    ("math", Shape::Text),
    ("math_property", Shape::Text),
    ("math_group_type_index", Shape::Whole),
    ("math_multiplier", Shape::Number),
    ("properties", Shape::List),
    ("optionalInFunnel", Shape::Switch),
];

/// Accepts the `query` of a write: null, an object, or the text of an object, which is decoded.
pub fn accept_query(value: &Value) -> CalcResult<Option<Value>> {
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

/// Whether an insight may hold this node.
pub fn validate_node(node: &Value) -> CalcResult<()> {
    let mut node = node.as_object().ok_or_else(|| CalcError::parse("A query must be an object."))?;
    for _ in 0..MAX_DEPTH {
        let kind = kind_of(node)?;
        if !(kind.ends_with("Query") || kind.ends_with("Node")) {
            return Err(CalcError::parse(format!("There is no query node of kind \"{kind}\".")));
        }
        if matches!(kind, "TrendsQuery" | "FunnelsQuery") {
            return source(node);
        }
        node = match node.get("source") {
            Some(Value::Object(source)) => source,
            Some(Value::Null) | None if !WRAPPERS.contains(&kind) || kind == "SavedInsightNode" => {
                return Ok(());
            }
            Some(_) if !WRAPPERS.contains(&kind) => return Ok(()),
            _ => return Err(CalcError::parse(format!("A {kind} needs a \"source\" that is a query node."))),
        };
    }
    Err(CalcError::parse("The query is wrapped too many times."))
}

fn source(node: &Map<String, Value>) -> CalcResult<()> {
    let Some(Value::Array(series)) = node.get("series") else {
        return Err(CalcError::parse("A query needs a \"series\" that is an array."));
    };
    for entry in series {
        series_entry(entry)?;
    }
    for (part, field, shape) in FIELDS {
        let holder = if part.is_empty() { Some(node) } else { node.get(*part).and_then(Value::as_object) };
        check(holder.and_then(|holder| holder.get(*field)), *shape, part, field)?;
    }
    conditions(node.get("properties"), MAX_NESTING)
}

/// Whether conditions are of known types and compare by known operators: a list of them, or groups of groups.
fn conditions(value: Option<&Value>, deep: usize) -> CalcResult<()> {
    let deeper =
        deep.checked_sub(1).ok_or_else(|| CalcError::parse("The properties are nested too deeply."))?;
    match value {
        Some(Value::Array(list)) => list.iter().try_for_each(|one| conditions(Some(one), deeper)),
        Some(Value::Object(one)) => {
            check(one.get("type"), Shape::OneOf(CONDITION_TYPES), "properties", "type")?;
            let operator = one.get("operator").filter(|operator| !operator.is_null());
            let is_known = |name: &str| Operator::from_name(name).is_some() || name == FLAG_OPERATOR;
            if operator.is_some_and(|operator| !operator.as_str().is_some_and(is_known)) {
                return Err(CalcError::parse(format!(
                    "\"properties.operator\" must be one of {}, {FLAG_OPERATOR}.",
                    Operator::names()
                )));
            }
            conditions(one.get("values"), deeper)
        }
        // What else stands there was judged, or is judged when it is calculated.
        _ => Ok(()),
    }
}

fn series_entry(entry: &Value) -> CalcResult<()> {
    let fields =
        entry.as_object().ok_or_else(|| CalcError::parse("Each entry of \"series\" must be an object."))?;
    match fields.get("kind") {
        None => {}
        Some(Value::String(kind)) if kind == "ActionsNode" && fields.get("id").is_some_and(is_id) => {}
        Some(Value::String(kind)) if kind == "ActionsNode" => {
            return Err(CalcError::parse("An ActionsNode needs an \"id\" that is an integer."));
        }
        Some(Value::String(kind))
            if matches!(kind.as_str(), "EventsNode" | "DataWarehouseNode" | "GroupNode") => {}
        Some(other) => {
            let detail =
                format!("There is no series of kind {other}. The kind must be EventsNode or ActionsNode.");
            return Err(CalcError::parse(detail));
        }
    }
    for (field, shape) in SERIES_FIELDS {
        check(fields.get(*field), *shape, "series", field)?;
    }
    conditions(fields.get("properties"), MAX_NESTING)
}

fn is_id(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn check(value: Option<&Value>, shape: Shape, part: &str, field: &str) -> CalcResult<()> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(()) };
    let (fits, wanted) = match shape {
        Shape::Text => (value.is_string(), "a string".to_owned()),
        Shape::Switch => (value.is_boolean(), "true or false".to_owned()),
        Shape::Whole => (super::field::whole(value).is_some() && value.is_number(), "an integer".to_owned()),
        Shape::Number => (value.is_number(), "a number".to_owned()),
        Shape::Object => (value.is_object(), "an object".to_owned()),
        Shape::List => (value.is_array(), "an array".to_owned()),
        Shape::ListOrObject => (value.is_array() || value.is_object(), "an array or an object".to_owned()),
        Shape::OneOf(choices) => (
            value.as_str().is_some_and(|text| choices.contains(&text)),
            format!("one of {}", choices.join(", ")),
        ),
    };
    let separator = if part.is_empty() { "" } else { "." };
    if fits {
        Ok(())
    } else {
        Err(CalcError::parse(format!("\"{part}{separator}{field}\" must be {wanted}.")))
    }
}
