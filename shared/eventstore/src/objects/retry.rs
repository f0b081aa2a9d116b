//! Retries of transient failures: a throttled, failing or slow object store, and version conflicts on the
//! manifest.
//!
//! Must stay true: attempts and waits are bounded, so every caller gets a result; permanent errors (missing
//! object, wrong credentials) are not retried; waits have jitter, so that callers that failed together do not
//! retry together.

use std::time::Duration;

use object_store::Error;
use pennon_core::store::StoreError;
use tokio::time::Instant;

use crate::error::EventStoreError;
use crate::settings::Settings;

/// Log target of retries. Operators and the CLI filter by it, so it does not follow the module path.
pub(super) const LOG_TARGET: &str = "pennon_eventstore::retry";
/// Attempts that a writer has at least, however long each takes.
const ATTEMPTS_MIN: u32 = 8;
/// Wait after the first conflict, about.
const FIRST_CONFLICT_WAIT: Duration = Duration::from_millis(20);
/// The rate of a line over which the transfers of a command do not time out: 16 KiB a second for each of several concurrent
/// ones, about half a megabit a second in all.
pub(super) const SLOW_LINE_BYTES_PER_SECOND: u64 = 16 << 10;
/// Longest time for retries of background work.
const BACKGROUND_RETRY_TIME: Duration = Duration::from_secs(60);

/// Exponential backoff with jitter: each wait is twice as long as the one before, up to a maximum.
#[derive(Debug)]
struct Backoff {
    wait: Duration,
    longest: Duration,
}

impl Backoff {
    fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { wait: first.min(longest), longest }
    }

    /// Waits between 50 and 100 % of the current wait.
    async fn wait(&mut self) {
        let half = self.wait / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        tokio::time::sleep(half + Duration::from_micros(pennon_core::ids::random_below(micros))).await;
        self.wait = (self.wait * 2).min(self.longest);
    }
}

/// The retries of a writer under optimistic concurrency: it reads, validates, and writes only if the version is
/// unchanged.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    begun: Instant,
    conflicts: u32,
    /// No further attempt starts after this time, unless there were fewer than [`ATTEMPTS_MIN`].
    total: Duration,
    backoff: Backoff,
}

impl RetryBudget {
    /// For work that a user waits for and would have to start again by hand.
    pub(crate) fn for_command(settings: &Settings) -> RetryBudget {
        let backoff = Backoff::new(FIRST_CONFLICT_WAIT, settings.longest_turn_wait);
        RetryBudget { begun: Instant::now(), conflicts: 0, total: settings.turns_in_all, backoff }
    }

    /// For background work, which runs again by itself.
    pub(crate) fn for_background_task(settings: &Settings) -> RetryBudget {
        let retries = RetryBudget::for_command(settings);
        RetryBudget { total: retries.total.min(BACKGROUND_RETRY_TIME), ..retries }
    }

    /// Waits after a version conflict. [`EventStoreError::Contended`] when the time is up.
    pub(crate) async fn after_conflict(&mut self) -> Result<(), EventStoreError> {
        self.conflicts += 1;
        if self.conflicts >= ATTEMPTS_MIN && self.begun.elapsed() >= self.total {
            tracing::warn!(
                target: LOG_TARGET,
                lost = self.conflicts,
                seconds = self.begun.elapsed().as_secs(),
                "gave up after repeated version conflicts"
            );
            return Err(EventStoreError::Contended);
        }
        self.backoff.wait().await;
        Ok(())
    }

