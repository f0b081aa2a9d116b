//! Runs calculation jobs in the background, triggered by the stream of the records table as the worker function is on AWS.
//!
//! Must stay true: no job is missed, because pending jobs are listed at the start, every 60 seconds, and after a gap in
//! the stream; no job runs twice at the same time in this process; a job that fails or panics does not delay others.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use pennon_calculation::Calculator;
use pennon_calculation::jobs::{JobKey, JobLimits, JobOutcome, left_over};
use pennon_core::store::{Key, StoreError, Table};
use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Services;
use crate::embedded::{StreamFollower, StreamInserts};

/// How often pending jobs are listed, for those that the stream did not report.
const LIST_INTERVAL: Duration = Duration::from_secs(60);
/// The longest wait before a retry.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// After this many attempts a job is retried only when pending jobs are listed again.
const ATTEMPTS_MAX: u32 = 10;

/// Knows one kind of job, and runs it.
trait JobRunner: Send + Sync + 'static {
    /// The identity of a job.
    type Job: Copy + Eq + Hash + Debug + Send + 'static;

    /// The job with the row at `row`; `None` for other rows.
    fn parse_key(&self, row: &Key) -> Option<Self::Job>;

    /// All stored jobs.
    fn list_pending(&self) -> impl Future<Output = Result<Vec<Self::Job>, StoreError>> + Send;

    /// Runs a job. Returns whether it is finished; else it is retried.
    fn run(&self, job: Self::Job) -> impl Future<Output = bool> + Send;
}

/// Concurrency and retries of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SchedulerOptions {
    /// How many jobs run at the same time.
    concurrency: usize,
    /// The wait before the first retry. It doubles with each retry, up to [`BACKOFF_MAX`].
    initial_backoff: Duration,
}

impl SchedulerOptions {
    fn new(concurrency: usize) -> SchedulerOptions {
        SchedulerOptions { concurrency, initial_backoff: Duration::from_secs(1) }
    }
}

/// Runs calculation jobs.
#[derive(Debug)]
struct CalculationRunner {
    records: Table,
    calculator: Calculator,
}

impl JobRunner for CalculationRunner {
    type Job = JobKey;

    fn parse_key(&self, row: &Key) -> Option<JobKey> {
        JobKey::parse(&row.pk, &row.sk)
    }

    async fn list_pending(&self) -> Result<Vec<JobKey>, StoreError> {
        left_over(&self.records).await
    }

    async fn run(&self, job: JobKey) -> bool {
        // No other process runs jobs of this installation, so an existing lease is that of an ended process.
        let limits = JobLimits { lease: Duration::ZERO, ..JobLimits::default() };
        self.calculator.run_job(job, limits).await != JobOutcome::Retry
    }
}

/// Runs the calculation jobs that `follower` reports, until `stopped`.
pub async fn run_jobs(services: Services, follower: Option<StreamFollower>, stopped: watch::Receiver<bool>) {
    // Only a database in memory has none.
    let Some(follower) = follower else { return };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let records = services.app.store.records.clone();
    let runner = Arc::new(CalculationRunner { records, calculator: services.calculator });
    // One core stays free for requests.
    run(runner, follower, SchedulerOptions::new(cores.saturating_sub(1).max(1)), stopped).await;
}

/// Runs pending jobs, and the new ones that `follower` reports, until `stopped`.
async fn run<R: JobRunner>(
    runner: Arc<R>,
    mut follower: StreamFollower,
    options: SchedulerOptions,
    stopped: watch::Receiver<bool>,
) {
    let mut stop = std::pin::pin!(super::signal(stopped));
    let mut scheduler = JobScheduler::new(runner, options);
    let mut ticks = tokio::time::interval(LIST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Running tasks are dropped; their jobs stay stored for the next start.
            () = &mut stop => return,
            // The first tick is immediate. The stream is followed by now, so it reports every job that is not listed.
            _ = ticks.tick() => scheduler.start_pending().await,
            inserts = follower.next() => match inserts {
                Ok(StreamInserts { keys, has_gap }) => {
                    let jobs = keys.iter().filter_map(|row| scheduler.runner.parse_key(row)).collect();
                    scheduler.start(jobs);
                    if has_gap {
                        scheduler.start_pending().await;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the stream of jobs cannot be followed");
                    tokio::time::sleep(options.initial_backoff).await;
                }
            },
            Some(result) = scheduler.tasks.join_next_with_id() => scheduler.handle_result(result),
        }
    }
}

