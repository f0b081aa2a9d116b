//! The forms of a funnels query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_insight_filters`] writes gives the same query again.

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::raw_query::{RawExclusion, RawFunnels};
use super::{Attribution, Exclusion, FirstTime, FunnelsQuery, INSIGHT_NAME, query};
use crate::filter::{filter_json, list_json};
use crate::kinds::ParsedQuery;
use crate::kinds::saved_query::{FieldType, REQUIRED_SERIES, SavedField, SavedNodeRules};
use crate::query::insight_filters::parse::{
    common_fields as common_filters, get_list, group_type_field, raw_series,
};
use crate::query::insight_filters::serialize;
use crate::query::node::{common_fields as common_node_fields, get_object, series_from_object};
use crate::query::{Field, canonical};

type Object = Map<String, Value>;

/// The rules for nodes that insights store.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: REQUIRED_SERIES, fields: SAVED_FIELDS, shares_fields: true };

const SAVED_FIELDS: &[SavedField] = &[
    ("", "funnelsFilter", FieldType::Object),
    ("funnelsFilter", "funnelVizType", FieldType::OneOf(&["steps", "trends", "time_to_convert", "flow"])),
    ("funnelsFilter", "funnelOrderType", FieldType::OneOf(&["ordered", "strict", "unordered"])),
    ("funnelsFilter", "funnelWindowInterval", FieldType::Integer),
    (
        "funnelsFilter",
        "funnelWindowIntervalUnit",
        FieldType::OneOf(&["second", "minute", "hour", "day", "week", "month"]),
    ),
    ("funnelsFilter", "funnelFromStep", FieldType::Integer),
    ("funnelsFilter", "funnelToStep", FieldType::Integer),
    ("funnelsFilter", "funnelStepReference", FieldType::OneOf(&["total", "previous"])),
    ("funnelsFilter", "layout", FieldType::OneOf(&["horizontal", "vertical"])),
    ("funnelsFilter", "breakdownAttributionType", FieldType::OneOf(&Attribution::NAMES)),
    ("funnelsFilter", "breakdownAttributionValue", FieldType::Integer),
    ("funnelsFilter", "binCount", FieldType::Integer),
    ("funnelsFilter", "exclusions", FieldType::List),
];

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    query::parse(&raw_node(node)?)
}

/// Parses the funnel of a query node; `None` without steps.
pub(super) fn parse_funnel_node(node: &Object) -> CalcResult<Option<FunnelsQuery>> {
    query::parse_funnel(&raw_node(node)?)
}

fn raw_node(node: &Object) -> CalcResult<RawFunnels<'_>> {
    let filter = get_object(node, "funnelsFilter")?;
    let absent = |attr| Field { attr, value: None };
    Ok(RawFunnels {
        common: common_node_fields(node)?,
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
        exclusions: node_exclusions(filter)?,
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

/// Parses insight filters.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    query::parse(&raw_filters(request)?)
}

/// Parses the funnel of insight filters; `None` without steps.
pub(super) fn parse_funnel_filters(request: &Object) -> CalcResult<Option<FunnelsQuery>> {
    query::parse_funnel(&raw_filters(request)?)
}

fn raw_filters(request: &Object) -> CalcResult<RawFunnels<'_>> {
    let unit = Field::of(request, "funnel_window_interval_unit", "funnel_window_interval_unit");
    Ok(RawFunnels {
        common: common_filters(request)?,
        compare: Field::of(request, "compare", "compare"),
        display: Field::of(request, "display", "display"),
        viz_type: Field::of(request, "funnel_viz_type", "funnel_viz_type"),
        order_type: Field::of(request, "funnel_order_type", "funnel_order_type"),
        window_interval: Field::of(request, "funnel_window_interval", "funnel_window_interval"),
        window_days: Field::of(request, "funnel_window_days", "funnel_window_days"),
        window_unit: unit.or(Field::of(
            request,
            "funnel_window_interval_type",
            "funnel_window_interval_type",
        )),
        exclusions: filter_exclusions(request)?,
        from_step: Field::of(request, "funnel_from_step", "funnel_from_step"),
        to_step: Field::of(request, "funnel_to_step", "funnel_to_step"),
        attribution_type: Field::of(request, "breakdown_attribution_type", "breakdown_attribution_type"),
        attribution_value: Field::of(request, "breakdown_attribution_value", "breakdown_attribution_value"),
        default_limit: 10,
        bin_count: Field::of(request, "bin_count", "bin_count"),
        aggregate_by_hogql: Field::of(request, "funnel_aggregate_by_hogql", "funnel_aggregate_by_hogql"),
        group_type: group_type_field(request)?,
    })
}

