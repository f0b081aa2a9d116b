//! Trends in SQL: for each series one number per bucket and breakdown value, or one per value.
//!
//! Must stay true: every bucket of the range has a row, with the same bounds as in the plan; breakdown values are limited
//! to those with the largest sums, and the others are added up.

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;

use crate::clickhouse::{StatementWriter, quote, unsupported};
use crate::kinds::trends::{Display, TrendsQuery};
use crate::query::{Breakdown, BreakdownBy, EventOrAction, Math, NumberSource, Series, Statistic, UniqueBy};
use crate::scan::{ColumnKey, Micros};

/// The breakdown value for missing, null and empty.
const NULL: &str = "$$_posthog_breakdown_null_$$";
/// The breakdown value for all values beyond the limit.
const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// Parameters that are common to all series.
struct TrendContext<'a> {
    query: &'a TrendsQuery,
    shared: String,
    /// None for a total over the whole range.
    buckets: Option<Buckets>,
    /// First and last counted instant.
    bounds: (Micros, Micros),
    /// First counted instant for statistics of events per actor.
    requested_from: Micros,
    /// The breakdown values, as a list.
    value: Option<String>,
}

/// The select from `events`.
pub(super) fn select(
    writer: &mut StatementWriter<'_>,
    query: &TrendsQuery,
    range: &DateRange,
) -> CalcResult<String> {
    check_supported(query)?;
    writer.compiler.add_actor_kind(writer.project.actor_kind(None));
    let shared = writer.common_condition(&query.common)?;
    let total = query.display.is_total();
    let buckets = match total {
        true => None,
        false => Some(Buckets::new(range, query.common.interval, writer.project.week_start)?),
    };
    let value = match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => None,
        Some(BreakdownBy::Cohorts { .. }) => return Err(unsupported("a breakdown by cohorts")),
        Some(BreakdownBy::Dimensions { dimensions: parts, .. }) => {
            let texts = writer.breakdown_parts(parts)?;
            let null = quote::text(NULL);
            let texts: Vec<String> =
                texts.into_iter().map(|text| format!("assumeNotNull(ifNull({text}, {null}))")).collect();
            Some(format!("[{}]", texts.join(", ")))
        }
    };
    let bounds = (range.first.timestamp_micros(), range.to.timestamp() * 1_000_000);
    let context =
        TrendContext { query, shared, buckets, bounds, requested_from: range.from.timestamp_micros(), value };
    let mut series = Vec::with_capacity(query.series.len());
    for (order, one) in query.series.iter().enumerate() {
        series.push(context.series(writer, order, one)?);
    }
    let (value, value_count) =
        if context.value.is_some() { (", breakdown_value", ", value_count") } else { ("", "") };
    let (columns, sort) = match total {
        true => ("aggregated_value", ""),
        false => ("day, value", ", bucket"),
    };
    Ok(format!(
        "SELECT series, name{value}{value_count}, {columns}\nFROM (\n{}\n)\nORDER BY series, class, size DESC{value}{sort}",
        series.join("\nUNION ALL\n")
    ))
}

fn check_supported(query: &TrendsQuery) -> CalcResult<()> {
    let what = match query {
        TrendsQuery { formulas, .. } if !formulas.is_empty() => "a formula",
        TrendsQuery { comparison: Some(_), .. } => "a comparison with an earlier period",
        TrendsQuery { smoothing, .. } if *smoothing > 1 => "smoothed numbers",
        _ => return Ok(()),
    };
    Err(unsupported(what))
}