struct JobScheduler<R: JobRunner> {
    runner: Arc<R>,
    permits: Arc<Semaphore>,
    initial_backoff: Duration,
    tasks: JoinSet<bool>,
    /// The job of each task, and the number of earlier attempts.
    running: HashMap<Id, (R::Job, u32)>,
    /// Jobs that run, or wait for a permit or a retry.
    active: HashSet<R::Job>,
}

impl<R: JobRunner> JobScheduler<R> {
    fn new(runner: Arc<R>, options: SchedulerOptions) -> JobScheduler<R> {
        JobScheduler {
            runner,
            permits: Arc::new(Semaphore::new(options.concurrency.max(1))),
            initial_backoff: options.initial_backoff,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            active: HashSet::new(),
        }
    }

    async fn start_pending(&mut self) {
        match self.runner.list_pending().await {
            Ok(jobs) => self.start(jobs),
            Err(error) => tracing::warn!(%error, "pending jobs could not be listed"),
        }
    }

    /// Starts those of `jobs` that are not active.
    fn start(&mut self, jobs: Vec<R::Job>) {
        for job in jobs {
            if self.active.insert(job) {
                self.spawn(job, 0);
            }
        }
    }

    /// Runs `job` when there is a permit, after a backoff if there were earlier `attempts`.
    fn spawn(&mut self, job: R::Job, attempts: u32) {
        let (runner, permits, initial_backoff) =
            (self.runner.clone(), self.permits.clone(), self.initial_backoff);
        let task = self.tasks.spawn(async move {
            if let Some(doublings) = attempts.checked_sub(1) {
                let backoff = initial_backoff.saturating_mul(1 << doublings.min(10));
                tokio::time::sleep(backoff.min(BACKOFF_MAX)).await;
            }
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            // Allocated only when it runs: many jobs may wait.
            Box::pin(runner.run(job)).await
        });
        self.running.insert(task.id(), (job, attempts));
    }

