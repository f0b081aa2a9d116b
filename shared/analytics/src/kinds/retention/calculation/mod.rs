//! Retention: how many actors start in each period, and how many of them return in the periods after it.
//!
//! [`CompiledRetention`] holds the compiled query. `partial` counts the cells of one partition ([`RetentionCounts`]), partial
//! results merge in any order, and `finish` builds the rows of the result.
//!
//! Must stay true: an actor is read once per layer of the breakdown, with all of its events; the numbers and the lists of
//! people come from the same code ([`history`]).

mod columns;
mod counts;
mod history;
mod layers;
mod people;
mod result;
mod retention_point;
mod window_clock;

use pennon_filters::dates::range::DateRange;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use super::options::{RetentionType, TimeWindowMode};
use super::periods::Periods;
use super::{RetentionQuery, limits};
use crate::actor_blocks::ActorBlocks;
use crate::breakdown::BreakdownReader;
use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::filter::{Filter, Predicate};
use crate::kinds::QueryOutput;
use crate::kinds::insight::CompiledInsight;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::query::{BreakdownBy, CohortChoice, EventOrAction, NumberSource, Series};
use crate::scan::{ActorKind, ColumnKey, ColumnRef, JoinedColumnKey, Micros, Partition};
use columns::CohortColumns;
use counts::CellTable;
pub use counts::RetentionCounts;
use history::{ActorHistory, CountedStart};
use layers::{LayerRun, PartitionRows, RetentionBreakdown};
pub use retention_point::RetentionPoint;
use window_clock::WindowClock;

/// About as many rows are in a block of actors.
const BLOCK_ROWS: usize = 1 << 14;

/// A retention query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledRetention {
    query: RetentionQuery,
    project_id: String,
    range: DateRange,
    periods: Periods,
    columns: CohortColumns,
    /// Measures the time to a return, where that is not counted in periods.
    window_clock: Option<WindowClock>,
    shared: Predicate,
    target: Matcher,
    /// The target without its own filters; only for first-ever retention.
    unfiltered_target: Option<Matcher>,
    returning: Matcher,
    has_same_entity: bool,
    breakdown: RetentionBreakdown,
    /// The column of the numbers that are added up.
    number: Option<ColumnRef>,
}

impl CompiledInsight for CompiledRetention {
    type Query = RetentionQuery;
    type Partial = RetentionCounts;
    type DataPoint = RetentionPoint;

    fn compile(
        query: &RetentionQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let periods = Periods::new(&range, query.common.interval, query.column_count())?;
        let shared = compiler.compile_filter(&common_filter(&query.common, project)?, "properties")?;
        let reads_all_time = query.retention_type != RetentionType::Recurring;
        if periods.len() > 0 {
            let (first, last) = periods.bounds();
            compiler.extend_time_range(if reads_all_time { Micros::MIN } else { first }, last);
        }
        // The project's setting to count distinct ids has no effect on retention.
        compiler.add_actor_kind(query.group_type_index.map_or(ActorKind::Persons, ActorKind::Groups));
        let target = compile_entity(query.target(), &query.target().properties, "targetEntity", compiler)?;
        let returning =
            compile_entity(query.returning(), &query.returning().properties, "returningEntity", compiler)?;
        let unfiltered_target = match query.retention_type {
            RetentionType::FirstEver => {
                Some(compile_entity(query.target(), &Filter::none(), "targetEntity", compiler)?)
            }
            _ => None,
        };
        let number = query.aggregation.as_ref().and_then(|aggregation| number_column(&aggregation.number));
        if let Some(key) = &number {
            compiler.require_value(key, "aggregationProperty")?;
        }
        let has_windows = query.time_window_mode == TimeWindowMode::TwentyFourHourWindows;
        let window_clock = (has_windows && periods.len() > 0)
            .then(|| WindowClock::new(query.common.interval, range.from, range.to));
        // Windows of 30 days are shorter than most months.
        let columns = CohortColumns::new(query, 2 * periods.len() + 2);
        Ok(Self {
            project_id: project.project_id.clone(),
            range,
            columns,
            periods,
            window_clock,
            shared,
            target,
            unfiltered_target,
            returning,
            has_same_entity: query.has_same_entity(),
            breakdown: compile_breakdown(query, compiler)?,
            number,
            query: query.clone(),
        })
    }

