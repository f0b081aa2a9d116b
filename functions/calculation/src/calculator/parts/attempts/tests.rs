use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::super::invoker::InvocationFuture;
use super::super::task::PartStats;
use super::*;

/// What an attempt at a part does.
#[derive(Debug, Clone)]
enum Behaviour {
    /// Ends with so many rows.
    Done(u64),
    /// Ends with a failure of the part.
    Failed(PartFailure),
    /// Is not executed: there is no concurrency left.
    Throttled,
    /// The connection was lost.
    Lost,
    /// Returns what no part returns.
    Garbage,
    /// Returns an outcome of another build.
    OtherBuild,
    /// Never ends.
    Hangs,
}

use Behaviour::{Done, Failed, Garbage, Hangs, Lost, OtherBuild, Throttled};

/// Gives the attempts at each part, one after the other, their behaviours; the last one is repeated.
#[derive(Debug)]
struct Scripted {
    parts: Vec<Vec<Behaviour>>,
    attempts: Mutex<Vec<usize>>,
    running: AtomicUsize,
    running_max: AtomicUsize,
}

impl Scripted {
    fn new(parts: Vec<Vec<Behaviour>>) -> Scripted {
        let attempts = Mutex::new(vec![0; parts.len()]);
        Scripted { parts, attempts, running: AtomicUsize::new(0), running_max: AtomicUsize::new(0) }
    }

    fn attempts(&self) -> Vec<usize> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts an attempt as running until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PartInvoker for Scripted {
    fn invoke<'a>(&'a self, _number: usize, task: &'a [u8], _time: Duration) -> InvocationFuture<'a> {
        let part = usize::from(task[0]);
        Box::pin(async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            let _running = Running(&self.running);
            self.running_max.fetch_max(running, Ordering::SeqCst);
            let attempt = {
                let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
                attempts[part] += 1;
                attempts[part] - 1
            };
            let script = &self.parts[part];
            tokio::task::yield_now().await;
            match script[attempt.min(script.len() - 1)].clone() {
                Done(rows) => Ok(done(rows)),
                Failed(failure) => Ok(encoded(&PartOutcome::Failed(failure))),
                Throttled => Err(PartError::Throttled),
                Lost => Err(PartError::Failed("lost".to_owned())),
                Garbage => Ok(vec![1, 2, 3]),
                OtherBuild => Ok(done(1).into_iter().map(|byte| byte ^ 1).collect()),
                Hangs => std::future::pending().await,
            }
        })
    }

    fn task_bytes_max(&self) -> usize {
        100
    }

    fn memory_gb(&self) -> f64 {
        1.0
    }
}

fn done(rows: u64) -> Vec<u8> {
    let stats = PartStats { rows, ..PartStats::default() };
    encoded(&PartOutcome::Partial(Box::default(), stats))
}

fn encoded(outcome: &PartOutcome) -> Vec<u8> {
    outcome.encode().unwrap_or_default()
}

/// The rows of each part, or its failure.
type Rows = Vec<Result<u64, PartFailure>>;

/// The time of attempts in tests that do not look at it.
static INVOKED: AtomicU64 = AtomicU64::new(0);

fn attempts(invoker: &Scripted, at_once: usize, time: Duration, deadline: Duration) -> Attempts<'_> {
    Attempts { invoker, at_once, deadline: Instant::now() + deadline, time, invoked_micros: &INVOKED }
}

