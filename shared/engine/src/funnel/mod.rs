//! Funnels: who gets how far through steps, and how long it takes.
//!
//! Must stay true: the pass over the events yields one outcome for each actor and value of the breakdown ([`Outcome`], or
//! the periods of its entries); counts, times, lists of people and correlation are folds over these.

mod direct;
mod gaps;
mod lane;
mod marks;
mod merge;
mod people;
mod periods;
mod queues;
mod rank;
mod result;
mod rows;
pub mod scan;
mod step_values;
mod strict;
#[cfg(test)]
mod tests;
mod values;
mod walk;

use serde_json::Value;

use crate::dates::buckets::Buckets;
use crate::dates::range::DateRange;
use crate::definitions::Definitions;
use crate::error::CalcResult;
use crate::plan::{Compiler, ProjectContext};
use crate::query::{FunnelsQuery, Viz};
use crate::regroup::ActorKind;
use crate::scan::{Micros, Partition};
use crate::work::WorkBudget;
use marks::Marker;
pub(crate) use people::point;
pub use people::{FunnelPoint, Which};
use periods::Goal;
pub use result::unbox_breakdown;
pub(crate) use rows::Rows;
use values::Split;

/// A funnel made ready.
#[derive(Debug, Clone)]
pub(crate) struct Funnel {
    query: FunnelsQuery,
    project_id: String,
    range: DateRange,
    bounds: (Micros, Micros),
    /// Periods of entrance; none where nothing is told over time.
    buckets: Option<Buckets>,
    definitions: Definitions,
    marker: Marker,
    split: Split,
}

/// How far an actor got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    /// Index into the partition's actors.
    pub(crate) actor: u32,
    /// Code of the value of the breakdown that it counts under; 0 without one.
    pub(crate) value: u32,
    /// When each step of its path was taken, optional ones left out; at least one. In any order: ascending.
    pub(crate) times: &'a [Micros],
    /// One bit a step that counts as reached.
    pub(crate) steps: u32,
}

impl Funnel {
    pub(crate) fn new(
        query: &FunnelsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        compiler.count(ActorKind::of(project, query.group_type_index));
        let bounds = (range.from.timestamp_micros(), range.to.timestamp_micros());
        compiler.cover(bounds.0, bounds.1);
        let marker = Marker::new(query, project, compiler)?;
        // Times are told of everybody together.
        let split = if query.viz == Viz::TimeToConvert { Split::Whole } else { Split::new(query, compiler)? };
        let buckets = match query.viz {
            Viz::Trends => Some(Buckets::new(&range, query.common.interval, project.week_start)?),
            Viz::Steps | Viz::TimeToConvert => None,
        };
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        Ok(Self { query: query.clone(), project_id, range, bounds, buckets, definitions, marker, split })
    }

    pub(crate) fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Rows> {
        match (&self.buckets, self.query.viz) {
            (Some(buckets), _) => self.period_rows(buckets, partition, work),
            (None, Viz::TimeToConvert) => self.time_rows(partition, work),
            (None, _) => self.step_rows(partition, work),
        }
    }

    pub(crate) fn finish(&self, sum: Rows, work: &WorkBudget<'_>) -> CalcResult<Value> {
        work.check()?;
        Ok(match (&self.buckets, self.query.viz) {
            (Some(buckets), _) => result::periods::series(self, buckets, sum),
            (None, Viz::TimeToConvert) => result::bins::bins(&self.query, sum),
            (None, _) => {
                self.check_rows(&sum)?;
                result::steps::steps(self, sum, work)?
            }
        })
    }

    /// Calls back for everybody with a path, unless an exclusion voids what was done. For funnels without a breakdown.
    pub(crate) fn each_outcome(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
        back: impl FnMut(Outcome<'_>),
    ) -> CalcResult<()> {
        self.outcomes(partition, work, back).map(drop)
    }

    /// The depths of an entry and of a conversion.
    fn goal(&self) -> Goal {
        let (from, to) = self.query.step_range();
        Goal { from: from + 1, to: to + 1 }
    }
}
