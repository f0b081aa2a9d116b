//! Runs a part: in a function that another one invokes, or in a process beside a server.

use std::sync::Arc;
use std::time::Duration;

use pennon_analytics::{JoinData, PartitionResult, Plan};
use pennon_core::error::ApiError;
use pennon_core::request_metrics::{RequestMetrics, with_metrics};
use pennon_eventstore::ScanStats;
use tokio::time::Instant;

use super::lease;
use super::task::{PartFailure, PartOutcome, PartStats, PartTask, PartWork, QueryInputs};
use crate::calculator::execution::{CancellationGuard, ExecutionError, PlanInputs, calculate_partials};
use crate::calculator::first_actors::first_actors;
use crate::calculator::{CalculationMetrics, Calculator, context};

/// Limits of the parts of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    /// Most time of a part, whatever its query has left.
    pub time: Duration,
    /// Most bytes of its encoded outcome.
    pub outcome_bytes_max: usize,
}

impl Calculator {
    /// Runs the part with this encoded task, and returns its encoded outcome.
    pub async fn run_part(&self, task: &[u8], limits: PartLimits) -> Vec<u8> {
        let outcome = match PartTask::decode(task) {
            Ok(task) => {
                let metrics = Arc::new(RequestMetrics::new(false));
                // Boxed: the futures of scans are large.
                let work = Box::pin(with_metrics(metrics.clone(), self.run_decoded_part(task, limits)));
                match work.await {
                    Ok(outcome) => outcome.with_gets(metrics.gets()),
                    Err(failure) => PartOutcome::Failed(failure),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a part could not be decoded");
                PartOutcome::Failed(PartFailure::OtherRelease)
            }
        };
        match encode(&outcome) {
            bytes if bytes.len() <= limits.outcome_bytes_max => bytes,
            bytes => encode(&PartOutcome::Failed(PartFailure::TooLarge(format!(
                "The result of a part of the query takes {} bytes; at most {} are returned. Narrow the breakdown or the dates.",
                bytes.len(),
                limits.outcome_bytes_max
            )))),
        }
    }

    async fn run_decoded_part(&self, task: PartTask, limits: PartLimits) -> Result<PartOutcome, PartFailure> {
        let deadline = Instant::now() + limits.time.min(Duration::from_millis(task.millis));
        let metrics = CalculationMetrics::default();
        let cancellation = CancellationGuard::until(deadline).with_metrics(Some(metrics.clone()));
        let lease = task.lease;
        let work = self.calculate_part(task, &cancellation, &metrics);
        tokio::select! {
            outcome = work => outcome,
            () = lease::watch(&self.records, lease) => {
                Err(PartFailure::Transient("the query of the part has ended".to_owned()))
            }
            () = tokio::time::sleep_until(deadline) => {
                Err(PartFailure::Transient("the part did not end in time".to_owned()))
            }
        }
    }

    async fn calculate_part(
        &self,
        task: PartTask,
        cancellation: &CancellationGuard,
        metrics: &CalculationMetrics,
    ) -> Result<PartOutcome, PartFailure> {
        let PartTask { query_text, scan, work, .. } = task;
        // A process for one part does one thing at a time.
        let permit = self.acquire_shared_permit().await?;
        let memory = self.events().query_memory();
        let (joined, listed) = match work {
            PartWork::FindMovedRows => {
                let (moved, stats) = self.events().moved_rows(scan, &memory).await?;
                return Ok(PartOutcome::Moved(moved, PartStats::of(stats, metrics)));
            }
            PartWork::Calculate(joined) => (joined, None),
            PartWork::ListActors { joined, point, kept } => (joined, Some((point, kept))),
        };
        // Off the runtime's threads: compiling many patterns takes a while.
        let plan = tokio::task::spawn_blocking(move || query_text.parse().map(QueryInputs::plan));
        let plan = plan.await.map_err(ExecutionError::from)?;
        let plan = Arc::new(plan.ok_or(PartFailure::OtherRelease)??);
        if plan.scan() != scan.request() {
            return Err(PartFailure::OtherRelease);
        }
        let scan = self.events().scan_part(scan, &memory).await?;
        let join_data = JoinData::try_from(joined).map_err(|_| PartFailure::OtherRelease)?;
        let inputs = PlanInputs { partitions: scan.partitions, join_data, memory };
        if let Some((point, kept)) = listed {
            let kept = kept.map(|kept| usize::try_from(kept).unwrap_or(usize::MAX));
            let first = first_actors(plan, inputs, (point, kept), cancellation, permit).await?;
            return Ok(PartOutcome::Actors(first, PartStats::of(scan.stats, metrics)));
        }
        let partials = calculate_partials(plan, inputs, cancellation, permit).await?;
        let partial = partials.into_iter().fold(PartitionResult::default(), PartitionResult::merge);
        Ok(PartOutcome::Partial(Box::new(partial), PartStats::of(scan.stats, metrics)))
    }
}

impl PartStats {
    /// What a scan has read, and how long the threads of its part calculated; without requests to the object store.
    fn of(scan: ScanStats, metrics: &CalculationMetrics) -> PartStats {
        let busy_micros = metrics.progress(Duration::ZERO).active_cpu_time;
        PartStats { rows: scan.rows, bytes_read: scan.bytes_read, busy_micros, gets: 0 }
    }
}

fn encode(outcome: &PartOutcome) -> Vec<u8> {
    outcome.encode().unwrap_or_else(|error| {
        tracing::error!(%error, "the outcome of a part could not be encoded");
        Vec::new()
    })
}

impl QueryInputs {
    fn plan(self) -> Result<Plan, PartFailure> {
        let mut context = context(&self.project, self.definitions)?;
        context.earliest_event = self.earliest;
        Ok(self.query.plan(&context, self.now)?)
    }
}

impl From<ExecutionError> for PartFailure {
    fn from(error: ExecutionError) -> PartFailure {
        match error {
            ExecutionError::Memory(error) => error.into(),
            ExecutionError::Engine(error) => error.into(),
            ExecutionError::Thread(error) => PartFailure::Transient(error.to_string()),
        }
    }
}

impl From<ApiError> for PartFailure {
    fn from(error: ApiError) -> PartFailure {
        PartFailure::Transient(error.detail().to_owned())
    }
}
