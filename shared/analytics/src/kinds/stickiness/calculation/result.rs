//! Builds the series objects of a stickiness result.

use pennon_filters::dates::zone::utc_text;
use serde_json::{Map, Value, json};

use super::CompiledStickiness;
use super::intervals::Intervals;
use super::people::{BAR, SERIES};
use crate::kinds::stickiness::{PATH, StickinessQuery, dialects};
use crate::people_links::PeopleLinks;

/// Builds the array of series objects: each series, followed by its own row of the comparison period. `bars` returns the
/// bars of a period and a series.
pub(super) fn build_series(
    stickiness: &CompiledStickiness,
    mut bars: impl FnMut(usize, usize) -> Vec<u64>,
) -> Value {
    let links =
        stickiness.periods.iter().map(|period| period.bars).sum::<usize>() * stickiness.counters.len();
    let contexts: Vec<PeriodContext<'_>> = stickiness
        .periods
        .iter()
        .enumerate()
        .map(|(index, period)| PeriodContext {
            stickiness,
            labels: labels(&stickiness.query, period.bars),
            days: (1..=period.bars).collect(),
            compare_label: match index {
                _ if stickiness.query.comparison.is_none() => None,
                0 => Some("current"),
                _ => Some("previous"),
            },
            links: PeopleLinks::new(
                &stickiness.project_id,
                PATH,
                link_node(&stickiness.query, period),
                links,
            ),
        })
        .collect();
    let mut rows = Vec::new();
    for (series, counter) in stickiness.counters.iter().enumerate() {
        if counter.is_none() {
            continue;
        }
        for (period, context) in contexts.iter().enumerate() {
            rows.push(context.series(series, bars(period, series)));
        }
    }
    Value::Array(rows)
}

/// Data that all series objects of a period share.
struct PeriodContext<'a> {
    stickiness: &'a CompiledStickiness,
    labels: Vec<String>,
    days: Vec<usize>,
    compare_label: Option<&'static str>,
    links: PeopleLinks,
}

impl PeriodContext<'_> {
    fn series(&self, order: usize, mut data: Vec<u64>) -> Value {
        let query = &self.stickiness.query;
        let series = query.series.get(order);
        let name = series.and_then(|series| series.event_or_action.name(&self.stickiness.definitions));
        let label = name.unwrap_or("All events");
        let count: u64 = data.iter().sum();
        if query.is_cumulative {
            let mut sum = 0;
            for bar in data.iter_mut().rev() {
                sum += *bar;
                *bar = sum;
            }
        }
        let mut object = json!({
            "label": label,
            "count": count,
            "data": data,
            "days": self.days,
            "labels": self.labels,
            "action": {
                "order": order,
                "type": "events",
                "id": name,
                "name": label,
                "custom_name": series.and_then(|series| series.custom_name.as_ref()),
            },
        });
        if let Some(compare_label) = self.compare_label {
            object["compare"] = json!(true);
            object["compare_label"] = json!(compare_label);
        }
        let numbers = self.days.iter().map(|bar| vec![(BAR, bar.to_string()), (SERIES, order.to_string())]);
        self.links.add_to(&mut object, numbers);
        object
    }
}

/// `1 day`, `2 days`, and so on; `1 day or more` for cumulative bars. The number of units of an interval is not named.
fn labels(query: &StickinessQuery, bars: usize) -> Vec<String> {
    let unit = query.common.interval.name();
    let or_more = if query.is_cumulative { " or more" } else { "" };
    let label = |bar: usize| format!("{bar} {unit}{}{or_more}", if bar == 1 { "" } else { "s" });
    (1..=bars).map(label).collect()
}

/// The query of a link: the same query over exactly this period, without comparison.
fn link_node(query: &StickinessQuery, period: &Intervals) -> Map<String, Value> {
    let mut query = query.clone();
    query.comparison = None;
    // The first counted instant is in the first interval, so as an explicit start it gives the same intervals.
    query.common.dates.from = Some(utc_text(&period.range.first));
    query.common.dates.to = Some(utc_text(&period.range.to));
    query.common.dates.explicit = true;
    dialects::to_node(&query)
}
