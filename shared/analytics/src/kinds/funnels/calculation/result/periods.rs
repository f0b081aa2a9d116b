//! The result of funnels over time: the conversion rate by period.

use std::cmp::Reverse;

use pennon_filters::dates::buckets::Buckets;
use serde_json::{Value, json};

use super::super::CompiledFunnel;
use super::super::rows::{FunnelRow, FunnelRows};
use super::breakdown_json;
use crate::kinds::funnels::limits;
use crate::query::BreakdownBy;

/// Builds one series, or one per breakdown value within the limit, sorted by value.
pub(in super::super) fn build_series(funnel: &CompiledFunnel, buckets: &Buckets, rows: FunnelRows) -> Value {
    let days = buckets.days();
    let labels: Vec<String> =
        buckets.starts().iter().map(|start| start.format("%-d-%b-%Y").to_string()).collect();
    let object = |row: &FunnelRow| {
        let data: Vec<f64> = (0..days.len()).map(|period| conversion_rate(row, period, days.len())).collect();
        json!({"count": days.len(), "data": data, "days": days, "labels": labels})
    };
    let Some(breakdown) = &funnel.query.common.breakdown else {
        let row = rows.0.into_values().next().unwrap_or_default();
        return json!([object(&row)]);
    };
    let cohorts = matches!(breakdown.by, BreakdownBy::Cohorts { .. });
    let mut rows: Vec<(Vec<String>, FunnelRow)> = rows.0.into_iter().collect();
    let entries = |row: &FunnelRow| row.counts.iter().take(days.len()).sum::<u64>();
    rows.sort_by_key(|(_, row)| Reverse(entries(row)));
    rows.truncate(funnel.limit().min(limits::FUNNEL_POINTS / days.len().max(1)).max(1));
    if cohorts {
        rows.sort_by_key(|(key, _)| key.first().and_then(|id| id.parse::<u64>().ok()));
    } else {
        rows.sort_by(|left, right| left.0.cmp(&right.0));
    }
    let rows = rows.iter().map(|(key, row)| {
        let mut object = object(row);
        object["breakdown_value"] = if cohorts { breakdown_json(funnel, key).0 } else { json!(key) };
        object
    });
    rows.collect()
}

/// Conversion rate in percent with two decimals; 0 without entries.
#[expect(clippy::cast_precision_loss, reason = "a share of numbers of people")]
fn conversion_rate(row: &FunnelRow, period: usize, periods: usize) -> f64 {
    let at = |index: usize| row.counts.get(index).copied().unwrap_or(0);
    let (entered, converted) = (at(period), at(periods + period));
    if entered == 0 { 0.0 } else { (converted as f64 / entered as f64 * 10_000.0).round_ties_even() / 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_places() {
        let conversion_rate = |entered, converted| {
            conversion_rate(&FunnelRow { counts: vec![entered, converted], durations: vec![] }, 0, 1)
        };
        assert_eq!(
            [conversion_rate(3, 1), conversion_rate(3, 2), conversion_rate(7, 7), conversion_rate(0, 0)],
            [33.33, 66.67, 100.0, 0.0]
        );
    }
}