async fn run(invoker: &Scripted, at_once: usize, time: Duration) -> Result<Rows, PartFailure> {
    let attempts = attempts(invoker, at_once, time, time);
    let task = |part: usize| vec![u8::try_from(part).unwrap_or(u8::MAX); 10];
    let tasks: Vec<Vec<u8>> = (0..invoker.parts.len()).map(task).collect();
    let outcomes = attempts.run(&tasks, |_| ()).await?;
    let rows = |outcome| match outcome {
        Ok(PartOutcome::Partial(_, stats)) => Ok(stats.rows),
        Ok(other) => Err(PartFailure::Transient(format!("{other:?}"))),
        Err(failure) => Err(failure),
    };
    Ok(outcomes.into_iter().map(rows).collect())
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn parts_that_fail_are_retried_and_each_counts_once() {
    let transient = Failed(PartFailure::Transient("busy".to_owned()));
    let invoker = Scripted::new(vec![
        vec![Done(1)],
        vec![Lost, Done(2)],
        vec![Garbage, transient, Done(3)],
        vec![Done(4), Done(40)],
    ]);
    assert_eq!(run(&invoker, 2, LONG).await, Ok(vec![Ok(1), Ok(2), Ok(3), Ok(4)]));
    assert_eq!(invoker.attempts(), [1, 2, 3, 1]);
    assert_eq!(invoker.running_max.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_part_that_fails_three_times_fails_the_query_and_ends_the_others() {
    let invoker = Scripted::new(vec![vec![Lost], vec![Hangs]]);
    let failed = run(&invoker, 8, LONG).await;
    assert_eq!(failed, Err(PartFailure::Transient("lost".to_owned())));
    assert_eq!(invoker.attempts(), [3, 1]);
    assert_eq!(invoker.running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_part_of_another_build_is_not_invoked_again() {
    let invoker = Scripted::new(vec![vec![OtherBuild]]);
    assert_eq!(run(&invoker, 8, LONG).await, Err(PartFailure::OtherRelease));
    assert_eq!(invoker.attempts(), [1]);
}

#[tokio::test]
async fn throttled_parts_wait_and_are_no_failures() {
    let throttled = || vec![Throttled, Throttled, Throttled, Throttled, Done(1)];
    let invoker = Scripted::new(vec![throttled(), throttled(), vec![Done(3)]]);
    assert_eq!(run(&invoker, 8, LONG).await, Ok(vec![Ok(1), Ok(1), Ok(3)]));
    assert_eq!(invoker.attempts(), [5, 5, 1]);
}

#[tokio::test]
async fn an_attempt_without_a_response_is_repeated_before_the_deadline() {
    let invoker = Scripted::new(vec![vec![Hangs, Done(7)]]);
    let tasks = [vec![0; 10]];
    let time = Duration::from_millis(50);
    let attempts = attempts(&invoker, 1, time, LONG);
    assert!(attempts.run(&tasks, |_| ()).await.is_ok());
    assert_eq!(invoker.attempts(), [2]);
}

#[tokio::test]
async fn the_slowest_part_is_invoked_again_and_the_first_outcome_counts() {
    let mut parts = vec![vec![Done(1)]; 7];
    parts.push(vec![Hangs, Done(8)]);
    let invoker = Scripted::new(parts);
    let rows = run(&invoker, 8, LONG).await;
    assert_eq!(rows, Ok(vec![Ok(1), Ok(1), Ok(1), Ok(1), Ok(1), Ok(1), Ok(1), Ok(8)]));
    assert_eq!(invoker.attempts()[7], 2);
    assert_eq!(invoker.running.load(Ordering::SeqCst), 0, "the late attempt was cancelled");
}

#[tokio::test]
async fn only_a_few_late_parts_are_invoked_again() {
    let mut parts = vec![vec![Done(1)]; 8];
    parts.extend(vec![vec![Hangs]; 8]);
    let invoker = Scripted::new(parts);
    let failed = run(&invoker, 64, Duration::from_millis(700)).await;
    assert!(matches!(failed, Err(PartFailure::Transient(_))), "{failed:?}");
    let again = invoker.attempts()[8..].iter().filter(|attempts| **attempts == 2).count();
    assert_eq!(again, 16 / LATE_SHARE + 1);
}

#[tokio::test]
async fn a_part_that_is_too_large_waits_for_the_others_and_an_invalid_query_does_not() {
    let too_large = PartFailure::TooLarge("100 bytes".to_owned());
    let invoker = Scripted::new(vec![vec![Failed(too_large.clone())], vec![Lost, Done(2)]]);
    assert_eq!(run(&invoker, 8, LONG).await, Ok(vec![Err(too_large), Ok(2)]));
    let invalid = PartFailure::Invalid("required".to_owned(), "no".to_owned(), None);
    let invoker = Scripted::new(vec![vec![Failed(invalid.clone())], vec![Hangs]]);
    assert_eq!(run(&invoker, 8, LONG).await, Err(invalid));
}

#[tokio::test]
async fn tasks_of_more_bytes_than_are_sent_are_too_large() {
    let invoker = Scripted::new(vec![vec![Done(1)], vec![Done(2)]]);
    let attempts = attempts(&invoker, 1, LONG, LONG);
    let tasks = [vec![0; 100], vec![0; 101]];
    let outcomes = attempts.run(&tasks, |_| ()).await;
    let is_too_large = |outcome: &Result<_, _>| matches!(outcome, Err(PartFailure::TooLarge(_)));
    assert!(outcomes.is_ok_and(|all| !is_too_large(&all[0]) && is_too_large(&all[1])));
    assert_eq!(invoker.attempts(), [1, 0]);
}

#[tokio::test]
async fn the_time_of_all_attempts_is_counted_also_of_those_that_are_not_needed() {
    let time = Duration::from_millis(40);
    let invoker = Scripted::new(vec![vec![Hangs], vec![Done(1)]]);
    let invoked = AtomicU64::new(0);
    let attempts = Attempts { invoked_micros: &invoked, ..attempts(&invoker, 2, time, LONG) };
    assert!(attempts.run(&[vec![0; 10], vec![1; 10]], |_| ()).await.is_err());
    // Three attempts that ended at their limit.
    let invoked = Duration::from_micros(invoked.into_inner());
    assert!(invoked >= 3 * time && invoked < LONG, "{invoked:?}");
}
