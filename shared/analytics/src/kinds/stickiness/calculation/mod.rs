//! Stickiness: in how many intervals of a range actors are active.
//!
//! [`CompiledStickiness`] holds the compiled query. `partial` counts the actors of one partition by their number of active
//! intervals, partial results merge in any order, and `finish` builds the bars.
//!
//! Must stay true: each actor is in one bar of a series, or in none; persons and groups are counted within their
//! partition, because no other partition has events of them.

mod activity;
mod counts;
mod intervals;
mod people;
mod result;

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use crate::actor_blocks::MatchingRows;
use crate::clickhouse::{RowsError, SqlRows};
use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::definitions::Definitions;
use crate::filter::Predicate;
use crate::kinds::QueryOutput;
use crate::kinds::insight::{CompiledInsight, InsightQuery};
use crate::kinds::stickiness::query::SeriesActor;
use crate::kinds::stickiness::{StickinessQuery, clickhouse_rows, limits};
use crate::mask::Mask;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::Series;
use crate::scan::{ActorKind, Partition};
use crate::sql::CompiledExpression;
pub use counts::StickinessCounts;
pub(super) use intervals::Intervals;
pub use people::StickinessPoint;

/// A stickiness query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledStickiness {
    query: StickinessQuery,
    project_id: String,
    definitions: Definitions,
    /// The current period, then the comparison period if there is one.
    periods: Vec<Intervals>,
    shared: Predicate,
    /// By series; `None` if its action does not exist.
    counters: Vec<Option<SeriesCounter>>,
}

/// A compiled series.
#[derive(Debug, Clone)]
struct SeriesCounter {
    matcher: Matcher,
    /// The kind of partitions that it is counted on.
    actor_kind: ActorKind,
    /// The expression whose values are counted instead of the actors of partitions.
    value: Option<CompiledExpression>,
}

impl SeriesCounter {
    /// Compiles a series; `None` if its action does not exist.
    fn new(series: &Series, actor: &SeriesActor, compiler: &mut Compiler<'_>) -> CalcResult<Option<Self>> {
        let Some(matcher) =
            Matcher::new(&series.event_or_action, &series.properties, compiler, "properties")?
        else {
            return Ok(None);
        };
        let actor_kind = match actor {
            SeriesActor::Group(index) => ActorKind::Groups(*index),
            SeriesActor::Person | SeriesActor::Value(_) => ActorKind::Persons,
        };
        compiler.add_actor_kind(actor_kind);
        let value = match actor {
            SeriesActor::Value(expression) => {
                Some(compiler.compile_expression(expression, series.event_or_action.list_name())?)
            }
            SeriesActor::Person | SeriesActor::Group(_) => None,
        };
        Ok(Some(Self { matcher, actor_kind, value }))
    }
}

impl CompiledInsight for CompiledStickiness {
    type Query = StickinessQuery;
    type Partial = StickinessCounts;
    type DataPoint = StickinessPoint;

    fn compile(
        query: &StickinessQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let mut ranges = vec![range];
        if let Some(comparison) = &query.comparison {
            ranges.push(comparison.of(&range, &query.common.dates, query.rounding())?);
        }
        let (interval, count) = (query.common.interval, query.interval_count);
        let periods =
            ranges.into_iter().map(|range| Intervals::new(range, interval, count, project.week_start));
        let periods = periods.collect::<CalcResult<Vec<_>>>()?;
        let bars = periods.iter().map(|period| period.bars).sum::<usize>() * query.series.len();
        if bars > limits::BARS {
            return Err(limits::too_many("interval", "intervals in all series together", limits::BARS));
        }
        let shared = compiler.compile_filter(&common_filter(&query.common, project)?, "properties")?;
        for period in &periods {
            compiler.extend_time_range(period.bounds.0, period.bounds.1);
        }
        let series = query.series.iter().zip(&query.actors);
        let counters = series
            .map(|(series, actor)| SeriesCounter::new(series, actor, compiler))
            .collect::<CalcResult<Vec<_>>>()?;
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        Ok(Self { query: query.clone(), project_id, definitions, periods, shared, counters })
    }

