//! Canonical JSON of a query, for cache keys.

use pennon_filters::dates::compare::Comparison;
use serde_json::{Map, Value, json};

use super::{Breakdown, Exclusion, FirstTime, FunnelsQuery, Query, Series, StepOptions, formulas};
use crate::filter::filter_json;

/// Serializes the query node, with defaults filled in and keys sorted.
pub fn canonical_json(query: &Query) -> String {
    let common = query.common();
    let series = query.series().iter().enumerate();
    let series = series.map(|(order, series)| series_json(series, query.funnel_step_options(order)));
    let mut node = json!({
        "series": series.collect::<Vec<_>>(),
        "properties": filter_json(&common.properties),
        "filterTestAccounts": common.filter_test_accounts,
        "dateRange": {
            "date_from": common.dates.from,
            "date_to": common.dates.to,
            "explicitDate": common.dates.explicit,
        },
        "interval": common.interval.name(),
        "breakdownFilter": common.breakdown.as_ref().map(Breakdown::to_insight_filters),
    });
    match query {
        Query::Trends(trends) => {
            node["kind"] = json!("TrendsQuery");
            node["compareFilter"] = json!({
                "compare": trends.comparison.is_some(),
                "compare_to": match &trends.comparison {
                    Some(Comparison::Back(text)) => Some(text),
                    _ => None,
                },
            });
            node["trendsFilter"] = json!({
                "display": trends.is_display_explicit.then(|| trends.display.name()),
                "smoothingIntervals": trends.smoothing,
                "formula": null,
            });
            for (key, formulas) in formulas::to_fields(&trends.formulas) {
                node["trendsFilter"][key] = formulas;
            }
        }
        Query::Funnels(funnels) => write_funnel_fields(funnels, &mut node),
        Query::Correlation(correlation) => {
            write_funnel_fields(&correlation.funnel, &mut node);
            node["kind"] = json!("FunnelCorrelationQuery");
            node["correlation"] = json!(correlation.to_insight_filters());
        }
    }
    sort_keys(node).to_string()
}

/// Writes the fields of a funnel other than its steps.
fn write_funnel_fields(funnels: &FunnelsQuery, node: &mut Value) {
    node["kind"] = json!("FunnelsQuery");
    node["funnelsFilter"] = json!({
        "funnelVizType": funnels.viz.name(),
        "funnelOrderType": funnels.order.name(),
        "funnelWindowInterval": funnels.window.count,
        "funnelWindowIntervalUnit": funnels.window.unit.name(),
        "exclusions": funnels.exclusions.iter().map(exclusion_json).collect::<Vec<_>>(),
        "funnelFromStep": funnels.from_step,
        "funnelToStep": funnels.to_step,
        "binCount": funnels.bin_count,
        "breakdownAttributionType": funnels.attribution.name(),
        "breakdownAttributionValue": funnels.attribution.step(),
    });
    node["aggregation_group_type_index"] = json!(funnels.group_type_index);
}

fn series_json(series: &Series, step: Option<StepOptions>) -> Value {
    json!({
        "kind": series.event_or_action.list_name(),
        "id": series.event_or_action.id(),
        "name": series.name,
        "custom_name": series.custom_name,
        "math": step.map_or(series.requested_math.as_deref(), |step| step.first.map(FirstTime::name)),
        "optionalInFunnel": step.is_some_and(|step| step.optional),
        "math_arguments": step.is_none().then(|| series.math_arguments.json()),
        "properties": filter_json(&series.properties),
    })
}

fn exclusion_json(exclusion: &Exclusion) -> Value {
    json!({
        "kind": exclusion.series.event_or_action.list_name(),
        "id": exclusion.series.event_or_action.id(),
        "properties": filter_json(&exclusion.series.properties),
        "funnelFromStep": exclusion.from_step,
        "funnelToStep": exclusion.to_step,
    })
}

/// The same value with the keys of every object sorted in byte order.
fn sort_keys(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(String, Value)> = object.into_iter().collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            entries.into_iter().map(|(key, value)| (key, sort_keys(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.into_iter().map(sort_keys).collect(),
        other => other,
    }
}