fn node_exclusions(filter: Option<&Object>) -> CalcResult<Vec<RawExclusion<'_>>> {
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

fn filter_exclusions(request: &Object) -> CalcResult<Vec<RawExclusion<'_>>> {
    let entries = get_list(request, "exclusions")?.into_iter().filter_map(|entry| {
        let action = entry.get("type").and_then(Value::as_str) == Some("actions");
        let series = raw_series(entry, "exclusions", action)?;
        let step = |key| series.fields.get(key).filter(|step: &&Value| !step.is_null()).cloned();
        let (from_step, to_step) = (step("funnel_from_step"), step("funnel_to_step"));
        Some(RawExclusion { series, from_step, to_step })
    });
    Ok(entries.collect())
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(funnels: &FunnelsQuery) -> Value {
    let series = funnels.series.iter().enumerate().map(|(order, series)| {
        let options = funnels.step_options(order);
        let mut json = canonical::series_json(series);
        json["math"] = json!(options.first.map(FirstTime::name));
        json["optionalInFunnel"] = json!(options.optional);
        json["math_arguments"] = Value::Null;
        json
    });
    let mut node = canonical::common_node("FunnelsQuery", &funnels.common, series.collect());
    node["funnelsFilter"] = json!({
        "funnelVizType": funnels.viz.name(),
        "funnelOrderType": funnels.order.name(),
        "funnelWindowInterval": funnels.window.count,
        "funnelWindowIntervalUnit": funnels.window.unit.name(),
        "exclusions": funnels.exclusions.iter().map(exclusion_node).collect::<Vec<_>>(),
        "funnelFromStep": funnels.from_step,
        "funnelToStep": funnels.to_step,
        "binCount": funnels.bin_count,
        "breakdownAttributionType": funnels.attribution.name(),
        "breakdownAttributionValue": funnels.attribution.step(),
    });
    node["aggregation_group_type_index"] = json!(funnels.group_type_index);
    node
}

fn exclusion_node(exclusion: &Exclusion) -> Value {
    json!({
        "kind": exclusion.series.event_or_action.list_name(),
        "id": exclusion.series.event_or_action.id(),
        "properties": filter_json(&exclusion.series.properties),
        "funnelFromStep": exclusion.from_step,
        "funnelToStep": exclusion.to_step,
    })
}

/// The query as insight filters: the fields that the request set, plus the default of `properties`.
pub(super) fn to_insight_filters(query: &FunnelsQuery) -> Object {
    let write_options = |order: usize, entity: &mut Value| {
        let options = query.step_options(order);
        if let Some(first) = options.first {
            entity["math"] = json!(first.name());
        }
        if options.optional {
            entity["optionalInFunnel"] = json!(true);
        }
    };
    let mut filters =
        serialize::common_filters(INSIGHT_NAME, &query.common, &query.series, |order, _, entity| {
            write_options(order, entity);
        });
    let mut put = |key: &str, value: Value| serialize::put(&mut filters, key, value);
    put("funnel_viz_type", json!(query.viz.name()));
    put("funnel_order_type", json!(query.order.name()));
    put("funnel_window_interval", json!(query.window.count));
    put("funnel_window_interval_unit", json!(query.window.unit.name()));
    if !query.exclusions.is_empty() {
        put("exclusions", query.exclusions.iter().map(exclusion_json).collect());
    }
    put("funnel_from_step", json!(query.from_step));
    put("funnel_to_step", json!(query.to_step));
    put("bin_count", json!(query.bin_count));
    serialize::put_group_type(&mut filters, query.group_type_index);
    if query.common.breakdown.is_some() {
        let mut put = |key: &str, value: Value| serialize::put(&mut filters, key, value);
        put("breakdown_attribution_type", json!(query.attribution.name()));
        put("breakdown_attribution_value", json!(query.attribution.step()));
    }
    filters
}

fn exclusion_json(exclusion: &Exclusion) -> Value {
    json!({
        "id": exclusion.series.event_or_action.id(),
        "type": exclusion.series.event_or_action.list_name(),
        "properties": list_json(&exclusion.series.properties),
        "funnel_from_step": exclusion.from_step,
        "funnel_to_step": exclusion.to_step,
    })
}
