//! The attempts of all parts of a query: at most so many at one time, with retries, and with a second attempt at those that are
//! late.
//!
//! Must stay true: each part has one outcome, that of the attempt that ends first; attempts are bounded.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use pennon_core::ids::random_below;
use tokio::time::Instant;

use super::invoker::{PartError, PartInvoker};
use super::task::{DecodeError, PartFailure, PartOutcome};

/// Most attempts at a part that fail.
pub(super) const ATTEMPTS_MAX: u32 = 3;
/// The wait before the first retry; it doubles, and gets up to as much again at random.
const BACKOFF: Duration = Duration::from_millis(100);
/// The wait of a throttled part is that of such a failure.
const THROTTLED_ATTEMPT: u32 = 3;
/// Parts that take less than this are not late.
const LATE_MIN: Duration = Duration::from_millis(250);
/// One in so many parts gets a second attempt because it is late, and one more.
const LATE_SHARE: usize = 4;

/// How the parts of a query are invoked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts<'a> {
    pub invoker: &'a dyn PartInvoker,
    /// Most invocations at one time.
    pub at_once: usize,
    /// When every invocation has to be done.
    pub deadline: Instant,
    /// Most time of one attempt, so that one whose response was lost is repeated.
    pub time: Duration,
    /// Microseconds of all attempts so far, as long as this process waited for them. One that was not needed, or had no response in
    /// time, may run on where it was invoked, at most until the query ends.
    pub invoked_micros: &'a AtomicU64,
}

/// Counts the time of an attempt when it is dropped.
struct AttemptTime<'a> {
    started: Instant,
    sum: &'a AtomicU64,
}

impl Drop for AttemptTime<'_> {
    fn drop(&mut self) {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }
}

/// What is known of a part.
#[derive(Debug, Default)]
struct PartState {
    failed: u32,
    running: u32,
    /// Ends its attempts; as many as were begun.
    attempts: Vec<AbortHandle>,
    /// When its only attempt began.
    started: Option<Instant>,
    is_late: bool,
    outcome: Option<Result<PartOutcome, PartFailure>>,
}

/// An attempt that has ended: its part, when it began, and what it returned.
type EndedAttempt = (usize, Instant, Result<Vec<u8>, PartError>);

/// The attempts that run.
type RunningAttempts<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = EndedAttempt> + Send + 'a>>>;

