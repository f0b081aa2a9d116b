//! Trying again what failed for a passing reason: a throttled, failing or slow object store.
//!
//! Must stay true: tries and waits are bounded, so that whoever waits gets an answer; what will not change by waiting
//! (an object that is not there, credentials that do not fit) is not tried again.

use std::time::Duration;

use object_store::Error;
use tokio::time::Instant;

/// How long is waited for an object store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Most tries.
    pub tries: u32,
    /// About so long is waited before the second try, twice as long before each further one.
    pub first_wait: Duration,
    /// No wait is longer.
    pub longest_wait: Duration,
    /// One try may take so long.
    pub one_try: Duration,
    /// After this, no other try begins.
    pub in_all: Duration,
}

impl Patience {
    /// For a part of an object: whoever waits is a request, which has 25 seconds.
    pub(crate) const READ: Patience = Patience {
        tries: 6,
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_secs(2),
        one_try: Duration::from_secs(12),
        in_all: Duration::from_secs(15),
    };
    /// For whole objects, written or read by work that no request waits for.
    pub(crate) const WHOLE: Patience = Patience {
        tries: 7,
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(5),
        one_try: Duration::from_secs(120),
        in_all: Duration::from_secs(180),
    };

    /// What `work` gives, which is begun anew as often as needed.
    pub(crate) async fn with<T, F>(&self, work: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begin = Instant::now();
        let mut wait = self.first_wait;
        let mut tried = 0;
        loop {
            let error = match tokio::time::timeout(self.one_try, work()).await {
                Ok(Err(error)) => error,
                Ok(done) => return done,
                Err(_) => Error::Generic {
                    store: "object store",
                    source: format!("no answer within {} s", self.one_try.as_secs_f32()).into(),
                },
            };
            tried += 1;
            if !is_passing(&error) || tried >= self.tries || begin.elapsed() + wait > self.in_all {
                return Err(error);
            }
            tracing::warn!(%error, tried, "the object store is tried again");
            // Between half and all of it, so that those who failed together do not come back together.
            let half = wait / 2;
            let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
            tokio::time::sleep(half + Duration::from_micros(pennon_core::ids::random_below(micros))).await;
            wait = (wait * 2).min(self.longest_wait);
        }
    }
}

/// Whether the same call may succeed later: throttled, timed out, cut off, or an error of the server. The object store
/// has one kind of error for all of these.
pub(crate) fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Generic { .. })
}
