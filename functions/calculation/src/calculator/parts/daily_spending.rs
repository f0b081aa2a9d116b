//! What the parts of a project's queries cost in a day, as a counter of GB-milliseconds in the records table.
//!
//! A query counts what it is expected to cost before it begins, and the difference when it has ended, however it ends.
//!
//! Must stay true: a query in parts begins only while the project's day is below its bound, so a day exceeds it by at most what the
//! queries that run at one time cost more than expected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pennon_core::clock::Clock;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Key, StoreError, Table};

/// Seconds after which the counter of a day is no longer needed.
const EXPIRES_AFTER: i64 = 2 * 86_400;

/// A query's share of the day. Dropping it counts what the query has cost so far, or was expected to, if that is more.
#[derive(Debug)]
pub(super) struct DailySpending {
    records: Table,
    key: Key,
    /// GB-milliseconds that were counted.
    expected: i64,
    memory_gb: f64,
    /// The time of the query's invocations so far, in microseconds.
    pub invoked_micros: Arc<AtomicU64>,
    is_settled: bool,
}

impl DailySpending {
    /// Counts the expected cost of a query, in GB-seconds. `None` if the day has used up `most`. The invocations have `memory_gb` each.
    pub(super) async fn begin(
        records: &Table,
        project: ProjectId,
        (expected, most): (f64, f64),
        memory_gb: f64,
    ) -> Result<Option<DailySpending>, StoreError> {
        // The machine's clock, not the service's: the account pays by it.
        let now = Clock::Running.now(None);
        let key = keys::part_spending(project, now.date_naive());
        let expected = gb_millis(expected);
        let expiry = now.timestamp() + EXPIRES_AFTER;
        let is_below = records.add_if_below(&key, expected, gb_millis(most), expiry).await?;
        let invoked_micros = Arc::default();
        let records = records.clone();
        Ok(is_below.then_some(DailySpending {
            records,
            key,
            expected,
            memory_gb,
            invoked_micros,
            is_settled: false,
        }))
    }

    /// Counts what the invocations have cost instead of what was expected.
    pub(super) async fn settle(mut self) {
        self.is_settled = true;
        count(&self.records, &self.key, self.cost().saturating_sub(self.expected)).await;
    }

    /// GB-milliseconds of the invocations so far.
    fn cost(&self) -> i64 {
        gb_millis(self.invoked_micros.load(Ordering::Relaxed) as f64 / 1e6 * self.memory_gb)
    }
}

impl Drop for DailySpending {
    fn drop(&mut self) {
        let difference = self.cost().saturating_sub(self.expected);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // Parts of a cancelled query run on for a moment, so it counts at least what was expected.
        if !self.is_settled && difference > 0 {
            let (records, key) = (self.records.clone(), self.key.clone());
            runtime.spawn(async move { count(&records, &key, difference).await });
        }
    }
}

async fn count(records: &Table, key: &Key, difference: i64) {
    if let Err(error) = records.increment(key, difference).await {
        tracing::warn!(%error, "the cost of a query in parts could not be counted");
    }
}

/// GB-milliseconds of GB-seconds.
fn gb_millis(gb_seconds: f64) -> i64 {
    (gb_seconds * 1e3).ceil() as i64
}