impl<'a> Attempts<'a> {
    /// Invokes the parts with these encoded tasks. Returns their outcomes in order; a failure is final. `on_done` is called with
    /// each outcome when it is known. The first failure that another part cannot mend ends all of them.
    pub(super) async fn run(
        &self,
        tasks: &'a [Vec<u8>],
        mut on_done: impl FnMut(&PartOutcome),
    ) -> Result<Vec<Result<PartOutcome, PartFailure>>, PartFailure> {
        let mut at_once = self.at_once.max(1);
        let bytes_max = self.invoker.task_bytes_max();
        let mut parts: Vec<PartState> = tasks.iter().map(|task| PartState::new(task, bytes_max)).collect();
        let waiting = parts.iter().enumerate().filter(|(_, part)| part.outcome.is_none());
        let mut waiting: VecDeque<_> = waiting.map(|(part, _)| (part, Instant::now())).collect();
        let mut running = RunningAttempts::new();
        let mut took = Vec::new();
        while parts.iter().any(|part| part.outcome.is_none()) {
            self.start_waiting(tasks, &mut parts, &mut waiting, (&running, at_once));
            self.start_again_if_late(tasks, &mut parts, &took, (&running, at_once));
            let wake = next_wake(&parts, &waiting, &took, at_once.saturating_sub(running.len()));
            let ended = tokio::select! {
                Some(ended) = running.next() => ended,
                () = tokio::time::sleep_until(wake) => continue,
            };
            let (index, started, result) = ended;
            let Some(part) = parts.get_mut(index) else { continue };
            part.running = part.running.saturating_sub(1);
            if part.outcome.is_some() {
                continue;
            }
            if Instant::now() >= self.deadline {
                return Err(PartFailure::Transient("the parts did not end in time".to_owned()));
            }
            if result == Err(PartError::Throttled) {
                // Fewer at one time from now on: the others of this query take the concurrency that there is.
                at_once = running.len().clamp(1, at_once);
                waiting.push_back((index, Instant::now() + backoff(THROTTLED_ATTEMPT)));
                continue;
            }
            match outcome(result) {
                Ok(outcome) => {
                    took.push(started.elapsed());
                    on_done(&outcome);
                    part.outcome = Some(Ok(outcome));
                    // The other attempts are no longer needed.
                    part.attempts.iter().for_each(AbortHandle::abort);
                }
                Err(PartFailure::TooLarge(text)) => part.outcome = Some(Err(PartFailure::TooLarge(text))),
                Err(PartFailure::Transient(cause)) => {
                    part.failed += 1;
                    tracing::warn!(part = index, attempt = part.failed, cause, "an attempt at a part failed");
                    if part.failed < ATTEMPTS_MAX {
                        waiting.push_back((index, Instant::now() + backoff(part.failed)));
                    } else if part.running == 0 {
                        return Err(PartFailure::Transient(cause));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(parts.into_iter().filter_map(|part| part.outcome).collect())
    }

    fn start(&self, tasks: &'a [Vec<u8>], index: usize, part: &mut PartState, running: &RunningAttempts<'a>) {
        let Some(task) = tasks.get(index) else { return };
        let now = Instant::now();
        part.running += 1;
        part.started = Some(now);
        // Another process than the one that may still be busy with the attempt before.
        let number = index + part.attempts.len();
        let (handle, registration) = AbortHandle::new_pair();
        part.attempts.push(handle);
        let (invoker, deadline) = (self.invoker, self.deadline.min(now + self.time));
        let attempt_time = AttemptTime { started: now, sum: self.invoked_micros };
        let invocation = async move {
            let _attempt_time = attempt_time;
            let time = deadline.saturating_duration_since(now);
            match tokio::time::timeout_at(deadline, invoker.invoke(number, task, time)).await {
                Ok(result) => result,
                Err(_) => Err(PartError::Failed("it did not end in time".to_owned())),
            }
        };
        let invocation = Abortable::new(invocation, registration);
        running.push(Box::pin(async move {
            let result = invocation.await.unwrap_or_else(|_| Err(PartError::Failed("not needed".to_owned())));
            (index, now, result)
        }));
    }

    /// Starts the parts that wait, as many as may run.
    fn start_waiting(
        &self,
        tasks: &'a [Vec<u8>],
        parts: &mut [PartState],
        waiting: &mut VecDeque<(usize, Instant)>,
        (running, at_once): (&RunningAttempts<'a>, usize),
    ) {
        let now = Instant::now();
        for _ in 0..waiting.len() {
            if running.len() >= at_once {
                return;
            }
            let Some((index, ready)) = waiting.pop_front() else { return };
            if ready > now {
                waiting.push_back((index, ready));
            } else if let Some(part) = parts.get_mut(index).filter(|part| part.outcome.is_none()) {
                self.start(tasks, index, part, running);
            }
        }
    }

    /// Starts a second attempt at parts that take twice as long as half of the others took.
    fn start_again_if_late(
        &self,
        tasks: &'a [Vec<u8>],
        parts: &mut [PartState],
        took: &[Duration],
        (running, at_once): (&RunningAttempts<'a>, usize),
    ) {
        let Some(late) = late_after(parts.len(), took) else { return };
        let mut left = (parts.len() / LATE_SHARE + 1)
            .saturating_sub(parts.iter().filter(|part| part.is_late).count())
            .min(at_once.saturating_sub(running.len()));
        for (index, part) in parts.iter_mut().enumerate() {
            if left > 0 && part.can_be_late() && part.started.is_some_and(|at| at.elapsed() >= late) {
                left -= 1;
                part.is_late = true;
                self.start(tasks, index, part, running);
            }
        }
    }
}

impl PartState {
    fn new(task: &[u8], bytes_max: usize) -> PartState {
        let is_too_large = task.len() > bytes_max;
        let text =
            || format!("A part of the query takes {} bytes; at most {bytes_max} are sent.", task.len());
        let outcome = is_too_large.then(|| Err(PartFailure::TooLarge(text())));
        PartState { outcome, ..PartState::default() }
    }

    fn can_be_late(&self) -> bool {
        self.outcome.is_none() && self.running == 1 && !self.is_late
    }
}

/// When something has to be started, if no attempt ends before.
fn next_wake(
    parts: &[PartState],
    waiting: &VecDeque<(usize, Instant)>,
    took: &[Duration],
    free: usize,
) -> Instant {
    let far = Instant::now() + Duration::from_secs(3600);
    if free == 0 {
        return far;
    }
    let ready = waiting.iter().map(|(_, ready)| *ready);
    let is_left = parts.iter().filter(|part| part.is_late).count() <= parts.len() / LATE_SHARE;
    let late = late_after(parts.len(), took).filter(|_| is_left);
    let late = late.into_iter().flat_map(|late| {
        let running = parts.iter().filter(|part| part.can_be_late());
        running.filter_map(move |part| part.started.map(|started| started + late))
    });
    ready.chain(late).min().unwrap_or(far)
}

/// The time after which a part is late: twice the median, once half of the parts are done.
fn late_after(parts: usize, took: &[Duration]) -> Option<Duration> {
    if parts < 2 || took.len() * 2 < parts {
        return None;
    }
    let mut took = took.to_vec();
    took.sort_unstable();
    took.get(took.len() / 2).map(|median| (*median * 2).max(LATE_MIN))
}

fn backoff(failed: u32) -> Duration {
    let wait = BACKOFF * 2_u32.saturating_pow(failed.saturating_sub(1));
    let random = random_below(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX).max(1));
    wait + Duration::from_micros(random)
}

/// The outcome of an attempt.
fn outcome(result: Result<Vec<u8>, PartError>) -> Result<PartOutcome, PartFailure> {
    let bytes = result.map_err(|error| PartFailure::Transient(error.to_string()))?;
    match PartOutcome::decode(&bytes) {
        Ok(PartOutcome::Failed(failure)) => Err(failure),
        Ok(outcome) => Ok(outcome),
        // Another attempt would meet the same build.
        Err(DecodeError::OtherSources) => Err(PartFailure::OtherRelease),
        Err(error) => Err(PartFailure::Transient(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