    fn parse_data_point(query: &RetentionQuery, request: &Map<String, Value>) -> CalcResult<RetentionPoint> {
        retention_point::parse_point(query, request)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<RetentionCounts> {
        let mut rows = PartitionRows::new(self, partition, work)?;
        let texts = std::mem::take(&mut rows.values.texts);
        let mut cells = CellTable::new(self.columns.count(), self.number.is_some());
        self.for_each_start(rows, work, |_, start| {
            if cells.count(start) { Ok(()) } else { Err(limits::too_much_memory()) }
        })?;
        Ok(RetentionCounts::new(texts, cells))
    }

    fn merge(left: RetentionCounts, right: RetentionCounts) -> RetentionCounts {
        left.merge(right)
    }

    fn finish(&self, merged: RetentionCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        self.build_result(&merged, work)
    }

    fn people(
        &self,
        partition: &Partition,
        point: &RetentionPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledRetention {
    /// Returning events that a period needs.
    fn minimum_occurrences(&self) -> usize {
        // The minimum does not apply where numbers are added up.
        if self.number.is_some() { 1 } else { self.query.minimum_occurrences as usize }
    }

    /// Whether each returning event matters, not only the first one of a period.
    fn counts_events(&self) -> bool {
        self.number.is_some() || self.minimum_occurrences() > 1
    }

    /// Whether every start is a return too, and nothing else is.
    fn returns_are_starts(&self) -> bool {
        self.has_same_entity
            && self.query.retention_type == RetentionType::Recurring
            && self.window_clock.is_none()
            && !self.counts_events()
    }

    /// Calls back with each start of each actor of a partition.
    fn for_each_start(
        &self,
        rows: PartitionRows<'_>,
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(u32, &CountedStart<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let (mut history, mut rows_by_actor) = (ActorHistory::default(), Vec::new());
        let actors = rows.actors;
        rows.for_each_layer(work, |runs: &[LayerRun<'_>]| {
            let mut blocks = ActorBlocks::of_rows(runs.iter().map(|run| run.run), actors, BLOCK_ROWS);
            while let Some(block) = blocks.next_block(work)? {
                block.split_by_actor(&mut rows_by_actor, work)?;
                for rows in rows_by_actor.chunk_by(|left, right| left.actor == right.actor) {
                    work.consume(rows.len())?;
                    if history.read(self, (runs, rows), work)? {
                        history.for_each_start(self, work, |start| callback(rows[0].actor, start))?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// Compiles an event or action; an error if the action does not exist.
fn compile_entity(
    series: &Series,
    filters: &Filter,
    attr: &str,
    compiler: &mut Compiler<'_>,
) -> CalcResult<Matcher> {
    let matcher = Matcher::new(&series.event_or_action, filters, compiler, attr)?;
    matcher.ok_or_else(|| match &series.event_or_action {
        EventOrAction::Action(id) => CalcError::invalid(attr, format!("Action ID {id} does not exist!")),
        EventOrAction::Event(_) => CalcError::invalid(attr, "The event cannot be matched."),
    })
}

fn number_column(number: &NumberSource) -> Option<ColumnRef> {
    match number {
        NumberSource::Event(key) => Some(ColumnRef::Event(ColumnKey::Property(key.clone()))),
        NumberSource::Person(key) => Some(ColumnRef::Joined(JoinedColumnKey::Person(key.clone()))),
        // The parser does not make it.
        NumberSource::SessionDuration => None,
    }
}

fn compile_breakdown(query: &RetentionQuery, compiler: &mut Compiler<'_>) -> CalcResult<RetentionBreakdown> {
    const ATTR: &str = "breakdown";
    Ok(match query.common.breakdown.as_ref().map(|breakdown| &breakdown.by) {
        None => RetentionBreakdown::None,
        Some(BreakdownBy::Dimensions { dimensions, .. }) => {
            RetentionBreakdown::Property(BreakdownReader::new(dimensions, compiler, ATTR)?)
        }
        Some(BreakdownBy::Cohorts { choices, .. }) => {
            for choice in choices {
                if let CohortChoice::Cohort(id) = choice {
                    compiler.require_value(&ColumnRef::Joined(JoinedColumnKey::InCohort(*id)), ATTR)?;
                }
            }
            RetentionBreakdown::Cohorts(choices.clone())
        }
    })
}