    /// Result of an optimistic read; `None` means retry. Only for reads: a write that failed may have been
    /// carried out.
    pub(crate) async fn optimistic_read<T>(
        &mut self,
        found: Result<T, EventStoreError>,
    ) -> Result<Option<T>, EventStoreError> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_conflict(&error) => match self.after_conflict().await {
                Ok(()) => Ok(None),
                Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// Whether a concurrent writer caused the error: an object was replaced and removed while it was read, the
/// manifest changed faster than it was read, or too many events wait for compaction.
fn is_conflict(error: &EventStoreError) -> bool {
    matches!(error, EventStoreError::Contended | EventStoreError::Store(StoreError::Busy(_)))
}

/// How calls to the object store are retried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// Most attempts.
    pub attempts_max: u32,
    /// Wait before the second attempt, about; it doubles before each further one.
    pub first_wait: Duration,
    /// Longest single wait.
    pub longest_wait: Duration,
    /// Timeout of one attempt.
    pub attempt_timeout: Duration,
    /// No further attempt starts after this time.
    pub total: Duration,
    /// The timeouts of a transfer include its time at this rate, in bytes a second; `None` within AWS, where lines are fast.
    pub transfer_rate_min: Option<u64>,
}

impl RetryPolicy {
    /// For a part of an object, read by a request, which has 25 seconds.
    pub(crate) const READ: RetryPolicy = RetryPolicy {
        attempts_max: 6,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_secs(2),
        attempt_timeout: Duration::from_secs(12),
        total: Duration::from_secs(15),
        transfer_rate_min: None,
    };
    /// For whole objects, read or written by background work.
    pub(crate) const WHOLE: RetryPolicy = RetryPolicy {
        attempts_max: 7,
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(5),
        attempt_timeout: Duration::from_secs(120),
        total: Duration::from_secs(180),
        transfer_rate_min: None,
    };

    /// For an optional read at the start of a request.
    pub(crate) const BRIEF: RetryPolicy = RetryPolicy {
        attempts_max: 3,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(200),
        attempt_timeout: Duration::from_secs(3),
        total: Duration::from_secs(5),
        transfer_rate_min: None,
    };

    /// The policy for a transfer of so many bytes.
    pub(crate) fn for_bytes(self, bytes: u64) -> RetryPolicy {
        let transfer =
            self.transfer_rate_min.map_or(Duration::ZERO, |rate| Duration::from_secs(bytes / rate));
        RetryPolicy {
            attempt_timeout: self.attempt_timeout + transfer,
            total: self.total + transfer * 2,
            ..self
        }
    }

    /// Runs `work` until it succeeds, fails permanently, or the policy gives up.
    pub(crate) async fn with<T, F>(&self, work: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = Instant::now();
        let mut backoff = Backoff::new(self.first_wait, self.longest_wait);
        let mut tried = 0;
        loop {
            let error = match tokio::time::timeout(self.attempt_timeout, work()).await {
                Ok(Err(error)) => error,
                Ok(done) => return done,
                Err(_) => Error::Generic {
                    store: "object store",
                    source: format!("no response within {} s", self.attempt_timeout.as_secs_f32()).into(),
                },
            };
            tried += 1;
            if !is_transient(&error)
                || tried >= self.attempts_max
                || begin.elapsed() + backoff.wait > self.total
            {
                return Err(error);
            }
            tracing::warn!(target: LOG_TARGET, %error, tried, "retrying the object store call");
            backoff.wait().await;
        }
    }
}

/// Whether the call may succeed later: throttled, timed out, cut off, or a server error. The object store has
/// one error kind for all of these.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_line_has_timeouts_that_fit_the_size() {
        let (seconds, part) = (Duration::from_secs, 8 << 20);
        let within_aws = RetryPolicy::WHOLE.for_bytes(part);
        assert_eq!((within_aws.attempt_timeout, within_aws.total), (seconds(120), seconds(180)));
        let slow = RetryPolicy { transfer_rate_min: Some(SLOW_LINE_BYTES_PER_SECOND), ..RetryPolicy::WHOLE };
        // 8 MiB at 16 KiB a second take 512 seconds.
        assert_eq!(slow.for_bytes(part).attempt_timeout, seconds(120 + 512));
        assert_eq!(slow.for_bytes(part).total, seconds(180 + 2 * 512));
        assert_eq!(slow.for_bytes(100).attempt_timeout, seconds(120));
    }
}
