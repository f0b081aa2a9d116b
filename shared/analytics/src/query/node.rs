//! Query nodes: wrapper nodes, and the fields that all kinds share.

use std::borrow::Cow;

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::field::{Field, RawBreakdown, RawCommon, RawSeries};
use super::{CommonFields, EventOrAction, Series};
use crate::filter::{filter_json, list_json};

type Object = Map<String, Value>;

/// Kinds of wrapper nodes, which hold the query under `source`.
pub const WRAPPERS: [&str; 4] = ["InsightVizNode", "DataTableNode", "DataVisualizationNode", SAVED_INSIGHT];
/// The wrapper node that may stand without a `source`: it refers to an insight.
pub const SAVED_INSIGHT: &str = "SavedInsightNode";

/// The `kind` of a node.
pub fn get_kind(object: &Object) -> CalcResult<&str> {
    object
        .get("kind")
        .and_then(Value::as_str)
        .ok_or_else(|| CalcError::parse("A query node needs a \"kind\" that is a string."))
}

/// The fields that all kinds with series share.
pub fn common_fields(node: &Object) -> CalcResult<RawCommon<'_>> {
    let mut common = fields_without_series(node)?;
    common.series = match node.get("series") {
        Some(Value::Array(list)) => list.iter().map(raw_series).collect::<CalcResult<Vec<_>>>()?,
        _ => return Err(CalcError::parse("A query needs a \"series\" that is an array.")),
    };
    Ok(common)
}

/// The fields that all kinds share. The series are left empty.
pub fn fields_without_series(node: &Object) -> CalcResult<RawCommon<'_>> {
    let dates = get_object(node, "dateRange")?;
    let breakdown = get_object(node, "breakdownFilter")?;
    Ok(RawCommon {
        series: Vec::new(),
        properties: Field::of(node, "properties", "properties"),
        filter_test_accounts: Field::of(node, "filterTestAccounts", "filterTestAccounts"),
        date_from: Field::inside(dates, "date_from", "dateRange__date_from"),
        date_to: Field::inside(dates, "date_to", "dateRange__date_to"),
        explicit_date: Field::inside(dates, "explicitDate", "dateRange__explicitDate"),
        interval: Field::of(node, "interval", "interval"),
        breakdown: breakdown_fields(breakdown),
    })
}

fn breakdown_fields(filter: Option<&Object>) -> RawBreakdown<'_> {
    let field = |key: &str, attr| Field::inside(filter, key, attr);
    RawBreakdown {
        breakdown: field("breakdown", "breakdownFilter__breakdown"),
        kind: field("breakdown_type", "breakdownFilter__breakdown_type"),
        breakdowns: field("breakdowns", "breakdownFilter__breakdowns"),
        limit: field("breakdown_limit", "breakdownFilter__breakdown_limit"),
        group_index: field("breakdown_group_type_index", "breakdownFilter__breakdown_group_type_index"),
        normalize_url: field("breakdown_normalize_url", "breakdownFilter__breakdown_normalize_url"),
        bins: field("breakdown_histogram_bin_count", "breakdownFilter__breakdown_histogram_bin_count"),
        hide_other: field(
            "breakdown_hide_other_aggregation",
            "breakdownFilter__breakdown_hide_other_aggregation",
        ),
    }
}

/// Gets a nested object of the node; `None` if absent or null.
pub fn get_object<'a>(node: &'a Object, key: &'static str) -> CalcResult<Option<&'a Object>> {
    match node.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(CalcError::invalid(key, "Expected an object.")),
    }
}

/// Parses an entry of `series`. An entry without a `kind` is an event, as in older nodes.
fn raw_series(entry: &Value) -> CalcResult<RawSeries<'_>> {
    let fields =
        entry.as_object().ok_or_else(|| CalcError::parse("Each entry of \"series\" must be an object."))?;
    series_from_object(fields, "series")
}

/// An event or action of a list, by its fields.
pub fn series_from_object<'a>(fields: &'a Object, attr: &'static str) -> CalcResult<RawSeries<'a>> {
    let action = match fields.get("kind").and_then(Value::as_str) {
        None | Some("EventsNode" | "FunnelExclusionEventsNode") => false,
        Some("ActionsNode" | "FunnelExclusionActionsNode") => true,
        Some(other) => {
            return Err(CalcError::unsupported(
                attr,
                format_args!("series of kind {other}; the kind must be EventsNode or ActionsNode"),
            ));
        }
    };
    let id = fields.get(if action { "id" } else { "event" }).filter(|id| !id.is_null()).cloned();
    Ok(RawSeries { attr, action, id, fields: Cow::Borrowed(fields) })
}

/// The node of a query with its common fields and series, without a breakdown. Parsing it gives the same fields again.
pub fn to_node(kind: &str, common: &CommonFields, series: &[Series]) -> Object {
    let mut node = Object::new();
    let mut put = |key: &str, value: Value| node.insert(key.to_owned(), value);
    put("kind", json!(kind));
    put("series", series.iter().map(to_series_node).collect());
    put("interval", json!(common.interval.name()));
    let mut dates = Object::new();
    for (key, date) in [("date_from", &common.dates.from), ("date_to", &common.dates.to)] {
        if let Some(date) = date {
            dates.insert(key.to_owned(), json!(date));
        }
    }
    if common.dates.explicit {
        dates.insert("explicitDate".to_owned(), json!(true));
    }
    if !dates.is_empty() {
        put("dateRange", Value::Object(dates));
    }
    if !common.properties.is_none() {
        put("properties", filter_json(&common.properties));
    }
    if common.filter_test_accounts {
        put("filterTestAccounts", json!(true));
    }
    node
}

fn to_series_node(series: &Series) -> Value {
    let mut node = match &series.event_or_action {
        EventOrAction::Event(name) => json!({"kind": "EventsNode", "event": name}),
        EventOrAction::Action(id) => json!({"kind": "ActionsNode", "id": id}),
    };
    let texts =
        [("name", &series.name), ("custom_name", &series.custom_name), ("math", &series.requested_math)];
    for (key, text) in texts {
        if let Some(text) = text {
            node[key] = json!(text);
        }
    }
    for (key, argument) in series.math_arguments.json() {
        node[key] = argument;
    }
    if !series.properties.is_none() {
        node["properties"] = list_json(&series.properties);
    }
    node
}
