//! Jobs of a batch of the stream, and those that are left over, side by side within the time of an invocation.
//!
//! Must stay true: what is told to come again has not ended; nothing that has ended is told to; a job that fails or
//! panics holds up no other of its batch.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pennon_calculation::Calculator;
use pennon_calculation::jobs::{JobKey, JobLimits, Outcome, left_over};
use pennon_core::store::{StoreError, Table};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::events::Record;

/// No job begins with less time than this.
const LEAST_TIME: Duration = Duration::from_secs(20);

/// Works on the jobs that `records` of the stream tell of, until `end`. Returns the numbers of those that have to come
/// again.
pub async fn run_told(calculator: &Calculator, records: Vec<Record>, end: Instant) -> Vec<String> {
    let jobs = records.into_iter().filter_map(|record| {
        let row = record.inserted?;
        Some((record.number, JobKey::parse(&row.pk, &row.sk)?))
    });
    work_on(calculator, jobs.collect(), end).await
}

/// Works on the jobs that wait although the stream has told of them: their workers died, or gave up. Until `end`; what is
/// not done by then waits for the next run.
pub async fn run_left_over(calculator: &Calculator, records: &Table, end: Instant) -> Result<(), StoreError> {
    let jobs = left_over(records).await?.into_iter().map(|job| (job, job)).collect();
    let again = work_on(calculator, jobs, end).await;
    if !again.is_empty() {
        tracing::warn!(jobs = ?again, "jobs wait for the next run");
    }
    Ok(())
}

async fn work_on<N>(calculator: &Calculator, jobs: Vec<(N, JobKey)>, end: Instant) -> Vec<N> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let limits = JobLimits::default();
    let turns = Turns { at_once: cores.max(2), most: limits.time, least: LEAST_TIME, end };
    let calculator = calculator.clone();
    side_by_side(jobs, turns, move |job, time| {
        let calculator = calculator.clone();
        async move { calculator.run_job(job, JobLimits { time, ..limits }).await != Outcome::Again }
    })
    .await
}

/// When jobs have their turn.
#[derive(Debug, Clone, Copy)]
struct Turns {
    /// How many at the same time.
    at_once: usize,
    /// The time of one.
    most: Duration,
    /// None begins with less.
    least: Duration,
    /// When all of them are over.
    end: Instant,
}

/// Runs `run` with each of `jobs` and the time it has. Returns the names of those that have not ended.
async fn side_by_side<N, J, F>(
    jobs: Vec<(N, J)>,
    turns: Turns,
    run: impl Fn(J, Duration) -> F + Send + Sync + 'static,
) -> Vec<N>
where
    J: Send + 'static,
    F: Future<Output = bool> + Send,
{
    let (slots, run) = (Arc::new(Semaphore::new(turns.at_once)), Arc::new(run));
    let mut tasks = JoinSet::new();
    let mut names = HashMap::new();
    for (name, job) in jobs {
        let (slots, run) = (slots.clone(), run.clone());
        let task = tasks.spawn(async move {
            let work = async {
                // Nobody closes it.
                let _slot = slots.acquire_owned().await;
                let left = turns.end.saturating_duration_since(Instant::now());
                left >= turns.least && Box::pin(run(job, left.min(turns.most))).await
            };
            tokio::time::timeout_at(turns.end, work).await.unwrap_or(false)
        });
        names.insert(task.id(), name);
    }
    while let Some(ended) = tasks.join_next_with_id().await {
        match ended {
            Ok((id, true)) => {
                names.remove(&id);
            }
            Ok((_, false)) => {}
            Err(error) => tracing::error!(%error, "a job panicked"),
        }
    }
    names.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn turns(at_once: usize, end: Instant) -> Turns {
        Turns { at_once, most: HOUR / 2, least: Duration::ZERO, end }
    }

    #[tokio::test]
    async fn those_that_did_not_end_come_again() {
        let jobs = vec![(1, "done"), (2, "again"), (3, "panics"), (5, "done")];
        let mut again = side_by_side(jobs, turns(2, Instant::now() + HOUR), |job, time| async move {
            assert_eq!(time, HOUR / 2);
            assert_ne!(job, "panics", "as it was told");
            job == "done"
        })
        .await;
        again.sort_unstable();
        assert_eq!(again, [2, 3]);
    }

    #[tokio::test]
    async fn those_that_run_when_the_time_is_over_come_again() {
        let jobs = vec![(1, ()), (2, ())];
        let over = side_by_side(jobs, turns(1, Instant::now()), |(), _| std::future::pending()).await;
        assert_eq!(over.len(), 2);
    }

    #[tokio::test]
    async fn none_begins_that_has_too_little_time() {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = begun.clone();
        let turns = Turns { least: 2 * HOUR, ..turns(2, Instant::now() + HOUR) };
        let again = side_by_side(vec![("a", ()), ("b", ())], turns, move |(), _| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(true)
        })
        .await;
        assert_eq!((again.len(), begun.load(Ordering::SeqCst)), (2, 0));
    }

    #[tokio::test]
    async fn no_more_run_at_once_than_may() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (running, seen) = (now.clone(), most.clone());
        let jobs = (0..9).map(|name| (name, ())).collect();
        let again = side_by_side(jobs, turns(3, Instant::now() + HOUR), move |(), _| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                true
            }
        })
        .await;
        assert!(again.is_empty());
        assert_eq!((running.load(Ordering::SeqCst), seen.load(Ordering::SeqCst)), (0, 3));
    }
}
