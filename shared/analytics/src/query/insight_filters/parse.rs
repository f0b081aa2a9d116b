//! Parses insight filters: flat objects with the lists `events` and `actions`.
//!
//! Must stay true: arrays and objects may be JSON strings; series are actions first, then events, stably sorted by
//! `order`, with a missing or zero order first.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::{Map, Value};

use super::super::breakdown::RawBreakdown;
use super::super::field::{Field, RawCommon, RawExclusion, RawFunnels, RawSeries, RawTrends, parse_integer};
use super::super::{ParsedQuery, funnels, trends};
use super::GROUPS_FROM_ZERO;

type Object = Map<String, Value>;

/// Parses a trends request.
pub fn parse_trends(request: &Object) -> CalcResult<ParsedQuery> {
    if let Some("Stickiness") = request.get("shown_as").and_then(Value::as_str) {
        return Ok(ParsedQuery::OtherKind("StickinessQuery".to_owned()));
    }
    let raw = RawTrends {
        common: common_fields(request)?,
        display: Field::of(request, "display", "display"),
        compare: Field::of(request, "compare", "compare"),
        compare_to: Field::of(request, "compare_to", "compare_to"),
        formula: Field::of(request, "formula", "formula"),
        formulas: Field::of(request, "formulas", "formulas"),
        formula_nodes: Field::of(request, "formulaNodes", "formulaNodes"),
        smoothing_intervals: Field::of(request, "smoothing_intervals", "smoothing_intervals"),
        conversion_goal: Field { attr: "conversion_goal", value: None },
    };
    trends::parse(&raw)
}

/// Parses a funnel request.
pub fn parse_funnel(request: &Object) -> CalcResult<ParsedQuery> {
    let group = Field::of(request, "aggregation_group_type_index", "aggregation_group_type_index");
    // In insight filters 0 means persons and only 1 and above mean groups. Links in our results for query nodes set
    // GROUPS_FROM_ZERO to mean group type 0.
    let from_zero = Field::of(request, GROUPS_FROM_ZERO, GROUPS_FROM_ZERO).boolean()?;
    let counts_persons = group.integer()?.is_none_or(|index| index == 0) && !from_zero;
    let unit = Field::of(request, "funnel_window_interval_unit", "funnel_window_interval_unit");
    let raw = RawFunnels {
        common: common_fields(request)?,
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
        exclusions: exclusions(request)?,
        from_step: Field::of(request, "funnel_from_step", "funnel_from_step"),
        to_step: Field::of(request, "funnel_to_step", "funnel_to_step"),
        attribution_type: Field::of(request, "breakdown_attribution_type", "breakdown_attribution_type"),
        attribution_value: Field::of(request, "breakdown_attribution_value", "breakdown_attribution_value"),
        default_limit: 10,
        bin_count: Field::of(request, "bin_count", "bin_count"),
        aggregate_by_hogql: Field::of(request, "funnel_aggregate_by_hogql", "funnel_aggregate_by_hogql"),
        group_type: if counts_persons { Field { value: None, ..group } } else { group },
    };
    funnels::parse(&raw)
}

fn common_fields(request: &Object) -> CalcResult<RawCommon<'_>> {
    let mut series = get_list(request, "actions")?
        .into_iter()
        .filter_map(|entry| raw_series(entry, "actions", true))
        .collect::<Vec<_>>();
    series.extend(
        get_list(request, "events")?.into_iter().filter_map(|entry| raw_series(entry, "events", false)),
    );
    series.sort_by_key(|entry| {
        entry.fields.get("order").and_then(parse_integer).filter(|order| *order != 0).unwrap_or(-1)
    });
    Ok(RawCommon {
        series,
        properties: Field::of(request, "properties", "properties"),
        filter_test_accounts: Field::of(request, "filter_test_accounts", "filter_test_accounts"),
        date_from: Field::of(request, "date_from", "date_from"),
        date_to: Field::of(request, "date_to", "date_to"),
        explicit_date: Field::of(request, "explicit_date", "explicit_date"),
        interval: Field::of(request, "interval", "interval"),
        breakdown: breakdown_fields(request),
    })
}

fn breakdown_fields(request: &Object) -> RawBreakdown<'_> {
    let field = |key: &'static str| Field::of(request, key, key);
    RawBreakdown {
        breakdown: field("breakdown"),
        kind: field("breakdown_type"),
        breakdowns: field("breakdowns"),
        limit: field("breakdown_limit"),
        group_index: field("breakdown_group_type_index"),
        normalize_url: field("breakdown_normalize_url"),
        bins: field("breakdown_histogram_bin_count"),
        hide_other: field("breakdown_hide_other_aggregation"),
    }
}

/// Gets the entries of a list, which may be a JSON string.
fn get_list<'a>(request: &'a Object, key: &'static str) -> CalcResult<Vec<Cow<'a, Value>>> {
    let not_a_list = || CalcError::invalid(key, "Expected a list of items.");
    match request.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list.iter().map(Cow::Borrowed).collect()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => Ok(list.into_iter().map(Cow::Owned).collect()),
            Ok(Value::Null) => Ok(Vec::new()),
            Ok(_) => Err(not_a_list()),
            Err(_) if matches!(key, "events" | "actions") => {
                Err(CalcError::invalid(key, "Properties are unparsable!"))
            }
            Err(_) => Err(CalcError::invalid(key, "The text is not valid JSON.")),
        },
        Some(_) => Err(not_a_list()),
    }
}

/// Parses an entry of a series list. Entries that are not objects and actions without an id are dropped.
fn raw_series<'a>(entry: Cow<'a, Value>, attr: &'static str, action: bool) -> Option<RawSeries<'a>> {
    let fields = match entry {
        Cow::Borrowed(Value::Object(fields)) => Cow::Borrowed(fields),
        Cow::Owned(Value::Object(fields)) => Cow::Owned(fields),
        _ => return None,
    };
    let id = fields.get("id").filter(|id| !id.is_null()).cloned();
    (id.is_some() || !action).then_some(RawSeries { attr, action, id, fields })
}

fn exclusions(request: &Object) -> CalcResult<Vec<RawExclusion<'_>>> {
    let entries = get_list(request, "exclusions")?.into_iter().filter_map(|entry| {
        let action = entry.get("type").and_then(Value::as_str) == Some("actions");
        let series = raw_series(entry, "exclusions", action)?;
        let step = |key| series.fields.get(key).filter(|step: &&Value| !step.is_null()).cloned();
        let (from_step, to_step) = (step("funnel_from_step"), step("funnel_to_step"));
        Some(RawExclusion { series, from_step, to_step })
    });
    Ok(entries.collect())
}
