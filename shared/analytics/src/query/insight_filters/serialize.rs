//! Serializes queries as insight filters: the `filter` field of a result's series, and the parameters of people links.

use pennon_filters::dates::compare::Comparison;
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::zone::utc_text;
use serde_json::{Map, Value, json};

use super::super::{Breakdown, Exclusion, FunnelsQuery, Query, Series, StepOptions, formulas};
use super::GROUPS_FROM_ZERO;
use crate::filter::{filter_json, list_json};

/// Serializes the fields that the request set, plus the defaults of `math` and `properties`. Nulls are left out.
pub fn to_insight_filters(query: &Query) -> Map<String, Value> {
    let common = query.common();
    let trends = matches!(query, Query::Trends(_));
    let mut filter = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            filter.insert(key.to_owned(), value);
        }
    };
    put("insight", json!(if trends { "TRENDS" } else { "FUNNELS" }));
    for list in ["events", "actions"] {
        let series = query
            .series()
            .iter()
            .enumerate()
            .filter(|(_, series)| series.event_or_action.list_name() == list);
        put(
            list,
            series
                .map(|(order, series)| series_json(series, order, query.funnel_step_options(order)))
                .collect(),
        );
    }
    put("properties", filter_json(&common.properties));
    put("filter_test_accounts", json!(common.filter_test_accounts));
    put("date_from", json!(common.dates.from));
    put("date_to", json!(common.dates.to));
    if common.dates.explicit {
        put("explicit_date", json!(true));
    }
    put("interval", json!(common.interval.name()));
    for (key, value) in common.breakdown.iter().flat_map(Breakdown::to_insight_filters) {
        put(&key, value);
    }
    match query {
        Query::Trends(trends) => {
            if trends.is_display_explicit {
                put("display", json!(trends.display.name()));
            }
            if let Some(comparison) = &trends.comparison {
                put("compare", json!(true));
                if let Comparison::Back(text) = comparison {
                    put("compare_to", json!(text));
                }
            }
            for (key, formulas) in formulas::to_fields(&trends.formulas) {
                put(key, formulas);
            }
            if trends.smoothing > 1 {
                put("smoothing_intervals", json!(trends.smoothing));
            }
        }
        Query::Funnels(funnels) => {
            write_funnel_fields(funnels, &mut put);
        }
        Query::Correlation(correlation) => {
            write_funnel_fields(&correlation.funnel, &mut put);
            for (key, value) in correlation.to_insight_filters() {
                put(&key, value);
            }
        }
    }
    filter
}

/// Writes the fields of a funnel other than its steps.
fn write_funnel_fields(query: &FunnelsQuery, put: &mut impl FnMut(&str, Value)) {
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
    put("aggregation_group_type_index", json!(query.group_type_index));
    if query.group_type_index == Some(0) {
        put(GROUPS_FROM_ZERO, json!(true));
    }
    if query.common.breakdown.is_some() {
        put("breakdown_attribution_type", json!(query.attribution.name()));
        put("breakdown_attribution_value", json!(query.attribution.step()));
    }
}

/// Insight filters with both dates set: as sent, or else the resolved bound.
pub fn insight_filters_with_dates(query: &Query, range: &DateRange) -> Map<String, Value> {
    let mut filter = Map::new();
    for (key, value) in to_insight_filters(query) {
        // Keeps both dates before the interval, whether they were sent or resolved.
        if key == "explicit_date" || key == "interval" {
            filter.entry("date_from").or_insert_with(|| json!(utc_text(&range.from)));
            filter.entry("date_to").or_insert_with(|| json!(utc_text(&range.to)));
        }
        filter.insert(key, value);
    }
    filter
}

/// Serializes one series. `step` holds the options of a funnel's step; `None` for a trend's series.
fn series_json(series: &Series, order: usize, step_options: Option<StepOptions>) -> Value {
    let mut entity = json!({"id": series.event_or_action.id(), "type": series.event_or_action.list_name(), "order": order});
    if let Some(name) = &series.name {
        entity["name"] = json!(name);
    }
    if let Some(name) = &series.custom_name {
        entity["custom_name"] = json!(name);
    }
    match step_options {
        None => {
            entity["math"] = json!(series.requested_math.as_deref().unwrap_or("total"));
            for (key, value) in series.math_arguments.json() {
                entity[key] = value;
            }
        }
        Some(options) => {
            if let Some(first) = options.first {
                entity["math"] = json!(first.name());
            }
            if options.optional {
                entity["optionalInFunnel"] = json!(true);
            }
        }
    }
    entity["properties"] = list_json(&series.properties);
    entity
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
