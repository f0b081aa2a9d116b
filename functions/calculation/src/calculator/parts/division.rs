//! Whether a query is calculated in parts, and how this process continues.

use pennon_analytics::PartitionResult;
use pennon_analytics::kinds::DataPoint;
use pennon_core::error::ApiResult;
use pennon_eventstore::{PinnedScan, QueryMemory};

use super::planned_query::PlannedQuery;
use super::task::PartOutcome;
use crate::calculator::execution::CancellationGuard;
use crate::calculator::first_actors::FirstActors;
use crate::calculator::{CalculationPermit, Calculator, Concurrency};

/// What is calculated of a query.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResultKind<'a> {
    /// The partial results of its response.
    Partials,
    /// The first `kept` actors behind a number of it, or all.
    Actors { point: &'a DataPoint, kept: Option<usize> },
}

/// A result of a part.
pub(crate) trait PartResult: Sized + Send {
    /// The result in an outcome, if it has one of this type.
    fn of(outcome: PartOutcome) -> Option<Self>;
}

impl PartResult for PartitionResult {
    fn of(outcome: PartOutcome) -> Option<PartitionResult> {
        match outcome {
            PartOutcome::Partial(partial, _) => Some(*partial),
            _ => None,
        }
    }
}

impl PartResult for FirstActors {
    fn of(outcome: PartOutcome) -> Option<FirstActors> {
        match outcome {
            PartOutcome::Actors(first, _) => Some(first),
            _ => None,
        }
    }
}

/// Who has calculated a query, or will.
pub(crate) enum Division<T> {
    /// The parts: their results, to be merged.
    Calculated { results: Vec<T>, memory: QueryMemory },
    /// This process: the events that were pinned, or `None` for those of now, and what it may use.
    Undivided { pinned: Option<Box<PinnedScan>>, memory: QueryMemory, permit: CalculationPermit },
}

impl Calculator {
    /// Calculates a query in parts if it reads many rows and can be split.
    pub(crate) async fn divide<T: PartResult>(
        &self,
        query: PlannedQuery<'_>,
        result_kind: ResultKind<'_>,
        cancellation: &CancellationGuard,
        (permit, concurrency): (CalculationPermit, Concurrency),
    ) -> ApiResult<Division<T>> {
        let memory = self.events.query_memory();
        let Some(parts) = &self.parts else {
            return Ok(Division::Undivided { pinned: None, memory, permit });
        };
        let scan = self.pin(query.project, query.plan.scan(), &memory).await?;
        let started = match parts.count(query.plan, scan.rows()) {
            Some(count) => {
                self.begin_parts(parts, &query, (scan.rows(), count)).await?.map(|started| (started, count))
            }
            None => None,
        };
        let Some((started, count)) = started else {
            return Ok(Division::Undivided { pinned: Some(Box::new(scan)), memory, permit });
        };
        // Other queries may use the cores of this process while it waits for the parts.
        drop(permit);
        let started = (parts, started);
        let calculated =
            self.calculate_in_parts(started, &query, result_kind, (scan, count), cancellation, &memory);
        if let Some(results) = Box::pin(calculated).await? {
            return Ok(Division::Calculated { results, memory });
        }
        // What was loaded for the parts is loaded again, as of now.
        drop(memory);
        let permit = self.acquire_permit(concurrency).await?;
        Ok(Division::Undivided { pinned: None, memory: self.events.query_memory(), permit })
    }
}
