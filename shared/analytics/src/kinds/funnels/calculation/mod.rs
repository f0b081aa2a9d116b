//! Funnels: how many actors reach each step, and how long it takes them.
//!
//! [`CompiledFunnel`] holds the compiled query. For each actor, [`actor_scan`] merges its events from all runs and feeds
//! them to a scanner: [`scan`] (ordered and strict), [`unordered`], [`periods`] (over time) or [`step_values`] (attributed
//! to a step). [`one_run_per_step`] and [`strict`] are fast paths.
//!
//! Must stay true: a scan yields one outcome per actor and breakdown value ([`Outcome`], or the entries of periods).
//! Counts, conversion times, people lists and correlation are folds over these.

mod actor_scan;
mod breakdown;
mod cursor;
mod gaps;
mod k_way_merge;
mod one_run_per_step;
mod people;
mod periods;
mod result;
mod row_limit;
mod rows;
pub mod scan;
mod step_matcher;
mod step_values;
mod strict;
#[cfg(test)]
mod tests;
mod unordered;

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::DateRange;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};

use crate::clickhouse::{RowsError, SqlRows};
use crate::compiler::Compiler;
use crate::definitions::Definitions;
use crate::kinds::QueryOutput;
use crate::kinds::funnels::clickhouse_rows::{self, FunnelNumbers};
use crate::kinds::funnels::{FunnelVizType, FunnelsQuery};
use crate::kinds::insight::CompiledInsight;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::scan::{Micros, Partition};
use breakdown::FunnelBreakdown;
pub use people::{ActorOutcome, FunnelPoint};
use periods::ConversionDepths;
pub use result::unwrap_single_breakdown_values;
pub use rows::FunnelRows;
use step_matcher::StepMatcher;

/// A funnels query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledFunnel {
    query: FunnelsQuery,
    project_id: String,
    range: DateRange,
    bounds: (Micros, Micros),
    /// Entry periods, for funnels over time.
    buckets: Option<Buckets>,
    definitions: Definitions,
    step_matcher: StepMatcher,
    breakdown: FunnelBreakdown,
}

/// The steps that an actor reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// Index into the partition's actors.
    pub(crate) actor: u32,
    /// Code of the breakdown value that it counts under; 0 without a breakdown.
    pub(crate) value: u32,
    /// The times of the required steps of its path, at least one. Ascending for unordered funnels.
    pub(crate) times: &'a [Micros],
    /// One bit per reached step.
    pub(crate) steps: u32,
}

impl CompiledInsight for CompiledFunnel {
    type Query = FunnelsQuery;
    type Partial = FunnelRows;
    type DataPoint = FunnelPoint;

    fn compile(
        query: &FunnelsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        compiler.add_actor_kind(project.actor_kind(query.group_type_index));
        let bounds = (range.from.timestamp_micros(), range.to.timestamp_micros());
        compiler.extend_time_range(bounds.0, bounds.1);
        let step_matcher = StepMatcher::new(query, project, compiler)?;
        // Conversion times are not broken down.
        let breakdown = if query.viz == FunnelVizType::TimeToConvert {
            FunnelBreakdown::None
        } else {
            FunnelBreakdown::new(query, compiler)?
        };
        let buckets = match query.viz {
            FunnelVizType::Trends => Some(Buckets::new(&range, query.common.interval, project.week_start)?),
            FunnelVizType::Steps | FunnelVizType::TimeToConvert => None,
        };
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        Ok(Self {
            query: query.clone(),
            project_id,
            range,
            bounds,
            buckets,
            definitions,
            step_matcher,
            breakdown,
        })
    }

    fn parse_data_point(query: &FunnelsQuery, request: &Map<String, Value>) -> CalcResult<FunnelPoint> {
        people::parse_point(query, request)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<FunnelRows> {
        match (&self.buckets, self.query.viz) {
            (Some(buckets), _) => self.count_periods(buckets, partition, work),
            (None, FunnelVizType::TimeToConvert) => self.collect_conversion_times(partition, work),
            (None, _) => self.count_steps(partition, work),
        }
    }

    fn merge(left: FunnelRows, right: FunnelRows) -> FunnelRows {
        left.merge(right)
    }

    fn finish(&self, rows: FunnelRows, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        let result = match (&self.buckets, self.query.viz) {
            (Some(buckets), _) => result::periods::build_series(self, buckets, rows),
            (None, FunnelVizType::TimeToConvert) => result::bins::build_histogram(&self.query, rows),
            (None, _) => {
                self.check_rows(&rows)?;
                result::steps::build_steps(self, rows, work)?
            }
        };
        Ok(result.into())
    }

    fn finish_rows(&self, rows: &SqlRows<'_>, work: &WorkBudget<'_>) -> Result<QueryOutput, RowsError> {
        let FunnelNumbers { mut rows, value_count } = clickhouse_rows::read(rows, &self.query)?;
        work.check()?;
        let result = if self.query.common.breakdown.is_some() {
            let kept_values = row_limit::sort_limited_rows(&mut rows, value_count > self.limit());
            result::steps::build_rows(self, rows.into_iter(), kept_values.as_deref(), work)?
        } else {
            let numbers = rows.pop().map(|(_, numbers)| numbers).unwrap_or_default();
            result::steps::build_only_row(self, numbers)
        };
        Ok(result.into())
    }

    fn people(
        &self,
        partition: &Partition,
        point: &FunnelPoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledFunnel {
    /// Calls back for every actor that reached a step and is not excluded. For funnels without a breakdown.
    pub(crate) fn for_each_outcome(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        callback: impl FnMut(Outcome<'_>),
    ) -> CalcResult<()> {
        self.outcomes(partition, work, callback).map(drop)
    }

    /// The number of steps of an entry and of a conversion.
    fn conversion_depths(&self) -> ConversionDepths {
        let (from, to) = self.query.step_range();
        ConversionDepths { from: from + 1, to: to + 1 }
    }
}
