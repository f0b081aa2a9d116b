//! Counts the partitions of a scan on all cores, off the threads that answer requests.
//!
//! Must stay true: nothing here blocks a thread of the runtime; work stops soon after nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::error::{ApiError, ApiResult};
use pennon_engine::scan::Partition;
use pennon_engine::{Answer, CalcResult, Facts, Partial, Plan};
use pennon_eventstore::{QuestionMemory, ThreadMeter};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::measure::Measured;
use crate::errors::{refusal, unreadable};

/// Tells the threads of a calculation to stop, when its time is up or when this is dropped.
#[derive(Debug)]
pub(super) struct Stop {
    deadline: Instant,
    dropped: Arc<AtomicBool>,
    measured: Option<Measured>,
}

impl Stop {
    pub(super) fn at(deadline: Instant) -> Stop {
        Stop { deadline, dropped: Arc::default(), measured: None }
    }

    /// The same, which notes how far the calculation is.
    pub(super) fn noting(mut self, measured: Option<Measured>) -> Stop {
        self.measured = measured;
        self
    }

    /// The question that the engine asks now and then.
    pub(super) fn is_due(&self) -> impl Fn() -> bool + Send + 'static {
        let (deadline, dropped) = (self.deadline, self.dropped.clone());
        move || dropped.load(Ordering::Relaxed) || Instant::now() >= deadline
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// What was gathered for a plan.
pub(super) struct Gathered {
    pub partitions: Vec<Partition>,
    pub facts: Facts,
    /// What is reserved for it, and from which counting reserves.
    pub memory: QuestionMemory,
}

/// Runs a part of a calculation on the current thread, and reserves from `memory` what it allocates. Where that does not
/// fit, `work` is told that its time is up, and the error says why.
pub(super) fn measured<T>(
    memory: &QuestionMemory,
    is_due: &dyn Fn() -> bool,
    work: impl FnOnce(&dyn Fn() -> bool) -> CalcResult<T>,
) -> ApiResult<T> {
    let meter = ThreadMeter::start(memory);
    let done = work(&|| meter.is_over_budget() || is_due());
    meter.finish().map_err(unreadable)?;
    done.map_err(refusal)
}

/// The answer of `plan` over what was gathered. `turn` is held until the last thread has stopped.
pub(super) async fn answer(
    plan: Arc<Plan>,
    gathered: Gathered,
    stop: &Stop,
    turn: Arc<OwnedSemaphorePermit>,
) -> ApiResult<Answer> {
    let add = |sum: Partial, plan: &Plan, partition: &Partition, is_due: &dyn Fn() -> bool| {
        Ok(sum.merge(plan.partial(partition, is_due)?))
    };
    let memory = gathered.memory.clone();
    let parts = over(plan.clone(), gathered, stop, turn.clone(), add).await?;
    let is_due = stop.is_due();
    let finished = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        measured(&memory, &is_due, |is_due| {
            let mut sum = Partial::default();
            for part in parts {
                // The plan looks first, and finishes nothing then.
                if is_due() {
                    break;
                }
                sum = sum.merge(part);
            }
            plan.finish(sum, is_due)
        })
    });
    finished.await.map_err(|error| ApiError::internal(&error))?
}

/// Goes over the partitions, facts joined, on all cores: `add` takes one of them into a part of the sum.
pub(super) async fn over<T, F>(
    plan: Arc<Plan>,
    gathered: Gathered,
    stop: &Stop,
    turn: Arc<OwnedSemaphorePermit>,
    add: F,
) -> ApiResult<Vec<T>>
where
    T: Default + Send + 'static,
    F: Fn(T, &Plan, &Partition, &dyn Fn() -> bool) -> CalcResult<T> + Clone + Send + 'static,
{
    let Gathered { partitions, facts, memory } = gathered;
    let joining = (plan.clone(), turn.clone(), stop.is_due(), memory.clone());
    let joined = tokio::task::spawn_blocking(move || {
        let (plan, _turn, is_due, memory) = joining;
        measured(&memory, &is_due, |is_due| plan.join(partitions, facts, is_due))
    });
    let partitions = joined.await.map_err(|error| ApiError::internal(&error))??;
    let workers = cores().min(partitions.len());
    let queue = Arc::new(Mutex::new(partitions.into_iter()));
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (plan, queue, is_due, turn, add) =
            (plan.clone(), queue.clone(), stop.is_due(), turn.clone(), add.clone());
        let (noted, memory) = (stop.measured.clone(), memory.clone());
        tasks.spawn_blocking(move || {
            let _turn = turn;
            measured(&memory, &is_due, |is_due| {
                let mut sum = T::default();
                // Each partition is freed when it is done.
                while let Some(partition) = next(&queue) {
                    let begun = Instant::now();
                    sum = add(sum, &plan, &partition, is_due)?;
                    if let Some(noted) = &noted {
                        let rows = partition.runs.iter().map(|run| run.times.len() as u64).sum();
                        noted.add_counted(rows, begun.elapsed());
                    }
                }
                Ok(sum)
            })
        });
    }
    let mut parts = Vec::with_capacity(workers);
    while let Some(joined) = tasks.join_next().await {
        parts.push(joined.map_err(|error| ApiError::internal(&error))??);
    }
    Ok(parts)
}

fn next(queue: &Mutex<std::vec::IntoIter<Partition>>) -> Option<Partition> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_calculation_stops_at_its_deadline_and_when_nobody_waits() {
        let stop = Stop::at(Instant::now() + Duration::from_secs(3600));
        let is_due = stop.is_due();
        assert!(!is_due());
        drop(stop);
        assert!(is_due());
        assert!(Stop::at(Instant::now()).is_due()());
    }
}