    /// Retries the job of an ended task unless it is finished, or has had all its attempts.
    fn handle_result(&mut self, result: Result<(Id, bool), tokio::task::JoinError>) {
        let (id, is_done) = match result {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "a job panicked");
                (error.id(), false)
            }
        };
        let Some((job, attempts)) = self.running.remove(&id) else { return };
        if is_done || attempts + 1 >= ATTEMPTS_MAX {
            self.active.remove(&job);
        } else {
            self.spawn(job, attempts + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::embedded::Embedded;
    use pennon_core::store::{Item, PartitionQuery, Store, Write, WriteCondition, keys};
    use tokio::sync::mpsc;

    /// A job is identified by the first letter of its row, which decides how its runs end.
    struct LetterRunner {
        store: Store,
        ended: mpsc::UnboundedSender<char>,
        runs: Mutex<Vec<char>>,
        /// The sort keys of the rows that it was called with.
        rows: Mutex<Vec<String>>,
        concurrent: AtomicUsize,
        most_concurrent: AtomicUsize,
        gate: Semaphore,
    }

    impl JobRunner for LetterRunner {
        type Job = char;

        fn parse_key(&self, row: &Key) -> Option<char> {
            self.rows.lock().unwrap().push(row.sk.clone());
            row.sk.chars().next().filter(|letter| letter.is_alphabetic())
        }

        async fn list_pending(&self) -> Result<Vec<char>, StoreError> {
            let rows = self.store.records.query(PartitionQuery::partition("JOB#1")).await?;
            Ok(rows.iter().filter_map(|row| self.parse_key(&row.key)).collect())
        }

        async fn run(&self, job: char) -> bool {
            let runs = self.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_concurrent.fetch_max(runs, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            self.concurrent.fetch_sub(1, Ordering::SeqCst);
            let before = {
                let mut runs = self.runs.lock().unwrap();
                runs.push(job);
                runs.iter().filter(|run| **run == job).count()
            };
            let is_done = match job {
                'p' | 'a' => before > 2,
                'n' => false,
                _ => true,
            };
            if is_done {
                // A finished job deletes its row.
                let delete = Write::Delete(Key::new("JOB#1", job.to_string()), WriteCondition::None);
                self.store.records.transact(vec![delete]).await.unwrap();
            }
            self.ended.send(job).unwrap();
            assert!(job != 'p' || before > 1, "the first run of this job panics");
            is_done
        }
    }

    struct Fixture {
        embedded: Embedded,
        runner: Arc<LetterRunner>,
        ended: mpsc::UnboundedReceiver<char>,
        stop: watch::Sender<bool>,
        _directory: tempfile::TempDir,
    }

    impl Fixture {
        async fn new() -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let embedded = Embedded::open(directory.path()).await.unwrap();
            let (sender, ended) = mpsc::unbounded_channel();
            let runner = LetterRunner {
                store: embedded.store(None),
                ended: sender,
                runs: Mutex::default(),
                rows: Mutex::default(),
                concurrent: AtomicUsize::new(0),
                most_concurrent: AtomicUsize::new(0),
                gate: Semaphore::new(0),
            };
            let (stop, _) = watch::channel(false);
            Fixture { embedded, runner: Arc::new(runner), ended, stop, _directory: directory }
        }

        fn start(&self, concurrency: usize) -> tokio::task::JoinHandle<()> {
            let follower = self.embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
            let options = SchedulerOptions { concurrency, initial_backoff: Duration::from_micros(1) };
            tokio::spawn(run(self.runner.clone(), follower, options, self.stop.subscribe()))
        }

        async fn put(&self, sk: &str) {
            let item = Item::empty(Key::new("JOB#1", sk));
            self.runner.store.records.put(item, WriteCondition::None).await.unwrap();
        }

        /// The jobs of the next `count` runs, sorted.
        async fn next_ended(&mut self, count: usize) -> Vec<char> {
            let mut jobs = Vec::new();
            for _ in 0..count {
                jobs.push(self.ended.recv().await.unwrap());
            }
            jobs.sort_unstable();
            jobs
        }
    }

    #[tokio::test]
    async fn pending_and_new_jobs_run_once_each() {
        let mut fixture = Fixture::new().await;
        fixture.runner.gate.add_permits(100);
        fixture.put("x").await;
        fixture.put("-").await;
        let running = fixture.start(2);
        assert_eq!(fixture.next_ended(1).await, ['x']);
        fixture.put("y").await;
        let mut row = Item::empty(Key::new("JOB#2", "z"));
        row.version = 1;
        fixture.runner.store.records.transact(vec![Write::Put(row, WriteCondition::Absent)]).await.unwrap();
        assert_eq!(fixture.next_ended(2).await, ['y', 'z']);
        fixture.stop.send_replace(true);
        running.await.unwrap();
        assert!(fixture.ended.try_recv().is_err());
    }

    #[tokio::test]
    async fn concurrency_is_limited_and_no_job_runs_twice_at_once() {
        let mut fixture = Fixture::new().await;
        for letter in 'c'..='h' {
            fixture.put(&letter.to_string()).await;
        }
        let _running = fixture.start(2);
        // Reported again while they wait.
        for letter in ["c2", "d2"] {
            fixture.put(letter).await;
        }
        while !fixture.runner.rows.lock().unwrap().iter().any(|row| row == "d2") {
            tokio::task::yield_now().await;
        }
        fixture.runner.gate.add_permits(6);
        assert_eq!(fixture.next_ended(6).await, ('c'..='h').collect::<Vec<_>>());
        assert_eq!(fixture.runner.most_concurrent.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn failed_and_panicked_jobs_are_retried_and_delay_no_other() {
        let mut fixture = Fixture::new().await;
        fixture.runner.gate.add_permits(100);
        // Stored before the start. A row that is reported by the stream after its job was listed and has ended starts the job
        // once more.
        for letter in ["p", "a", "n", "x"] {
            fixture.put(letter).await;
        }
        let _running = fixture.start(2);
        // Two retries for those that finish at the third attempt; `n` has all its 10 attempts.
        let runs = fixture.next_ended(3 + 3 + 10 + 1).await;
        let count = |letter| runs.iter().filter(|job| **job == letter).count();
        assert_eq!((count('p'), count('a'), count('n'), count('x')), (3, 3, 10, 1));
    }

    #[tokio::test]
    async fn stopping_waits_for_no_job() {
        let fixture = Fixture::new().await;
        fixture.put("x").await;
        let running = fixture.start(1);
        while fixture.runner.concurrent.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        fixture.stop.send_replace(true);
        running.await.unwrap();
        assert!(fixture.runner.runs.lock().unwrap().is_empty());
    }
}
