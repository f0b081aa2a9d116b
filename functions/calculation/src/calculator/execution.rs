//! Runs a plan over the partitions of a scan on all cores, outside the threads that serve requests.
//!
//! Must stay true: nothing here blocks a thread of the async runtime; work stops soon after it is cancelled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pennon_analytics::scan::Partition;
use pennon_analytics::{JoinData, PartitionResult, Plan, QueryOutput};
use pennon_core::error::{ApiError, ApiResult};
use pennon_eventstore::{EventStoreError, QueryMemory, ThreadMeter};
use pennon_filters::{CalcError, CalcResult};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::CalculationPermit;
use super::metrics::CalculationMetrics;
use crate::errors::{engine_error, event_store_error};

/// Cancels the threads of a calculation at its deadline or when this guard is dropped.
#[derive(Debug)]
pub(crate) struct CancellationGuard {
    deadline: Instant,
    is_dropped: Arc<AtomicBool>,
    metrics: Option<CalculationMetrics>,
}

impl CancellationGuard {
    pub(crate) fn until(deadline: Instant) -> CancellationGuard {
        CancellationGuard { deadline, is_dropped: Arc::default(), metrics: None }
    }

    /// The same guard; the calculation records its progress in `metrics`.
    pub(crate) fn with_metrics(mut self, metrics: Option<CalculationMetrics>) -> CancellationGuard {
        self.metrics = metrics;
        self
    }

    /// When the calculation has to be done.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The check that the engine polls: whether the work is cancelled.
    pub(crate) fn cancellation_check(&self) -> impl Fn() -> bool + Send + 'static {
        let (deadline, is_dropped) = (self.deadline, self.is_dropped.clone());
        move || is_dropped.load(Ordering::Relaxed) || Instant::now() >= deadline
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// The data that a plan runs over.
pub(crate) struct PlanInputs {
    pub partitions: Vec<Partition>,
    pub join_data: JoinData,
    /// The memory reservation of the query; the execution reserves from it too.
    pub memory: QueryMemory,
}

/// Why a calculation over loaded events failed.
#[derive(Debug)]
pub(crate) enum ExecutionError {
    /// It takes too much memory.
    Memory(EventStoreError),
    /// The engine refused or cancelled it.
    Engine(CalcError),
    /// A thread panicked.
    Thread(JoinError),
}

impl From<ExecutionError> for ApiError {
    fn from(error: ExecutionError) -> ApiError {
        match error {
            ExecutionError::Memory(error) => event_store_error(error),
            ExecutionError::Engine(error) => engine_error(error),
            ExecutionError::Thread(error) => ApiError::internal(&error),
        }
    }
}

impl From<JoinError> for ExecutionError {
    fn from(error: JoinError) -> ExecutionError {
        ExecutionError::Thread(error)
    }
}

/// Runs `work` on the current thread and reserves from `memory` what it allocates. If that exceeds the budget, `work` is
/// cancelled and the error has the reason.
pub(crate) fn metered<T>(
    memory: &QueryMemory,
    is_cancelled: &dyn Fn() -> bool,
    work: impl FnOnce(&dyn Fn() -> bool) -> CalcResult<T>,
) -> Result<T, ExecutionError> {
    let meter = ThreadMeter::start(memory);
    let outcome = work(&|| meter.is_over_budget() || is_cancelled());
    meter.finish().map_err(ExecutionError::Memory)?;
    outcome.map_err(ExecutionError::Engine)
}

/// Runs `plan` over `inputs`. `permit` is held until the last thread has stopped.
pub(super) async fn run_plan(
    plan: Arc<Plan>,
    inputs: PlanInputs,
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
) -> ApiResult<QueryOutput> {
    let memory = inputs.memory.clone();
    let partials = calculate_partials(plan.clone(), inputs, cancellation, permit.clone()).await?;
    finish_plan(plan, partials, memory, cancellation, permit).await
}

/// Calculates the partial results of the partitions: one for each thread.
pub(crate) async fn calculate_partials(
    plan: Arc<Plan>,
    inputs: PlanInputs,
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
) -> Result<Vec<PartitionResult>, ExecutionError> {
    let add =
        |partial: PartitionResult, plan: &Plan, partition: &Partition, is_cancelled: &dyn Fn() -> bool| {
            Ok(partial.merge(plan.partial(partition, is_cancelled)?))
        };
    map_partitions(plan, inputs, cancellation, permit, add).await
}

/// Merges partial results and builds the final one.
pub(crate) async fn finish_plan(
    plan: Arc<Plan>,
    partials: Vec<PartitionResult>,
    memory: QueryMemory,
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
) -> ApiResult<QueryOutput> {
    let is_cancelled = cancellation.cancellation_check();
    let finished = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        metered(&memory, &is_cancelled, |is_cancelled| {
            let mut merged = PartitionResult::default();
            for partial in partials {
                // `finish` checks for cancellation first and returns an error then.
                if is_cancelled() {
                    break;
                }
                merged = merged.merge(partial);
            }
            plan.finish(merged, is_cancelled)
        })
    });
    Ok(finished.await.map_err(ExecutionError::from)??)
}

