//! Runs background calculation jobs concurrently within the time of an invocation: those of a stream batch, and abandoned
//! ones.
//!
//! Must stay true: exactly the jobs that have not ended are reported for redelivery; a job that fails or panics does not
//! block the others of its batch.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pennon_calculation::Calculator;
use pennon_calculation::jobs::{JobKey, JobLimits, JobOutcome, left_over};
use pennon_core::store::{StoreError, Table};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::triggers::StreamRecord;

/// A job is not started with less remaining time than this.
const START_TIME_MIN: Duration = Duration::from_secs(20);

/// Runs the jobs whose rows were inserted according to `records` of the stream, until `end`. Returns the sequence numbers of
/// those that have to be delivered again.
pub async fn run_stream_jobs(
    calculator: &Calculator,
    records: Vec<StreamRecord>,
    end: Instant,
) -> Vec<String> {
    let jobs = records.into_iter().filter_map(|record| {
        let row = record.inserted?;
        Some((record.sequence_number, JobKey::parse(&row.pk, &row.sk)?))
    });
    run_jobs(calculator, jobs.collect(), end).await
}

/// Runs abandoned jobs until `end`: the stream has delivered them, but their workers crashed or gave up. Jobs that are not
/// done by then wait for the next run.
pub async fn run_abandoned_jobs(
    calculator: &Calculator,
    records: &Table,
    end: Instant,
) -> Result<(), StoreError> {
    let jobs = left_over(records).await?.into_iter().map(|job| (job, job)).collect();
    let unfinished = run_jobs(calculator, jobs, end).await;
    if !unfinished.is_empty() {
        tracing::warn!(jobs = ?unfinished, "jobs wait for the next run");
    }
    Ok(())
}

async fn run_jobs<N>(calculator: &Calculator, jobs: Vec<(N, JobKey)>, end: Instant) -> Vec<N> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let limits = JobLimits::default();
    let schedule = JobSchedule {
        concurrency: cores.max(2),
        job_time_max: limits.time,
        start_time_min: START_TIME_MIN,
        end,
    };
    let calculator = calculator.clone();
    run_concurrently(jobs, schedule, move |job, time| {
        let calculator = calculator.clone();
        async move { calculator.run_job(job, JobLimits { time, ..limits }).await != JobOutcome::Retry }
    })
    .await
}

/// Concurrency and time limits of a set of jobs.
#[derive(Debug, Clone, Copy)]
struct JobSchedule {
    /// How many jobs run at the same time.
    concurrency: usize,
    /// Maximum time of one job.
    job_time_max: Duration,
    /// A job is not started with less remaining time than this.
    start_time_min: Duration,
    /// When all jobs are cancelled.
    end: Instant,
}

/// Calls `run` with each of `jobs` and its time limit. Returns the names of those that have not ended.
async fn run_concurrently<N, J, F>(
    jobs: Vec<(N, J)>,
    schedule: JobSchedule,
    run: impl Fn(J, Duration) -> F + Send + Sync + 'static,
) -> Vec<N>
where
    J: Send + 'static,
    F: Future<Output = bool> + Send,
{
    let (semaphore, run) = (Arc::new(Semaphore::new(schedule.concurrency)), Arc::new(run));
    let mut tasks = JoinSet::new();
    let mut unfinished = HashMap::new();
    for (name, job) in jobs {
        let (semaphore, run) = (semaphore.clone(), run.clone());
        let task = tasks.spawn(async move {
            let work = async {
                // The semaphore is never closed.
                let _permit = semaphore.acquire_owned().await;
                let time_left = schedule.end.saturating_duration_since(Instant::now());
                time_left >= schedule.start_time_min
                    && Box::pin(run(job, time_left.min(schedule.job_time_max))).await
            };
            tokio::time::timeout_at(schedule.end, work).await.unwrap_or(false)
        });
        unfinished.insert(task.id(), name);
    }
    while let Some(ended) = tasks.join_next_with_id().await {
        match ended {
            Ok((id, true)) => {
                unfinished.remove(&id);
            }
            Ok((_, false)) => {}
            Err(error) => tracing::error!(%error, "a job panicked"),
        }
    }
    unfinished.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn schedule(concurrency: usize, end: Instant) -> JobSchedule {
        JobSchedule { concurrency, job_time_max: HOUR / 2, start_time_min: Duration::ZERO, end }
    }

    #[tokio::test]
    async fn failed_and_panicked_jobs_are_unfinished() {
        let jobs = vec![(1, "done"), (2, "again"), (3, "panics"), (5, "done")];
        let mut unfinished =
            run_concurrently(jobs, schedule(2, Instant::now() + HOUR), |job, time| async move {
                assert_eq!(time, HOUR / 2);
                assert_ne!(job, "panics", "on purpose");
                job == "done"
            })
            .await;
        unfinished.sort_unstable();
        assert_eq!(unfinished, [2, 3]);
    }

    #[tokio::test]
    async fn jobs_still_running_at_the_end_are_unfinished() {
        let jobs = vec![(1, ()), (2, ())];
        let unfinished =
            run_concurrently(jobs, schedule(1, Instant::now()), |(), _| std::future::pending()).await;
        assert_eq!(unfinished.len(), 2);
    }

    #[tokio::test]
    async fn no_job_starts_with_too_little_time() {
        let begun = Arc::new(AtomicUsize::new(0));
        let started = begun.clone();
        let schedule = JobSchedule { start_time_min: 2 * HOUR, ..schedule(2, Instant::now() + HOUR) };
        let unfinished = run_concurrently(vec![("a", ()), ("b", ())], schedule, move |(), _| {
            started.fetch_add(1, Ordering::SeqCst);
            std::future::ready(true)
        })
        .await;
        assert_eq!((unfinished.len(), begun.load(Ordering::SeqCst)), (2, 0));
    }

    #[tokio::test]
    async fn concurrency_is_limited() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (running, seen) = (now.clone(), most.clone());
        let jobs = (0..9).map(|name| (name, ())).collect();
        let unfinished = run_concurrently(jobs, schedule(3, Instant::now() + HOUR), move |(), _| {
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
        assert!(unfinished.is_empty());
        assert_eq!((running.load(Ordering::SeqCst), seen.load(Ordering::SeqCst)), (0, 3));
    }
}
