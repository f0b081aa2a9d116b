//! The canonical text of a question, for cache keys.

use serde_json::{Map, Value, json};

use super::{Exclusion, FirstTime, FunnelsQuery, Query, Series, StepRule};
use crate::dates::compare::Comparison;
use crate::filter::filter_json;

/// The query node, defaults filled in, keys sorted.
pub fn text(query: &Query) -> String {
    let common = query.common();
    let series = query.series().iter().enumerate();
    let series = series.map(|(order, series)| self::series(series, query.step(order)));
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
        "breakdownFilter": common.breakdown.as_ref().map(super::Breakdown::to_legacy),
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
                "display": trends.display_given.then(|| trends.display.name()),
                "smoothingIntervals": trends.smoothing,
                "formula": null,
            });
            for (key, formulas) in super::formulas::to_fields(&trends.formulas) {
                node["trendsFilter"][key] = formulas;
            }
        }
        Query::Funnels(funnels) => funnel(funnels, &mut node),
        Query::Correlation(correlation) => {
            funnel(&correlation.funnel, &mut node);
            node["kind"] = json!("FunnelCorrelationQuery");
            node["correlation"] = json!(correlation.to_legacy());
        }
    }
    sorted(node).to_string()
}

/// What a funnel has beside its steps.
fn funnel(funnels: &FunnelsQuery, node: &mut Value) {
    node["kind"] = json!("FunnelsQuery");
    node["funnelsFilter"] = json!({
        "funnelVizType": funnels.viz.name(),
        "funnelOrderType": funnels.order.name(),
        "funnelWindowInterval": funnels.window.count,
        "funnelWindowIntervalUnit": funnels.window.unit.name(),
        "exclusions": funnels.exclusions.iter().map(exclusion).collect::<Vec<_>>(),
        "funnelFromStep": funnels.from_step,
        "funnelToStep": funnels.to_step,
        "binCount": funnels.bin_count,
        "breakdownAttributionType": funnels.attribution.name(),
        "breakdownAttributionValue": funnels.attribution.step(),
    });
    node["aggregation_group_type_index"] = json!(funnels.group);
}

fn series(series: &Series, step: Option<StepRule>) -> Value {
    json!({
        "kind": series.source.list(),
        "id": series.source.id(),
        "name": series.name,
        "custom_name": series.custom_name,
        "math": step.map_or(series.math_given.as_deref(), |step| step.first.map(FirstTime::name)),
        "optionalInFunnel": step.is_some_and(|step| step.optional),
        "math_arguments": step.is_none().then(|| series.math_arguments.json()),
        "properties": filter_json(&series.properties),
    })
}

fn exclusion(exclusion: &Exclusion) -> Value {
    json!({
        "kind": exclusion.series.source.list(),
        "id": exclusion.series.source.id(),
        "properties": filter_json(&exclusion.series.properties),
        "funnelFromStep": exclusion.from_step,
        "funnelToStep": exclusion.to_step,
    })
}

/// The same value with the keys of every object in byte order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(String, Value)> = object.into_iter().collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            entries.into_iter().map(|(key, value)| (key, sorted(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}
