//! Trends: counts and statistics of events, per time bucket or over the whole range.
//!
//! [`CompiledTrend`] holds the compiled query. `partial` aggregates one partition into a [`PartialResult`], partial results
//! merge in any order, and `finish` builds the result's series.
//!
//! Must stay true: the result has every bucket of the range. A person counts once per bucket (once in total for a total,
//! only in the first bucket for a running sum), no matter which runs hold its events.

mod accumulator;
mod breakdown_values;
mod bucket_mapping;
mod compose;
mod counted_rows;
mod decoded_column;
mod dense;
mod partial_result;
mod people;
mod result;
mod rows;
mod series_counter;
mod statistics;
mod trend_point;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::dates::Interval;
use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::{DateRange, Rounding};
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use crate::clickhouse::{RowsError, SqlRows};
use crate::compiler::{Compiler, common_filter};
use crate::definitions::Definitions;
use crate::filter::Predicate;
use crate::kinds::QueryOutput;
use crate::kinds::insight::{CompiledInsight, InsightQuery};
use crate::kinds::trends::{Display, NamedFormula, TrendsQuery, clickhouse_rows, limits};
use crate::mask::Mask;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{BreakdownBy, Math, UniqueBy};
use crate::scan::ActorKind;
use crate::scan::{Micros, Partition};
use breakdown_values::{BreakdownLayer, BreakdownValues, TrendBreakdown};
use bucket_mapping::Period;
use compose::ResultRow;
use counted_rows::SeriesRows;
pub use partial_result::PartialResult;
use series_counter::SeriesCounter;
pub use trend_point::TrendPoint;

/// A trends query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledTrend {
    query: TrendsQuery,
    project_id: String,
    definitions: Definitions,
    /// The current period, then the comparison period if there is one.
    periods: Vec<Period>,
    shared: Predicate,
    breakdown: TrendBreakdown,
    /// By series: the kind of partitions that it is counted on.
    actor_kinds: Vec<ActorKind>,
    /// By series; `None` if its action does not exist.
    counters: Vec<Option<SeriesCounter>>,
    formulas: Vec<NamedFormula>,
}

impl CompiledInsight for CompiledTrend {
    type Query = TrendsQuery;
    type Partial = PartialResult;
    type DataPoint = TrendPoint;

    fn compile(
        query: &TrendsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let periods = periods(query, project, range, compiler.now)?;
        let shared = compiler.compile_filter(&common_filter(&query.common, project)?, "properties")?;
        let counters = query
            .series
            .iter()
            .map(|series| {
                let math = simplify_math(&series.math, query);
                for period in &periods {
                    let first = period.bucket_mapping(&math).bounds.0.min(period.whole_range().bounds.0);
                    let from = if math == Math::FirstTime { Micros::MIN } else { first };
                    compiler.extend_time_range(from, period.whole_range().bounds.1);
                }
                if let Some(actors) = required_actor_kind(&math, project) {
                    compiler.add_actor_kind(actors);
                }
                SeriesCounter::new(series, math, compiler)
            })
            .collect::<CalcResult<Vec<_>>>()?;
        // Event counts do not depend on the kind of partitions: they use the first kind, once.
        let events_on = compiler.actors.first().copied().unwrap_or_default();
        let actor_kinds = query.series.iter();
        let actor_kinds = actor_kinds
            .map(|series| required_actor_kind(&series.math, project).unwrap_or(events_on))
            .collect();
        let breakdown = compile_breakdown(query, compiler)?;
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        let (query, formulas) = (query.clone(), query.formulas.clone());
        Ok(Self {
            query,
            project_id,
            definitions,
            periods,
            shared,
            breakdown,
            actor_kinds,
            counters,
            formulas,
        })
    }

    fn parse_data_point(query: &TrendsQuery, request: &Map<String, Value>) -> CalcResult<TrendPoint> {
        trend_point::parse_point(query, request)
    }

