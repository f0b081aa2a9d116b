//! Jobs that the stream of the records table tells of, as it wakes the worker in the cloud.
//!
//! Must stay true: no job is missed, because those that were there before anybody followed the stream, and those whose
//! records may be gone, are looked up; none runs twice at once in this process; one that fails or panics holds up no
//! other.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use pennon_calculation::Calculator;
use pennon_calculation::jobs::{JobKey, JobLimits, Outcome, left_over};
use pennon_core::store::{Key, StoreError, Table};
use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Services;
use crate::embedded::{Follower, Inserted};

/// How often jobs are looked up that the stream may not have told of.
const LOOKED_EVERY: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often a job comes again before it is left to whoever looks up jobs.
const TRIES_MAX: u32 = 10;

/// What does jobs.
trait Work: Send + Sync + 'static {
    /// What a job is called.
    type Job: Copy + Eq + Hash + Debug + Send + 'static;

    /// The job whose row lies there; none for other rows.
    fn job(&self, row: &Key) -> Option<Self::Job>;

    /// The jobs that are there.
    fn left_over(&self) -> impl Future<Output = Result<Vec<Self::Job>, StoreError>> + Send;

    /// Does a job. Says whether it has ended; otherwise it has to come again.
    fn run(&self, job: Self::Job) -> impl Future<Output = bool> + Send;
}

/// How jobs are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// How many at the same time.
    at_once: usize,
    /// One that has to come again waits this long, twice as long the next time, and never longer than a minute.
    first_pause: Duration,
}

impl Pace {
    /// So many at the same time.
    fn of(at_once: usize) -> Pace {
        Pace { at_once, first_pause: Duration::from_secs(1) }
    }
}

/// Calculations in the background.
#[derive(Debug)]
struct Calculations {
    records: Table,
    calculator: Calculator,
}

impl Work for Calculations {
    type Job = JobKey;

    fn job(&self, row: &Key) -> Option<JobKey> {
        JobKey::parse(&row.pk, &row.sk)
    }

    async fn left_over(&self) -> Result<Vec<JobKey>, StoreError> {
        left_over(&self.records).await
    }

    async fn run(&self, job: JobKey) -> bool {
        // Nobody else works on this installation: whoever had claimed a job before is gone.
        let limits = JobLimits { lease: Duration::ZERO, ..JobLimits::default() };
        self.calculator.run_job(job, limits).await != Outcome::Again
    }
}

/// Calculates in the background what `follower` tells of, until `stopped`.
pub async fn follow(services: Services, follower: Option<Follower>, stopped: watch::Receiver<bool>) {
    // There is one for every database in a file.
    let Some(follower) = follower else { return };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let records = services.app.store.records.clone();
    let work = Arc::new(Calculations { records, calculator: services.calculator });
    // What somebody waits for always finds a core that no job holds.
    run(work, follower, Pace::of(cores.saturating_sub(1).max(1)), stopped).await;
}

/// Does the jobs that `follower` tells of and those that are left over, at the given pace, until `stopped`.
async fn run<W: Work>(work: Arc<W>, mut follower: Follower, pace: Pace, stopped: watch::Receiver<bool>) {
    let mut stop = std::pin::pin!(super::signal(stopped));
    let mut jobs = Jobs::new(work, pace);
    let mut ticks = tokio::time::interval(LOOKED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // What runs is dropped, and stays a job for the next start.
            () = &mut stop => return,
            // The first comes at once: by now the stream is followed, so what is not found here will be told.
            _ = ticks.tick() => jobs.look_up().await,
            told = follower.next() => match told {
                Ok(Inserted { keys, missed }) => {
                    let told = keys.iter().filter_map(|row| jobs.work.job(row)).collect();
                    jobs.begin(told);
                    if missed {
                        jobs.look_up().await;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the stream of jobs cannot be followed");
                    tokio::time::sleep(pace.first_pause).await;
                }
            },
            Some(ended) = jobs.tasks.join_next_with_id() => jobs.ended(ended),
        }
    }
}

struct Jobs<W: Work> {
    work: Arc<W>,
    slots: Arc<Semaphore>,
    first_pause: Duration,
    tasks: JoinSet<bool>,
    /// The job of each task, and how often it has been tried.
    running: HashMap<Id, (W::Job, u32)>,
    known: HashSet<W::Job>,
}

impl<W: Work> Jobs<W> {
    fn new(work: Arc<W>, pace: Pace) -> Jobs<W> {
        let (slots, first_pause) = (Arc::new(Semaphore::new(pace.at_once.max(1))), pace.first_pause);
        Jobs {
            work,
            slots,
            first_pause,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            known: HashSet::new(),
        }
    }

    async fn look_up(&mut self) {
        match self.work.left_over().await {
            Ok(found) => self.begin(found),
            Err(error) => tracing::warn!(%error, "jobs could not be looked up"),
        }
    }

    fn begin(&mut self, jobs: Vec<W::Job>) {
        for job in jobs {
            if self.known.insert(job) {
                self.spawn(job, 0);
            }
        }
    }

    /// Tries `job` when it is its turn, after a pause if it was tried before.
    fn spawn(&mut self, job: W::Job, tried: u32) {
        let (work, slots, first_pause) = (self.work.clone(), self.slots.clone(), self.first_pause);
        let task = self.tasks.spawn(async move {
            if let Some(doublings) = tried.checked_sub(1) {
                let pause = first_pause.saturating_mul(1 << doublings.min(10));
                tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
            }
            // Nobody closes it.
            let _slot = slots.acquire_owned().await;
            // In the heap only when it runs: many may wait.
            Box::pin(work.run(job)).await
        });
        self.running.insert(task.id(), (job, tried));
    }