/// Joins the data to the partitions and folds them on all cores: `add` adds one partition to a thread's partial result.
/// Returns one partial result per thread.
pub(super) async fn map_partitions<T, F>(
    plan: Arc<Plan>,
    inputs: PlanInputs,
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
    add: F,
) -> Result<Vec<T>, ExecutionError>
where
    T: Default + Send + 'static,
    F: Fn(T, &Plan, &Partition, &dyn Fn() -> bool) -> CalcResult<T> + Clone + Send + 'static,
{
    let PlanInputs { partitions, join_data, memory } = inputs;
    let join_inputs = (plan.clone(), permit.clone(), cancellation.cancellation_check(), memory.clone());
    let joined = tokio::task::spawn_blocking(move || {
        let (plan, _permit, is_cancelled, memory) = join_inputs;
        metered(&memory, &is_cancelled, |is_cancelled| plan.join(partitions, join_data, is_cancelled))
    });
    let partitions = joined.await??;
    let workers = cores().min(partitions.len());
    let queue = Arc::new(Mutex::new(partitions.into_iter()));
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (plan, queue, is_cancelled, permit, add) =
            (plan.clone(), queue.clone(), cancellation.cancellation_check(), permit.clone(), add.clone());
        let (metrics, memory) = (cancellation.metrics.clone(), memory.clone());
        tasks.spawn_blocking(move || {
            let _permit = permit;
            metered(&memory, &is_cancelled, |is_cancelled| {
                let mut partial = T::default();
                // Each partition is freed as soon as it was added.
                while let Some(partition) = next_partition(&queue) {
                    let started = Instant::now();
                    partial = add(partial, &plan, &partition, is_cancelled)?;
                    if let Some(metrics) = &metrics {
                        let rows = partition.runs.iter().map(|run| run.times.len() as u64).sum();
                        metrics.add_rows(rows, started.elapsed());
                    }
                }
                Ok(partial)
            })
        });
    }
    let mut partials = Vec::with_capacity(workers);
    while let Some(outcome) = tasks.join_next().await {
        partials.push(outcome??);
    }
    Ok(partials)
}

fn next_partition(queue: &Mutex<std::vec::IntoIter<Partition>>) -> Option<Partition> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_calculation_is_cancelled_at_its_deadline_and_when_the_guard_is_dropped() {
        let cancellation = CancellationGuard::until(Instant::now() + Duration::from_secs(3600));
        let is_cancelled = cancellation.cancellation_check();
        assert!(!is_cancelled());
        drop(cancellation);
        assert!(is_cancelled());
        assert!(CancellationGuard::until(Instant::now()).cancellation_check()());
    }
}
