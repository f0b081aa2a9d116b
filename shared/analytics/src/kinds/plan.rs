//! The stages of a calculation: compile the query, scan, join, compute partial results, merge them, finalize.
//!
//! Must stay true: partial results over disjoint actors can be computed in any order, on any thread, and merged in any
//! order; the final result does not depend on how the actors were partitioned.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use pennon_filters::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::{CompiledQuery, DataPoint, PartitionResult, Query, QueryOutput};
use crate::clickhouse::{RowsError, SqlRows};
use crate::compiler::{Compiler, cohort::CohortRules};
use crate::join::{DataRequirements, JoinData};
use crate::join_derived::derive_join_data;
use crate::people::MatchedActor;
use crate::project::ProjectContext;
use crate::repartition::repartition_by_actor_kind;
use crate::scan::{ActorKind, Partition, ScanRequest};

/// A compiled query: dates are resolved, filters are compiled.
#[derive(Debug, Clone)]
pub struct Plan {
    needs: DataRequirements,
    actors: BTreeSet<ActorKind>,
    cohorts: CohortRules,
    query: CompiledQuery,
}

impl Query {
    /// Resolves relative dates against `now` and compiles filters.
    pub fn plan(&self, project: &ProjectContext, now: DateTime<Utc>) -> CalcResult<Plan> {
        let range = self.range(project, now)?;
        let mut compiler = Compiler::new(project, now);
        let query = self.compile(project, range, &mut compiler)?;
        let Compiler { needs, actors, cohorts, .. } = compiler;
        Ok(Plan { needs, actors, cohorts, query })
    }
}

impl Plan {
    /// The data that the calculation reads: events, and what is joined to them.
    pub fn needs(&self) -> &DataRequirements {
        &self.needs
    }

    /// The events that the calculation reads.
    pub fn scan(&self) -> &ScanRequest {
        &self.needs.scan
    }

    /// The actor kind that a data point counts; its joined partitions contain actors of this kind. Groups and distinct ids
    /// have keys in joined partitions.
    pub fn actors(&self, point: &DataPoint) -> ActorKind {
        let first = || self.actors.first().copied().unwrap_or_default();
        self.query.actor_kind(point).unwrap_or_else(first)
    }

    /// Whether partial results of disjoint ranges of persons can be calculated apart: all events of an actor are of one person.
    /// The events of a group may be of all persons.
    pub fn is_divisible(&self) -> bool {
        self.actors.iter().all(|kind| matches!(kind, ActorKind::Persons | ActorKind::DistinctIds))
    }

    /// Computes what [`JoinData`] has from events. [`Plan::join`] does it too, if it was not done.
    pub fn derive(&self, mut join_data: JoinData, is_cancelled: &dyn Fn() -> bool) -> CalcResult<JoinData> {
        derive_join_data(&self.needs, &self.cohorts, &mut join_data, &WorkBudget::new(is_cancelled))?;
        Ok(join_data)
    }

    /// Joins `join_data` to the scanned partitions and repartitions them by actor kind, as [`Plan::partial`] expects them.
    /// Takes all partitions at once, because the events of one group or distinct id may lie in all of them.
    /// `is_cancelled` is called as in [`Plan::partial`].
    pub fn join(
        &self,
        mut partitions: Vec<Partition>,
        mut join_data: JoinData,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<Partition>> {
        let work = &WorkBudget::new(is_cancelled);
        derive_join_data(&self.needs, &self.cohorts, &mut join_data, work)?;
        for partition in &mut partitions {
            self.cohorts.join(partition, &self.needs.joined_columns, &join_data, work)?;
        }
        let mut partitions = repartition_by_actor_kind(partitions, &self.actors, work)?;
        if let Some(request) = &self.needs.creations {
            for partition in &mut partitions {
                request.join(partition, join_data.creation_data(), work)?;
            }
        }
        self.query.relate_partitions(partitions, work)
    }

    /// Computes the partial result of one joined partition. `is_cancelled` is called
    /// periodically; `true` ends the calculation with a timeout error.
    pub fn partial(
        &self,
        partition: &Partition,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<PartitionResult> {
        self.query.partial(partition, &WorkBudget::new(is_cancelled))
    }

    /// Lists the actors of one joined partition that count towards a data point, ordered by id;
    /// [`crate::people::union`] merges the lists of all partitions. `is_cancelled` is called as in [`Plan::partial`].
    pub fn people(
        &self,
        partition: &Partition,
        point: &DataPoint,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.query.people(partition, point, &WorkBudget::new(is_cancelled))
    }

    /// Builds the final result from the merged partial results. `PartitionResult::default()` gives the result for no events.
    /// Many series take a while, so this is cancellable as [`Plan::partial`] is.
    pub fn finish(
        &self,
        merged: PartitionResult,
        is_cancelled: &dyn Fn() -> bool,
    ) -> CalcResult<QueryOutput> {
        self.query.finish(merged, &WorkBudget::new(is_cancelled))
    }

    /// Builds the final result from the rows of the statement of [`Query::clickhouse`]. Cancellable as [`Plan::partial`] is.
    pub fn finish_rows(
        &self,
        rows: &SqlRows<'_>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<QueryOutput, RowsError> {
        self.query.finish_rows(rows, &WorkBudget::new(is_cancelled))
    }
}
