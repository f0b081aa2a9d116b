//! Funnels over time: the share of entries that converted, by period.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::super::Funnel;
use super::super::rows::{Row, Rows};
use super::breakdown_of;
use crate::dates::buckets::Buckets;
use crate::limits;
use crate::query::BreakdownBy;

/// One object, or one for each value of the breakdown that stays, in the order of the values.
pub(in super::super) fn series(funnel: &Funnel, buckets: &Buckets, sum: Rows) -> Value {
    let days = buckets.days();
    let labels: Vec<String> =
        buckets.starts().iter().map(|start| start.format("%-d-%b-%Y").to_string()).collect();
    let object = |row: &Row| {
        let data: Vec<f64> = (0..days.len()).map(|period| rate(row, period, days.len())).collect();
        json!({"count": days.len(), "data": data, "days": days, "labels": labels})
    };
    let Some(breakdown) = &funnel.query.common.breakdown else {
        let row = sum.0.into_values().next().unwrap_or_default();
        return json!([object(&row)]);
    };
    let cohorts = matches!(breakdown.by, BreakdownBy::Cohorts { .. });
    let mut rows: Vec<(Vec<String>, Row)> = sum.0.into_iter().collect();
    let entries = |row: &Row| row.counts.iter().take(days.len()).sum::<u64>();
    rows.sort_by_key(|(_, row)| Reverse(entries(row)));
    rows.truncate(funnel.limit().min(limits::FUNNEL_POINTS / days.len().max(1)).max(1));
    if cohorts {
        rows.sort_by_key(|(key, _)| key.first().and_then(|id| id.parse::<u64>().ok()));
    } else {
        rows.sort_by(|left, right| left.0.cmp(&right.0));
    }
    let rows = rows.iter().map(|(key, row)| {
        let mut object = object(row);
        object["breakdown_value"] = if cohorts { breakdown_of(funnel, key).0 } else { json!(key) };
        object
    });
    rows.collect()
}

/// Per cent with two places; 0 when nobody entered.
#[expect(clippy::cast_precision_loss, reason = "a share of numbers of people")]
fn rate(row: &Row, period: usize, periods: usize) -> f64 {
    let at = |index: usize| row.counts.get(index).copied().unwrap_or(0);
    let (entered, converted) = (at(period), at(periods + period));
    if entered == 0 { 0.0 } else { (converted as f64 / entered as f64 * 10_000.0).round_ties_even() / 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_places() {
        let rate = |entered, converted| rate(&Row { counts: vec![entered, converted], hops: vec![] }, 0, 1);
        assert_eq!([rate(3, 1), rate(3, 2), rate(7, 7), rate(0, 0)], [33.33, 66.67, 100.0, 0.0]);
    }
}
