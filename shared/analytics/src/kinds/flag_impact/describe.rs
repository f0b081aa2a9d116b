//! Formats flag impact queries as readable SQL-like text. Nothing parses this text.

use super::metric::{Metric, TrendValue};
use super::query::FlagImpactQuery;
use crate::query::describe::quoted;

/// Formats the query.
pub(super) fn describe(query: &FlagImpactQuery) -> String {
    let number = match &query.metric {
        Metric::Funnel(_) => "share of persons that completed the funnel",
        Metric::Trend(metric) => match metric.value {
            TrendValue::HasEvent => "share of persons with an event",
            TrendValue::EventCount => "events per person",
            TrendValue::Sum(..) => "sum per person",
        },
    };
    let metric = query.metric.query().describe();
    format!("SELECT variant, {number}\nFROM ({metric})\nGROUP BY variant of flag {}", quoted(&query.flag.key))
}
