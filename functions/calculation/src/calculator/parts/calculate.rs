//! The caller of the parts: splits a query, passes moved rows on, merges the partial results and finishes the query.

use std::sync::Arc;
use std::time::Duration;

use pennon_analytics::{JoinData, PartitionResult, PersonRange, Plan, QueryOutput};
use pennon_core::error::ApiResult;
use pennon_core::request_metrics;
use pennon_eventstore::{MovedRows, PartScan, PinnedScan, QueryMemory};
use tokio::time::Instant;
use uuid::Uuid;

use super::attempts::Attempts;
use super::lease::Lease;
use super::planned_query::PlannedQuery;
use super::settings::PARTS_MAX;
use super::task::{PartFailure, PartOutcome, PartStats, PartTask, QueryText};
use super::{PartInvoker, PartSettings};
use crate::calculator::Calculator;
use crate::calculator::execution::{self, CancellationGuard, ExecutionError};

/// How often a query begins again because an object that it pinned was removed.
const RESTARTS_MAX: u32 = 2;

/// What runs the parts of a calculator's queries. Clones share it.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Runs parts.
    pub invoker: Arc<dyn PartInvoker>,
    /// When to split, and what it may cost.
    pub settings: PartSettings,
}

/// What the tasks of a query share.
struct SharedInputs {
    query_text: QueryText,
    lease: (u64, Uuid),
    deadline: Instant,
}

impl Parts {
    /// When the parts of a query have to be done: in time to calculate it undivided if they fail, and before their invocations, with
    /// some second attempts, have used up what a query may cost.
    fn deadline(&self, query: &PlannedQuery<'_>, count: u32) -> Instant {
        let now = Instant::now();
        let invocations = (count as usize).saturating_mul(2);
        let time_max = self.settings.time_max(self.invoker.memory_gb(), invocations);
        now + time_max.min(query.deadline.saturating_duration_since(now) * 3 / 5)
    }

    /// The number of parts of a query that reads so many rows; `None` if it is not split.
    pub(crate) fn count(&self, plan: &Plan, rows: u64) -> Option<u32> {
        let parts = self.settings.parts(rows);
        (parts > 1 && plan.is_divisible()).then_some(parts)
    }
}

impl Calculator {
    /// Calculates a query in `count` parts, in twice as many if one does not fit into an invocation. `None` if it has no form that
    /// another process understands, or its parts failed: this process may be able to do it, and refuses what does not fit.
    pub(crate) async fn calculate_in_parts(
        &self,
        parts: &Parts,
        query: PlannedQuery<'_>,
        (mut pinned, mut count): (PinnedScan, u32),
        cancellation: &CancellationGuard,
        memory: &QueryMemory,
    ) -> ApiResult<Option<QueryOutput>> {
        let project = query.project;
        let Some(query_text) = QueryText::new(&query) else { return Ok(None) };
        let lease = Lease::begin(&self.records, project.id).await?;
        let shared = SharedInputs { query_text, lease: lease.id, deadline: parts.deadline(&query, count) };
        let mut join_data = self.derived_join_data(&query, cancellation, memory).await?;
        let (mut restarts, mut is_split) = (0, false);
        loop {
            match self.partials(parts, &shared, (&pinned, count), &join_data).await {
                Ok(partials) => {
                    let permit = self.acquire_shared_permit().await?;
                    let (plan, memory) = (query.plan.clone(), memory.clone());
                    let output = execution::finish_plan(plan, partials, memory, cancellation, permit).await?;
                    return Ok(Some(output));
                }
                Err(PartFailure::TooLarge(cause)) if !is_split && count < PARTS_MAX => {
                    tracing::info!(project = project.id, cause, "a query begins again with smaller parts");
                    is_split = true;
                    count = (count * 2).min(PARTS_MAX);
                }
                Err(PartFailure::Unreadable(cause)) if restarts < RESTARTS_MAX => {
                    tracing::warn!(project = project.id, cause, "a query in parts begins again");
                    restarts += 1;
                    pinned = self.pin(project, query.plan.scan(), memory).await?;
                    join_data = self.derived_join_data(&query, cancellation, memory).await?;
                }
                Err(failure) => {
                    if let Some(error) = failure.final_error() {
                        return Err(error);
                    }
                    tracing::warn!(project = project.id, ?failure, "the parts of a query failed");
                    return Ok(None);
                }
            }
        }
    }