    fn ended(&mut self, ended: Result<(Id, bool), tokio::task::JoinError>) {
        let (id, is_done) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "a job panicked");
                (error.id(), false)
            }
        };
        let Some((job, tried)) = self.running.remove(&id) else { return };
        if is_done || tried + 1 >= TRIES_MAX {
            self.known.remove(&job);
        } else {
            self.spawn(job, tried + 1);
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
    use pennon_core::store::{Guard, Item, Query, Store, Write, keys};
    use tokio::sync::mpsc;

    /// Jobs are called by the first letter of their row, which says what becomes of them.
    struct Letters {
        store: Store,
        told: mpsc::UnboundedSender<char>,
        runs: Mutex<Vec<char>>,
        /// The sort keys of the rows that it was told of.
        rows: Mutex<Vec<String>>,
        at_once: AtomicUsize,
        most_at_once: AtomicUsize,
        gate: Semaphore,
    }

    impl Work for Letters {
        type Job = char;

        fn job(&self, row: &Key) -> Option<char> {
            self.rows.lock().unwrap().push(row.sk.clone());
            row.sk.chars().next().filter(|letter| letter.is_alphabetic())
        }

        async fn left_over(&self) -> Result<Vec<char>, StoreError> {
            let rows = self.store.records.query(Query::partition("JOB#1")).await?;
            Ok(rows.iter().filter_map(|row| self.job(&row.key)).collect())
        }

        async fn run(&self, job: char) -> bool {
            let runs = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(runs, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            self.at_once.fetch_sub(1, Ordering::SeqCst);
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
                // As jobs do when they end.
                let gone = Write::Delete(Key::new("JOB#1", job.to_string()), Guard::None);
                self.store.records.transact(vec![gone]).await.unwrap();
            }
            self.told.send(job).unwrap();
            assert!(job != 'p' || before > 1, "as it was told");
            is_done
        }
    }

    struct Place {
        embedded: Embedded,
        letters: Arc<Letters>,
        told: mpsc::UnboundedReceiver<char>,
        stop: watch::Sender<bool>,
        _directory: tempfile::TempDir,
    }

    impl Place {
        async fn new() -> Place {
            let directory = tempfile::tempdir().unwrap();
            let embedded = Embedded::open(directory.path()).await.unwrap();
            let (telling, told) = mpsc::unbounded_channel();
            let letters = Letters {
                store: embedded.store(None),
                told: telling,
                runs: Mutex::default(),
                rows: Mutex::default(),
                at_once: AtomicUsize::new(0),
                most_at_once: AtomicUsize::new(0),
                gate: Semaphore::new(0),
            };
            let (stop, _) = watch::channel(false);
            Place { embedded, letters: Arc::new(letters), told, stop, _directory: directory }
        }

        fn start(&self, at_once: usize) -> tokio::task::JoinHandle<()> {
            let follower = self.embedded.follow(keys::JOB_PREFIX).unwrap().unwrap();
            let pace = Pace { at_once, first_pause: Duration::from_micros(1) };
            tokio::spawn(run(self.letters.clone(), follower, pace, self.stop.subscribe()))
        }

        async fn put(&self, sk: &str) {
            let item = Item::empty(Key::new("JOB#1", sk));
            self.letters.store.records.put(item, Guard::None).await.unwrap();
        }

        async fn told(&mut self, many: usize) -> Vec<char> {
            let mut told = Vec::new();
            for _ in 0..many {
                told.push(self.told.recv().await.unwrap());
            }
            told.sort_unstable();
            told
        }
    }

    #[tokio::test]
    async fn jobs_that_were_there_and_those_that_come_are_done_once_each() {
        let mut place = Place::new().await;
        place.letters.gate.add_permits(100);
        place.put("x").await;
        place.put("-").await;
        let running = place.start(2);
        assert_eq!(place.told(1).await, ['x']);
        place.put("y").await;
        let mut row = Item::empty(Key::new("JOB#2", "z"));
        row.version = 1;
        place.letters.store.records.transact(vec![Write::Put(row, Guard::Absent)]).await.unwrap();
        assert_eq!(place.told(2).await, ['y', 'z']);
        place.stop.send_replace(true);
        running.await.unwrap();
        assert!(place.told.try_recv().is_err());
    }

    #[tokio::test]
    async fn no_more_run_at_once_than_may_and_none_twice() {
        let mut place = Place::new().await;
        for letter in 'c'..='h' {
            place.put(&letter.to_string()).await;
        }
        let _running = place.start(2);
        // Told of again while they wait.
        for letter in ["c2", "d2"] {
            place.put(letter).await;
        }
        while !place.letters.rows.lock().unwrap().iter().any(|row| row == "d2") {
            tokio::task::yield_now().await;
        }
        place.letters.gate.add_permits(6);
        assert_eq!(place.told(6).await, ('c'..='h').collect::<Vec<_>>());
        assert_eq!(place.letters.most_at_once.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn what_panics_or_fails_comes_again_and_holds_nobody_up() {
        let mut place = Place::new().await;
        place.letters.gate.add_permits(100);
        let _running = place.start(2);
        for letter in ["p", "a", "n", "x"] {
            place.put(letter).await;
        }
        // Twice again for those that end at the third try; the last comes until it is left alone.
        let told = place.told(3 + 3 + 10 + 1).await;
        let count = |letter| told.iter().filter(|job| **job == letter).count();
        assert_eq!((count('p'), count('a'), count('n'), count('x')), (3, 3, 10, 1));
    }

    #[tokio::test]
    async fn stopping_waits_for_no_job() {
        let place = Place::new().await;
        place.put("x").await;
        let running = place.start(1);
        while place.letters.at_once.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        place.stop.send_replace(true);
        running.await.unwrap();
        assert!(place.letters.runs.lock().unwrap().is_empty());
    }
}
