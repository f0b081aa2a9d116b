//! Trying again what failed for a passing reason: a throttled, failing or slow object store, or another writer who was
//! faster with the manifest.
//!
//! Must stay true: tries and waits are bounded, so that whoever waits gets an answer; what will not change by waiting
//! (an object that is not there, credentials that do not fit) is not tried again; waits differ by chance, so that those
//! who failed together do not come back together.

use std::time::Duration;

use object_store::Error;
use pennon_core::store::StoreError;
use tokio::time::Instant;

use crate::error::EventStoreError;
use crate::settings::Settings;

/// Log target of retries. Operators and the CLI filter by it, so it does not follow the module path.
const LOG_TARGET: &str = "pennon_eventstore::retry";
/// Tries that a writer has, however long each takes.
const ATTEMPTS_MIN: u32 = 8;
/// About so long a writer waits who lost the first time.
const FIRST_CONFLICT_WAIT: Duration = Duration::from_millis(20);
/// Work that comes again by itself goes on no longer than this.
const BACKGROUND_RETRY_TIME: Duration = Duration::from_secs(60);

/// Waits between tries: each twice as long as the one before, up to a longest one.
#[derive(Debug)]
struct Backoff {
    wait: Duration,
    longest: Duration,
}

impl Backoff {
    fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { wait: first.min(longest), longest }
    }

    /// Waits between half and all of the time whose turn it is.
    async fn wait(&mut self) {
        let half = self.wait / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        tokio::time::sleep(half + Duration::from_micros(pennon_core::ids::random_below(micros))).await;
        self.wait = (self.wait * 2).min(self.longest);
    }
}

/// The tries of a writer who changes the manifest, or what else others change too: it looks at what is there, judges, and
/// writes only where nobody was faster.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    begun: Instant,
    conflicts: u32,
    /// After this no other try begins, unless there were few.
    total: Duration,
    backoff: Backoff,
}

impl RetryBudget {
    /// Those of work that somebody waits for, who would have to begin anew by hand.
    pub(crate) fn for_command(settings: &Settings) -> RetryBudget {
        let backoff = Backoff::new(FIRST_CONFLICT_WAIT, settings.longest_turn_wait);
        RetryBudget { begun: Instant::now(), conflicts: 0, total: settings.turns_in_all, backoff }
    }

    /// Those of work that comes again by itself.
    pub(crate) fn for_background_task(settings: &Settings) -> RetryBudget {
        let retries = RetryBudget::for_command(settings);
        RetryBudget { total: retries.total.min(BACKGROUND_RETRY_TIME), ..retries }
    }

    /// After a try for which somebody else was faster. [`EventStoreError::Contended`] when time is up.
    pub(crate) async fn after_conflict(&mut self) -> Result<(), EventStoreError> {
        self.conflicts += 1;
        if self.conflicts >= ATTEMPTS_MIN && self.begun.elapsed() >= self.total {
            tracing::warn!(
                target: LOG_TARGET,
                lost = self.conflicts,
                seconds = self.begun.elapsed().as_secs(),
                "others were always faster"
            );
            return Err(EventStoreError::Contended);
        }
        self.backoff.wait().await;
        Ok(())
    }

    /// What somebody found who looked at what is there; none where others were in the way, and it is to be looked at again.
    /// Only of what writes nothing: a write that failed may have been carried out.
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

/// Whether it is because of what others do meanwhile: what was to be read was replaced and removed, or changed
/// faster than it was read, or too much waited for a compaction.
fn is_conflict(error: &EventStoreError) -> bool {
    matches!(error, EventStoreError::Contended | EventStoreError::Store(StoreError::Busy(_)))
}

/// How long is waited for an object store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// Most tries.
    pub attempts_max: u32,
    /// About so long is waited before the second try, twice as long before each further one.
    pub first_wait: Duration,
    /// No wait is longer.
    pub longest_wait: Duration,
    /// One try may take so long.
    pub attempt_timeout: Duration,
    /// After this, no other try begins.
    pub total: Duration,
}

impl RetryPolicy {
    /// For a part of an object: whoever waits is a request, which has 25 seconds.
    pub(crate) const READ: RetryPolicy = RetryPolicy {
        attempts_max: 6,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_secs(2),
        attempt_timeout: Duration::from_secs(12),
        total: Duration::from_secs(15),
    };
    /// For whole objects, written or read by work that no request waits for.
    pub(crate) const WHOLE: RetryPolicy = RetryPolicy {
        attempts_max: 7,
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(5),
        attempt_timeout: Duration::from_secs(120),
        total: Duration::from_secs(180),
    };

    /// For what a request asks for first and can do without.
    pub(crate) const BRIEF: RetryPolicy = RetryPolicy {
        attempts_max: 3,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(200),
        attempt_timeout: Duration::from_secs(3),
        total: Duration::from_secs(5),
    };

    /// What `work` gives, which is begun anew as often as needed.
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
                    source: format!("no answer within {} s", self.attempt_timeout.as_secs_f32()).into(),
                },
            };
            tried += 1;
            if !is_transient(&error)
                || tried >= self.attempts_max
                || begin.elapsed() + backoff.wait > self.total
            {
                return Err(error);
            }
            tracing::warn!(target: LOG_TARGET, %error, tried, "the object store is tried again");
            backoff.wait().await;
        }
    }
}

/// Whether the same call may succeed later: throttled, timed out, cut off, or an error of the server. The object store
/// has one kind of error for all of these.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { .. })
}