    fn actor_kind(&self, point: &TrendPoint) -> Option<ActorKind> {
        Some(self.series_actor_kind(point.series))
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<PartialResult> {
        let mut values = BreakdownValues::default();
        let layers = partition.runs.iter().map(|run| values.layers(&self.breakdown, run, work));
        let layers: Vec<Vec<BreakdownLayer>> = layers.collect::<CalcResult<_>>()?;
        let shared = self.shared_masks(partition, work)?;
        let mut result = PartialResult::default();
        for (series, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter else { continue };
            if self.series_actor_kind(series) != partition.counted {
                continue;
            }
            let rows = self.series_rows(counter, partition, (&shared, &layers), work)?;
            for (index, period) in self.periods.iter().enumerate() {
                if period.width() == 0 {
                    continue;
                }
                work.check()?;
                let period_series = self.period_series(index, series);
                let first_bucket_only = self.counts_first_bucket_only(&counter.math);
                let mapping = period.bucket_mapping(&counter.math);
                let accumulators =
                    counter.aggregate(&rows, &mapping, (period.width(), first_bucket_only), work)?;
                result.accumulators.reserve(accumulators.len());
                for (code, accumulator) in accumulators {
                    if let Some(value) = values.list.get(code as usize) {
                        result.add(period_series, value.clone(), accumulator);
                    }
                }
            }
        }
        if result.over_budget { Err(limits::too_much_memory()) } else { Ok(result) }
    }

    fn merge(left: PartialResult, right: PartialResult) -> PartialResult {
        left.merge(right)
    }

    fn finish(&self, mut result: PartialResult, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        result.consolidate();
        work.check()?;
        if result.over_budget || !limits::numbers_fit(result.max_values(), self.width()) {
            return Err(limits::too_much_memory());
        }
        if result.accumulators.len() > limits::BREAKDOWN_VALUES * self.counters.len() * self.periods.len() {
            return Err(limits::too_many("breakdown", "distinct values", limits::BREAKDOWN_VALUES));
        }
        let (result_rows, cut) = self.result_rows(result, work)?;
        self.output(&result_rows, cut)
    }

    fn finish_rows(&self, rows: &SqlRows<'_>, work: &WorkBudget<'_>) -> Result<QueryOutput, RowsError> {
        let numbers = clickhouse_rows::read(rows, &self.query, self.width())?;
        work.check()?;
        let (result_rows, cut) = self.rows_of_limited_values(numbers);
        Ok(self.output(&result_rows, cut)?)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &TrendPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledTrend {
    /// The kind of partitions that a series is counted on.
    pub(crate) fn series_actor_kind(&self, series: usize) -> ActorKind {
        self.actor_kinds.get(series).copied().unwrap_or_default()
    }

    /// The largest number of values of a series.
    fn width(&self) -> usize {
        self.periods.iter().map(Period::width).max().unwrap_or(0)
    }

    /// The result of its rows, and whether breakdown values were cut off by the limit.
    fn output(&self, result_rows: &[ResultRow], cut: bool) -> CalcResult<QueryOutput> {
        if result_rows.len().saturating_mul(self.width()) > limits::RESULT_POINTS {
            return Err(limits::too_many("breakdown", "numbers in the result", limits::RESULT_POINTS));
        }
        Ok(QueryOutput { result: result::build_series(self, result_rows), has_more: Some(cut) })
    }

    /// Index of a series in a period, as a key of [`PartialResult`].
    fn period_series(&self, period: usize, series: usize) -> usize {
        period * self.counters.len() + series
    }

    /// Whether an actor counts only in its first bucket: for distinct counts shown as a running sum.
    fn counts_first_bucket_only(&self, math: &Math) -> bool {
        self.query.display == Display::ActionsLineGraphCumulative
            && matches!(math, Math::Unique(UniqueBy::Actor | UniqueBy::Group(_)))
    }

    /// The rows of each run that pass the query's common filters.
    fn shared_masks(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<Mask>> {
        partition.runs.iter().map(|run| self.shared.mask(run, work)).collect()
    }

    /// The rows of a series with their breakdown layers.
    fn series_rows<'a>(
        &self,
        counter: &SeriesCounter,
        partition: &'a Partition,
        (shared, layers): (&[Mask], &'a [Vec<BreakdownLayer>]),
        work: &WorkBudget<'_>,
    ) -> CalcResult<SeriesRows<'a>> {
        let masks = self.series_masks(counter, partition, shared, work)?;
        let row = |(run, mask): (usize, Mask)| (&partition.runs[run], mask, layers[run].as_slice());
        Ok(SeriesRows { list: masks.into_iter().map(row).collect(), actors: partition.actors.len() })
    }

    /// The runs with rows of a series: index in the partition, and the rows that pass its filters.
    fn series_masks(
        &self,
        counter: &SeriesCounter,
        partition: &Partition,
        shared: &[Mask],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<(usize, Mask)>> {
        let mut list = Vec::new();
        for (index, (run, shared)) in partition.runs.iter().zip(shared).enumerate() {
            work.check()?;
            let mask = match shared {
                Mask::Nothing => Mask::Nothing,
                shared => counter.matcher.mask(run, work)?.and(shared.clone()),
            };
            // First-time math also needs the events that pass no filter.
            if mask != Mask::Nothing || counter.math == Math::FirstTime {
                list.push((index, mask));
            }
        }
        Ok(list)
    }
}

/// The queried date range and the comparison range.
fn periods(
    query: &TrendsQuery,
    project: &ProjectContext,
    range: DateRange,
    now: DateTime<Tz>,
) -> CalcResult<Vec<Period>> {
    let total = query.display.is_total();
    let interval = if total { Interval::Day } else { query.common.interval };
    let mut ranges = vec![range];
    if let Some(comparison) = &query.comparison {
        // A total is rounded by days, but its comparison range by the requested interval.
        let rounding = Rounding { interval: query.common.interval, ..query.rounding() };
        let dates = &query.common.dates;
        let current = dates.resolve(rounding, now, project.earliest_event)?;
        ranges.push(comparison.of(&current, dates, rounding)?);
    }
    let mut points = 0;
    let period = |range: DateRange| {
        // A total has no buckets, so the length of its range is not limited.
        let span = if total { DateRange { from: range.to, ..range } } else { range };
        let buckets = Buckets::new(&span, interval, project.week_start)?;
        points += buckets.len() * query.series.len();
        if points > limits::POINTS {
            return Err(limits::too_many("interval", "intervals in all series together", limits::POINTS));
        }
        Ok(Period::new(range, buckets, interval, total))
    };
    ranges.into_iter().map(period).collect()
}

/// Compiles the breakdown.
fn compile_breakdown(query: &TrendsQuery, compiler: &mut Compiler<'_>) -> CalcResult<TrendBreakdown> {
    use crate::breakdown::BreakdownReader;
    use crate::query::CohortChoice;
    use crate::scan::{ColumnRef, JoinedColumnKey};
    Ok(match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => TrendBreakdown::None,
        Some(BreakdownBy::Dimensions { dimensions, .. }) => {
            TrendBreakdown::Properties(BreakdownReader::new(dimensions, compiler, "breakdown")?)
        }
        Some(BreakdownBy::Cohorts { choices, .. }) => {
            for choice in choices {
                if let CohortChoice::Cohort(id) = choice {
                    compiler
                        .require_value(&ColumnRef::Joined(JoinedColumnKey::InCohort(*id)), "breakdown")?;
                }
            }
            TrendBreakdown::Cohorts(choices.clone())
        }
    })
}

/// Simplifies the aggregation: where buckets are at least as wide as the rolling window, a rolling count is a plain
/// distinct count, also for totals.
fn simplify_math(math: &Math, query: &TrendsQuery) -> Math {
    match (math, query.common.interval) {
        (Math::Rolling(7, unique_by), Interval::Week | Interval::Month)
        | (Math::Rolling(30, unique_by), Interval::Month) => Math::Unique(*unique_by),
        _ => math.clone(),
    }
}

/// The kind of actors that the aggregation counts; `None` if the kind does not change the number.
fn required_actor_kind(math: &Math, project: &ProjectContext) -> Option<ActorKind> {
    match math {
        Math::Unique(UniqueBy::Actor) | Math::Rolling(_, UniqueBy::Actor) | Math::PerActor(_) => {
            Some(project.actor_kind(None))
        }
        // First-time counts are per person, even if the project aggregates by distinct id.
        Math::FirstTime => Some(ActorKind::Persons),
        Math::Unique(_) | Math::Rolling(..) | Math::Total | Math::Property(..) | Math::Expression(_) => None,
    }
}