impl TrendContext<'_> {
    /// The select of one series.
    fn series(&self, writer: &mut StatementWriter<'_>, order: usize, series: &Series) -> CalcResult<String> {
        let condition = writer.series_condition(series)?;
        let first =
            if matches!(series.math, Math::PerActor(_)) { self.requested_from } else { self.bounds.0 };
        let first = self.starts().first().map_or(first, |start| first.max(*start));
        let within = format!("t BETWEEN {first} AND {}", self.bounds.1);
        let condition = quote::all([condition, self.shared.clone(), within].into_iter());
        let numbers = self.numbers(writer, &series.math, &condition)?;
        let name = match &series.event_or_action {
            EventOrAction::Event(name) => name.clone().unwrap_or_else(|| "All events".to_owned()),
            EventOrAction::Action(id) => writer
                .project
                .definitions
                .actions
                .get(id)
                .map_or_else(|| format!("action {id}"), |action| action.name.clone()),
        };
        let data = self.data(&numbers, series.math_arguments.multiplier.unwrap_or(1.0));
        let data = match &self.query.common.breakdown {
            None => data,
            Some(breakdown) => self.limit_values(breakdown, &data),
        };
        Ok(self.rows(order, &name, &data))
    }

    fn starts(&self) -> Vec<Micros> {
        self.buckets.iter().flat_map(Buckets::starts).map(chrono::DateTime::timestamp_micros).collect()
    }

    /// The bucket of an event, counted from 0.
    fn bucket(&self) -> String {
        let starts = self.starts();
        let last = starts.len().saturating_sub(1);
        let width = match starts.as_slice() {
            [] | [_] => return "toInt64(0)".to_owned(),
            [first, second, ..] => second - first,
        };
        if starts.windows(2).all(|pair| pair[1] - pair[0] == width) {
            return format!("least(intDiv(t - {}, {width}), {last})", starts[0]);
        }
        let list: Vec<String> = starts.iter().map(i64::to_string).collect();
        let list = format!("[{}]", list.join(", "));
        format!("toInt64(indexOfAssumeSorted({list}, roundDown(t, {list})) - 1)")
    }

    /// A number `n` for each `value` and `bucket` that has events.
    fn numbers(&self, writer: &mut StatementWriter<'_>, math: &Math, condition: &str) -> CalcResult<String> {
        let value = self.value.as_deref().map_or(String::new(), |value| format!("{value} AS value, "));
        let by = if self.value.is_some() { "value, " } else { "" };
        let rows = |number: &str| {
            format!(
                "SELECT {value}{} AS bucket, {number} AS n FROM events WHERE {condition} GROUP BY {by}bucket",
                self.bucket()
            )
        };
        let running = self.query.display == Display::ActionsLineGraphCumulative;
        Ok(match math {
            Math::Total => rows("toFloat64(count())"),
            // A cumulative sum counts each actor once.
            Math::Unique(UniqueBy::Actor) if running => format!(
                "SELECT {by}bucket, toFloat64(count()) AS n FROM (SELECT {value}actor, min({}) AS bucket FROM events \
                 WHERE {condition} GROUP BY {by}actor) GROUP BY {by}bucket",
                self.bucket()
            ),
            Math::Unique(UniqueBy::Actor) => rows("toFloat64(uniqExact(actor))"),
            Math::Property(statistic, NumberSource::Event(key)) => {
                let number = writer.fields.number(&ColumnKey::Property(key.clone()))?;
                rows(&statistic_of(*statistic, &number))
            }
            Math::PerActor(statistic) => format!(
                "SELECT {by}bucket, {} AS n FROM (SELECT {value}{} AS bucket, actor, toFloat64(count()) AS events_of_one \
                 FROM events WHERE {condition} GROUP BY {by}bucket, actor) GROUP BY {by}bucket",
                statistic_of(*statistic, "events_of_one"),
                self.bucket()
            ),
            Math::Unique(UniqueBy::Group(_)) | Math::Rolling(_, UniqueBy::Group(_)) => {
                return Err(unsupported("a count of groups"));
            }
            Math::Unique(UniqueBy::Session) | Math::Rolling(_, UniqueBy::Session) => {
                return Err(unsupported("a count of sessions"));
            }
            Math::Rolling(days, UniqueBy::Actor) => {
                return Err(unsupported(&format!("actives over the last {days} days")));
            }
            Math::FirstTime => return Err(unsupported("who does something for the first time")),
            Math::Property(_, NumberSource::Person(key)) => {
                return Err(unsupported(&format!("the person's property {key}")));
            }
            Math::Property(_, NumberSource::SessionDuration) => {
                return Err(unsupported("the length of sessions"));
            }
            Math::Expression(_) => return Err(unsupported("an SQL expression of its own")),
        })
    }

    /// The numbers of each breakdown value as a list with one per bucket, each times `factor`.
    fn data(&self, numbers: &str, factor: f64) -> String {
        let width = if self.buckets.is_some() { self.starts().len() } else { 1 };
        let (value, by) = if self.value.is_some() { ("value, ", " GROUP BY value") } else { ("", "") };
        #[expect(clippy::float_cmp, reason = "it is 1 where the query has none")]
        let times = if factor == 1.0 { String::new() } else { format!(" * {}", quote::float(factor)) };
        format!(
            "SELECT {value}arrayMap(bucket -> found[bucket]{times}, range({width})) AS data FROM (SELECT {value}\
             CAST((groupArray(toInt64(bucket)), groupArray(assumeNotNull(n))), 'Map(Int64, Float64)') AS found\n      \
             FROM ({numbers}){by})"
        )
    }

    /// Limits the breakdown values and adds up the others.
    fn limit_values(&self, breakdown: &Breakdown, data: &str) -> String {
        let limit = breakdown.limit.unwrap_or(self.query.display.default_value_limit());
        let parts = match &breakdown.by {
            BreakdownBy::Dimensions { dimensions: parts, .. } => parts.len(),
            BreakdownBy::Cohorts { .. } => 1,
        };
        // For totals, null is ordered like any other value.
        let class = if self.query.display.is_total() {
            "0".to_owned()
        } else {
            format!("has(value, {})", quote::text(NULL))
        };
        let rest = format!("[{}]", quote::texts(vec![OTHER; parts]));
        let hidden = if breakdown.hide_other { format!(" WHERE place <= {limit}") } else { String::new() };
        format!(
            "SELECT if(place <= {limit}, value, {rest}) AS row, sumForEach(data) AS data, any(value_count) AS value_count \
             FROM (\n    \
             SELECT *, row_number() OVER (ORDER BY {class}, arraySum(data) DESC, value) AS place, \
             count() OVER () AS value_count FROM (\n    {data}))\
             {hidden} GROUP BY row"
        )
    }

    /// The rows of the result.
    fn rows(&self, order: usize, name: &str, data: &str) -> String {
        let running = self.query.display == Display::ActionsLineGraphCumulative;
        let data_shown = if running { "arrayCumSum(data)" } else { "data" };
        let (value, class) = match &self.value {
            None => (String::new(), "0".to_owned()),
            Some(_) => {
                let shown = match self.query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
                    Some(BreakdownBy::Dimensions { form: crate::query::BreakdownForm::Several, .. }) => "row",
                    _ => "row[1]",
                };
                let class = format!(
                    "multiIf(has(row, {}), 2, has(row, {}), 1, 0)",
                    quote::text(OTHER),
                    quote::text(NULL)
                );
                (format!("{shown} AS breakdown_value, value_count, "), class)
            }
        };
        let head = format!(
            "  SELECT {order} AS series, {} AS name, {value}{class} AS class, arraySum({data_shown}) AS size",
            quote::text(name)
        );
        match &self.buckets {
            None => format!("{head}, data[1] AS aggregated_value FROM (\n    {data}\n  )"),
            Some(buckets) => {
                let days = buckets.days();
                format!(
                    "{head}, bucket, day, value FROM (\n    {data}\n  )\n  ARRAY JOIN {data_shown} AS value, [{}] AS day, \
                     range({}) AS bucket",
                    quote::texts(days.iter().map(String::as_str)),
                    days.len()
                )
            }
        }
    }
}

/// A statistic of a number column; 0 without numbers.
fn statistic_of(statistic: Statistic, number: &str) -> String {
    let all = match statistic {
        Statistic::Sum => format!("sumKahan({number})"),
        Statistic::Avg => format!("sumKahan({number}) / count({number})"),
        Statistic::Min => format!("min({number})"),
        Statistic::Max => format!("max({number})"),
        Statistic::Percentile(percent) => {
            format!("quantileExactInclusive({})({number})", f64::from(percent) / 100.0)
        }
    };
    format!("if(count({number}) = 0, 0, assumeNotNull({all}))")
}
