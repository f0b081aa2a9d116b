//! Parses query nodes: `TrendsQuery` and `FunnelsQuery`, bare or inside wrapper nodes.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::{Map, Value};

use super::breakdown::RawBreakdown;
use super::field::{Field, RawCommon, RawExclusion, RawFunnels, RawSeries, RawTrends};
use super::{ParsedQuery, funnels, trends};

type Object = Map<String, Value>;

/// Kinds of wrapper nodes, which hold the query under `source`.
pub const WRAPPERS: [&str; 4] =
    ["InsightVizNode", "DataTableNode", "DataVisualizationNode", "SavedInsightNode"];

/// Maximum number of nested wrappers.
const MAX_WRAPPERS: usize = 4;

/// Parses a node.
pub fn parse(node: &Value) -> CalcResult<ParsedQuery> {
    let mut object = node.as_object().ok_or_else(|| CalcError::parse("A query must be an object."))?;
    for _ in 0..MAX_WRAPPERS {
        let kind = get_kind(object)?;
        match kind {
            "TrendsQuery" => return trends::parse(&raw_trends(object)?),
            "FunnelsQuery" => return funnels::parse(&raw_funnels(object)?),
            wrapper if WRAPPERS.contains(&wrapper) => match object.get("source") {
                Some(Value::Object(source)) => object = source,
                _ => return Ok(ParsedQuery::OtherKind(kind.to_owned())),
            },
            other => return Ok(ParsedQuery::OtherKind(other.to_owned())),
        }
    }
    Err(CalcError::parse("The query is wrapped too many times."))
}

/// The `kind` of a node.
pub fn get_kind(object: &Object) -> CalcResult<&str> {
    object
        .get("kind")
        .and_then(Value::as_str)
        .ok_or_else(|| CalcError::parse("A query node needs a \"kind\" that is a string."))
}

fn raw_trends(node: &Object) -> CalcResult<RawTrends<'_>> {
    let filter = get_object(node, "trendsFilter")?;
    let compare = get_object(node, "compareFilter")?;
    Ok(RawTrends {
        common: common_fields(node)?,
        display: Field::inside(filter, "display", "trendsFilter__display"),
        compare: Field::inside(compare, "compare", "compareFilter__compare").or(Field::inside(
            filter,
            "compare",
            "trendsFilter__compare",
        )),
        compare_to: Field::inside(compare, "compare_to", "compareFilter__compare_to").or(Field::inside(
            filter,
            "compare_to",
            "trendsFilter__compare_to",
        )),
        formula: Field::inside(filter, "formula", "trendsFilter__formula"),
        formulas: Field::inside(filter, "formulas", "trendsFilter__formulas"),
        formula_nodes: Field::inside(filter, "formulaNodes", "trendsFilter__formulaNodes"),
        smoothing_intervals: Field::inside(filter, "smoothingIntervals", "trendsFilter__smoothingIntervals"),
        conversion_goal: Field::of(node, "conversionGoal", "conversionGoal"),
    })
}

fn raw_funnels(node: &Object) -> CalcResult<RawFunnels<'_>> {
    let filter = get_object(node, "funnelsFilter")?;
    let absent = |attr| Field { attr, value: None };
    Ok(RawFunnels {
        common: common_fields(node)?,
        display: absent("display"),
        viz_type: Field::inside(filter, "funnelVizType", "funnelsFilter__funnelVizType"),
        order_type: Field::inside(filter, "funnelOrderType", "funnelsFilter__funnelOrderType"),
        window_interval: Field::inside(filter, "funnelWindowInterval", "funnelsFilter__funnelWindowInterval"),
        window_days: absent("funnelWindowDays"),
        window_unit: Field::inside(
            filter,
            "funnelWindowIntervalUnit",
            "funnelsFilter__funnelWindowIntervalUnit",
        ),
        exclusions: exclusions(filter)?,
        from_step: Field::inside(filter, "funnelFromStep", "funnelsFilter__funnelFromStep"),
        to_step: Field::inside(filter, "funnelToStep", "funnelsFilter__funnelToStep"),
        attribution_type: Field::inside(
            filter,
            "breakdownAttributionType",
            "funnelsFilter__breakdownAttributionType",
        ),
        attribution_value: Field::inside(
            filter,
            "breakdownAttributionValue",
            "funnelsFilter__breakdownAttributionValue",
        ),
        default_limit: 25,
        bin_count: Field::inside(filter, "binCount", "funnelsFilter__binCount"),
        aggregate_by_hogql: Field::inside(
            filter,
            "funnelAggregateByHogQL",
            "funnelsFilter__funnelAggregateByHogQL",
        ),
        group_type: Field::of(node, "aggregation_group_type_index", "aggregation_group_type_index"),
        compare: Field::inside(get_object(node, "compareFilter")?, "compare", "compareFilter__compare"),
    })
}

fn common_fields(node: &Object) -> CalcResult<RawCommon<'_>> {
    let dates = get_object(node, "dateRange")?;
    let breakdown = get_object(node, "breakdownFilter")?;
    let series = match node.get("series") {
        Some(Value::Array(list)) => list.iter().map(raw_series).collect::<CalcResult<Vec<_>>>()?,
        _ => return Err(CalcError::parse("A query needs a \"series\" that is an array.")),
    };
    Ok(RawCommon {
        series,
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
fn get_object<'a>(node: &'a Object, key: &'static str) -> CalcResult<Option<&'a Object>> {
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

fn series_from_object<'a>(fields: &'a Object, attr: &'static str) -> CalcResult<RawSeries<'a>> {
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

fn exclusions(filter: Option<&Object>) -> CalcResult<Vec<RawExclusion<'_>>> {
    let attr = "funnelsFilter__exclusions";
    let invalid = || CalcError::invalid(attr, "Expected a list of objects.");
    let list = match filter.and_then(|filter| filter.get("exclusions")) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(invalid()),
    };
    list.iter()
        .map(|entry| {
            let fields = entry.as_object().ok_or_else(invalid)?;
            let step = |key| fields.get(key).filter(|step: &&Value| !step.is_null()).cloned();
            let (from_step, to_step) = (step("funnelFromStep"), step("funnelToStep"));
            Ok(RawExclusion { series: series_from_object(fields, attr)?, from_step, to_step })
        })
        .collect()
}
