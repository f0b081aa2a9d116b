//! Stickiness in SQL: for each series a row for each bar.
//!
//! Must stay true: every bar has a row, and intervals have the same bounds as in the plan.

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;

use super::calculation::Intervals;
use super::query::SeriesActor;
use super::{StickinessQuery, limits};
use crate::clickhouse::{StatementWriter, quote, unsupported};
use crate::query::Series;
use crate::scan::ActorKind;

/// The select from `events`.
pub(super) fn select(
    writer: &mut StatementWriter<'_>,
    query: &StickinessQuery,
    range: &DateRange,
) -> CalcResult<String> {
    if query.comparison.is_some() {
        return Err(unsupported("a comparison with an earlier period"));
    }
    for actor in &query.actors {
        match actor {
            SeriesActor::Person => {}
            SeriesActor::Group(_) => return Err(unsupported("a count of groups")),
            SeriesActor::Value(_) => return Err(unsupported("an SQL expression of its own")),
        }
    }
    let (interval, week_start) = (query.common.interval, writer.project.week_start);
    let intervals = Intervals::new(*range, interval, query.interval_count, week_start)?;
    if intervals.bars.saturating_mul(query.series.len()) > limits::BARS {
        return Err(limits::too_many("interval", "intervals in all series together", limits::BARS));
    }
    writer.compiler.add_actor_kind(ActorKind::Persons);
    let shared = writer.common_condition(&query.common)?;
    let mut selects = Vec::with_capacity(query.series.len());
    for (order, series) in query.series.iter().enumerate() {
        selects.push(select_series(writer, query, (order, series), (&intervals, &shared))?);
    }
    Ok(format!(
        "SELECT series, name, intervals, value\nFROM (\n{}\n)\nORDER BY series, intervals",
        selects.join("\nUNION ALL\n")
    ))
}

fn select_series(
    writer: &mut StatementWriter<'_>,
    query: &StickinessQuery,
    (order, series): (usize, &Series),
    (intervals, shared): (&Intervals, &str),
) -> CalcResult<String> {
    let condition = writer.series_condition(series)?;
    let within = format!("t BETWEEN {} AND {}", intervals.bounds.0, intervals.bounds.1);
    let condition = quote::all([condition, shared.to_owned(), within].into_iter());
    let having = query
        .criterion
        .map(|criterion| format!(" HAVING count() {} {}", criterion.comparison.sign(), criterion.value));
    let name = series.event_or_action.name(&writer.project.definitions).unwrap_or("All events");
    let bars = intervals.bars;
    let data = if query.is_cumulative { "arrayReverse(arrayCumSum(arrayReverse(data)))" } else { "data" };
    Ok(format!(
        "  SELECT {order} AS series, {} AS name, intervals, value FROM (\n    \
         SELECT arrayMap(bar -> found[bar], range(1, {})) AS data FROM (\n    \
         SELECT CAST((groupArray(toInt64(active)), groupArray(n)), 'Map(Int64, UInt64)') AS found FROM (\n    \
         SELECT active, count() AS n FROM (SELECT actor, count() AS active FROM (\n    \
         SELECT actor, {} AS bucket FROM events WHERE {condition} GROUP BY actor, bucket{}) GROUP BY actor) GROUP BY active))\n  )\n  \
         ARRAY JOIN {data} AS value, range(1, {}) AS intervals",
        quote::text(name),
        bars + 1,
        bucket(intervals),
        having.unwrap_or_default(),
        bars + 1,
    ))
}

/// The number of the interval of an event.
fn bucket(intervals: &Intervals) -> String {
    let (starts, numbers): (Vec<String>, Vec<String>) =
        intervals.pieces().map(|(start, number)| (start.to_string(), number.to_string())).unzip();
    if starts.len() < 2 {
        return "toInt64(0)".to_owned();
    }
    let starts = format!("[{}]", starts.join(", "));
    format!("[{}][indexOfAssumeSorted({starts}, roundDown(t, {starts}))]", numbers.join(", "))
}