    fn parse_data_point(
        query: &StickinessQuery,
        request: &Map<String, Value>,
    ) -> CalcResult<StickinessPoint> {
        people::parse_point(query, request)
    }

    fn actor_kind(&self, point: &StickinessPoint) -> Option<ActorKind> {
        Some(self.series_actor_kind(point.series))
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<StickinessCounts> {
        let shared = self.shared_masks(partition, work)?;
        let mut counts = StickinessCounts::default();
        for (series, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter.as_ref().filter(|one| one.actor_kind == partition.counted) else {
                continue;
            };
            let rows = matching_rows(counter, partition, &shared, work)?;
            let columns = rows.iter().filter_map(|rows| Some(counter.value.as_ref()?.column(rows.run, work)));
            let columns = columns.collect::<CalcResult<Vec<_>>>()?;
            for (index, period) in self.periods.iter().enumerate() {
                work.check()?;
                let period_series = self.period_series(index, series);
                if counter.value.is_some() {
                    let values = activity::count_values(&rows, &columns, period, work)?;
                    counts.add_values(period_series, values);
                } else {
                    let criterion = self.query.criterion;
                    let actors = partition.actors.len();
                    let active = activity::count_active_intervals(&rows, actors, period, criterion, work)?;
                    counts.add_actors(period_series, active.into_iter());
                }
            }
        }
        if counts.over_budget { Err(limits::too_much_memory()) } else { Ok(counts) }
    }

    fn merge(left: StickinessCounts, right: StickinessCounts) -> StickinessCounts {
        left.merge(right)
    }

    fn finish(&self, mut counts: StickinessCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        if counts.over_budget {
            return Err(limits::too_much_memory());
        }
        let bars = |period: usize, series: usize| {
            let bars = self.periods.get(period).map_or(0, |period| period.bars);
            counts.take_bars(self.period_series(period, series), self.query.criterion, bars)
        };
        Ok(result::build_series(self, bars).into())
    }

    fn finish_rows(&self, rows: &SqlRows<'_>, work: &WorkBudget<'_>) -> Result<QueryOutput, RowsError> {
        let bars = self.periods.first().map_or(0, |period| period.bars);
        let mut counts = StickinessCounts::default();
        for (series, bars) in clickhouse_rows::read(rows, &self.query, bars)?.into_iter().enumerate() {
            counts.set_bars(self.period_series(0, series), bars);
        }
        Ok(self.finish(counts, work)?)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &StickinessPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledStickiness {
    /// The kind of partitions that a series is counted on.
    pub(crate) fn series_actor_kind(&self, series: usize) -> ActorKind {
        let counter = self.counters.get(series).and_then(Option::as_ref);
        counter.map_or_else(ActorKind::default, |counter| counter.actor_kind)
    }

    /// Index of a series in a period, as a key of [`StickinessCounts`].
    fn period_series(&self, period: usize, series: usize) -> usize {
        period * self.counters.len() + series
    }

    /// The rows of each run that pass the query's common filters.
    fn shared_masks(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<Mask>> {
        partition.runs.iter().map(|run| self.shared.mask(run, work)).collect()
    }
}

/// The runs with rows of a series.
fn matching_rows<'a>(
    counter: &SeriesCounter,
    partition: &'a Partition,
    shared: &[Mask],
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<MatchingRows<'a>>> {
    let mut rows = Vec::new();
    for (run, shared) in partition.runs.iter().zip(shared) {
        work.check()?;
        if *shared == Mask::Nothing {
            continue;
        }
        let mask = counter.matcher.mask(run, work)?.and(shared.clone());
        if mask != Mask::Nothing {
            rows.push(MatchingRows { run, mask });
        }
    }
    Ok(rows)
}
