//! What the parts of a project's queries cost in a day, as a counter of GB-milliseconds in the records table.
//!
//! Must stay true: a query in parts begins only while the project's day is below its bound, so a day exceeds it by at most the
//! queries that run at one time; the cost of a query that was cancelled stays counted as it was expected.

use std::time::Duration;

use pennon_core::clock::Clock;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Key, StoreError, Table};

/// Seconds after which the counter of a day is no longer needed.
const EXPIRES_AFTER: i64 = 2 * 86_400;

/// A query's share of the day.
#[derive(Debug)]
pub(super) struct DailySpending {
    records: Table,
    key: Key,
    counted: i64,
}

impl DailySpending {
    /// Counts the expected cost of a query, in GB-seconds. `None` if the day has used up `most`.
    pub(super) async fn begin(
        records: &Table,
        project: ProjectId,
        expected: f64,
        most: f64,
    ) -> Result<Option<DailySpending>, StoreError> {
        // The machine's clock, not the service's: the account pays by it.
        let now = Clock::Running.now(None);
        let key = keys::part_spending(project, now.date_naive());
        let counted = millis(expected);
        let expiry = now.timestamp() + EXPIRES_AFTER;
        let is_below = records.add_if_below(&key, counted, millis(most), expiry).await?;
        Ok(is_below.then(|| DailySpending { records: records.clone(), key, counted }))
    }

    /// Counts what the invocations of the query have cost instead: their time in sum, of `memory_gb` each.
    pub(super) async fn settle(self, invoked: Duration, memory_gb: f64) {
        let difference = millis(invoked.as_secs_f64() * memory_gb).saturating_sub(self.counted);
        if let Err(error) = self.records.increment(&self.key, difference).await {
            tracing::warn!(%error, "the cost of a query in parts could not be counted");
        }
    }
}

/// GB-milliseconds of GB-seconds.
fn millis(gb_seconds: f64) -> i64 {
    (gb_seconds * 1e3).ceil() as i64
}