    /// The data that is joined to the events of all parts.
    async fn derived_join_data(
        &self,
        query: &PlannedQuery<'_>,
        cancellation: &CancellationGuard,
        memory: &QueryMemory,
    ) -> ApiResult<JoinData> {
        let lists = &query.used.cohort_lists;
        let join_data = self.load_join_data(query.project, query.plan.needs(), lists, memory).await?;
        let permit = self.acquire_shared_permit().await?;
        let (plan, memory, is_cancelled) =
            (query.plan.clone(), memory.clone(), cancellation.cancellation_check());
        let derived = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            execution::metered(&memory, &is_cancelled, |is_cancelled| plan.derive(join_data, is_cancelled))
        });
        Ok(derived.await.map_err(ExecutionError::from)??)
    }

    /// The partial results of all parts.
    async fn partials(
        &self,
        parts: &Parts,
        shared: &SharedInputs,
        (pinned, count): (&PinnedScan, u32),
        join_data: &JoinData,
    ) -> Result<Vec<PartitionResult>, PartFailure> {
        let time_left = shared.deadline.saturating_duration_since(Instant::now());
        let attempts = Attempts {
            invoker: parts.invoker.as_ref(),
            at_once: parts.settings.at_once,
            deadline: shared.deadline,
            time: time_left / 2,
        };
        let ranges = PersonRange::ALL.split(count);
        let moved = match pinned.has_merges() {
            true => moved_rows(attempts, shared, pinned, &ranges).await?,
            false => Vec::new(),
        };
        let tasks = shared.tasks(pinned.parts(&ranges, &moved), Some(join_data))?;
        let (mut partials, mut stats) = (Vec::with_capacity(tasks.len()), PartStats::default());
        for outcome in attempts.run(&tasks, |outcome| self.record_part(outcome, &mut stats)).await? {
            match outcome? {
                PartOutcome::Partial(partial, _) => partials.push(*partial),
                _ => return Err(PartFailure::OtherRelease),
            }
        }
        tracing::info!(
            parts = count,
            rows = stats.rows,
            bytes_read = stats.bytes_read,
            gets = stats.gets,
            busy_micros = stats.busy_micros,
            "a query was calculated in parts"
        );
        Ok(partials)
    }

    /// Adds what a part has read to the log line and the progress of its query.
    fn record_part(&self, outcome: &PartOutcome, sum: &mut PartStats) {
        let PartOutcome::Partial(_, stats) = outcome else { return };
        sum.rows += stats.rows;
        sum.bytes_read += stats.bytes_read;
        sum.gets += stats.gets;
        sum.busy_micros += stats.busy_micros;
        request_metrics::record(|metrics| {
            metrics.add_bytes_read(stats.bytes_read);
            metrics.add_gets(stats.gets);
        });
        if let Some(metrics) = &self.metrics {
            metrics.add_part(stats.rows, stats.bytes_read, Duration::from_micros(stats.busy_micros));
        }
    }
}

/// The rows that parts find for persons of other parts, from each part.
async fn moved_rows(
    attempts: Attempts<'_>,
    shared: &SharedInputs,
    pinned: &PinnedScan,
    ranges: &[PersonRange],
) -> Result<Vec<MovedRows>, PartFailure> {
    let tasks = shared.tasks(pinned.parts_for_moved_rows(ranges), None)?;
    let mut moved = Vec::with_capacity(tasks.len());
    for outcome in attempts.run(&tasks, |_| ()).await? {
        match outcome? {
            PartOutcome::Moved(rows) => moved.push(rows),
            _ => return Err(PartFailure::OtherRelease),
        }
    }
    Ok(moved)
}

impl SharedInputs {
    /// The encoded tasks of some parts.
    fn tasks(&self, scans: Vec<PartScan>, join_data: Option<&JoinData>) -> Result<Vec<Vec<u8>>, PartFailure> {
        let millis = self.deadline.saturating_duration_since(Instant::now()).as_millis();
        let tasks = scans.into_iter().map(|scan| {
            let range = scan.range();
            let task = PartTask {
                query_text: self.query_text.clone(),
                scan,
                joined: join_data.map(|join_data| join_data.stored(range)),
                lease: self.lease,
                millis: u64::try_from(millis).unwrap_or(u64::MAX),
            };
            task.encode().map_err(|error| PartFailure::Transient(error.to_string()))
        });
        tasks.collect()
    }
}
