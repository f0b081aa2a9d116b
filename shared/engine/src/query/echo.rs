//! Questions written as legacy filter objects: the `filter` of a series, and the parameters of links.

use serde_json::{Map, Value, json};

use super::legacy::GROUPS_FROM_ZERO;
use super::{Exclusion, FunnelsQuery, Query, Series, StepRule};
use crate::dates::compare::Comparison;
use crate::dates::range::DateRange;
use crate::dates::zone::utc_text;
use crate::filter::{filter_json, list_json};

/// The legacy form: what was said, defaults of `math` and `properties` filled in, nothing that is null.
pub fn legacy(query: &Query) -> Map<String, Value> {
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
        let series = query.series().iter().enumerate().filter(|(_, series)| series.source.list() == list);
        put(list, series.map(|(order, series)| entity(series, order, query.step(order))).collect());
    }
    put("properties", filter_json(&common.properties));
    put("filter_test_accounts", json!(common.filter_test_accounts));
    put("date_from", json!(common.dates.from));
    put("date_to", json!(common.dates.to));
    if common.dates.explicit {
        put("explicit_date", json!(true));
    }
    put("interval", json!(common.interval.name()));
    for (key, value) in common.breakdown.iter().flat_map(super::Breakdown::to_legacy) {
        put(&key, value);
    }
    match query {
        Query::Trends(trends) => {
            if trends.display_given {
                put("display", json!(trends.display.name()));
            }
            if let Some(comparison) = &trends.comparison {
                put("compare", json!(true));
                if let Comparison::Back(text) = comparison {
                    put("compare_to", json!(text));
                }
            }
            for (key, formulas) in super::formulas::to_fields(&trends.formulas) {
                put(key, formulas);
            }
            if trends.smoothing > 1 {
                put("smoothing_intervals", json!(trends.smoothing));
            }
        }
        Query::Funnels(funnels) => {
            funnel(funnels, &mut put);
        }
        Query::Correlation(correlation) => {
            funnel(&correlation.funnel, &mut put);
            for (key, value) in correlation.to_legacy() {
                put(&key, value);
            }
        }
    }
    filter
}

/// What a funnel has beside its steps.
fn funnel(query: &FunnelsQuery, put: &mut impl FnMut(&str, Value)) {
    put("funnel_viz_type", json!(query.viz.name()));
    put("funnel_order_type", json!(query.order.name()));
    put("funnel_window_interval", json!(query.window.count));
    put("funnel_window_interval_unit", json!(query.window.unit.name()));
    if !query.exclusions.is_empty() {
        put("exclusions", query.exclusions.iter().map(exclusion).collect());
    }
    put("funnel_from_step", json!(query.from_step));
    put("funnel_to_step", json!(query.to_step));
    put("bin_count", json!(query.bin_count));
    put("aggregation_group_type_index", json!(query.group));
    if query.group == Some(0) {
        put(GROUPS_FROM_ZERO, json!(true));
    }
    if query.common.breakdown.is_some() {
        put("breakdown_attribution_type", json!(query.attribution.name()));
        put("breakdown_attribution_value", json!(query.attribution.step()));
    }
}

/// The legacy form with both dates as texts: as sent, else the resolved bound.
pub fn with_dates(query: &Query, range: &DateRange) -> Map<String, Value> {
    let mut filter = Map::new();
    for (key, value) in legacy(query) {
        // Both dates stand before the interval, wherever they come from.
        if key == "explicit_date" || key == "interval" {
            filter.entry("date_from").or_insert_with(|| json!(utc_text(&range.from)));
            filter.entry("date_to").or_insert_with(|| json!(utc_text(&range.to)));
        }
        filter.insert(key, value);
    }
    filter
}

/// `step` says what is special about a step of a funnel; none for the series of a trend.
fn entity(series: &Series, order: usize, step: Option<StepRule>) -> Value {
    let mut entity = json!({"id": series.source.id(), "type": series.source.list(), "order": order});
    if let Some(name) = &series.name {
        entity["name"] = json!(name);
    }
    if let Some(name) = &series.custom_name {
        entity["custom_name"] = json!(name);
    }
    match step {
        None => {
            entity["math"] = json!(series.math_given.as_deref().unwrap_or("total"));
            for (key, value) in series.math_arguments.json() {
                entity[key] = value;
            }
        }
        Some(step) => {
            if let Some(first) = step.first {
                entity["math"] = json!(first.name());
            }
            if step.optional {
                entity["optionalInFunnel"] = json!(true);
            }
        }
    }
    entity["properties"] = list_json(&series.properties);
    entity
}

fn exclusion(exclusion: &Exclusion) -> Value {
    json!({
        "id": exclusion.series.source.id(),
        "type": exclusion.series.source.list(),
        "properties": list_json(&exclusion.series.properties),
        "funnel_from_step": exclusion.from_step,
        "funnel_to_step": exclusion.to_step,
    })
}
