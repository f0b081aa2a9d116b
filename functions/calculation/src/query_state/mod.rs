//! The state of background calculations, one row per cache key, and their status in responses.
//!
//! Must stay true: a row is only replaced under the condition of the version that was read; a version is never used twice,
//! also not by a row that was deleted and created again.

mod state;
mod status;

use chrono::{DateTime, Utc};
use pennon_core::clock::Clock;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError, WriteCondition};

pub use state::{Failure, QueryProgress};
pub(crate) use state::{QueryState, RunEnd, RunSummary, StartRequest, Transition, Waiter};
pub use status::QueryStatus;

/// Time to live of a job or a state in seconds.
const ROW_TTL_SECONDS: i64 = 2 * 3600;

/// The state of a background calculation, with the version of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedQueryState {
    pub(crate) state: QueryState,
    pub(crate) version: u64,
}

impl VersionedQueryState {
    /// Decodes an item; `None` where there is none or this release cannot read it.
    pub(crate) fn from_item(item: Option<&Item>) -> Option<VersionedQueryState> {
        let item = item?;
        let state = item
            .body()
            .inspect_err(
                |error| tracing::warn!(%error, "the state of a calculation cannot be decoded and is ignored"),
            )
            .ok()?;
        Some(VersionedQueryState { state, version: item.version })
    }

    /// The row and its condition after the client has fetched the pending results.
    pub(crate) fn with_result_fetched(
        &self,
        project: u64,
        cache_key: &str,
    ) -> Result<(Item, WriteCondition), StoreError> {
        let (guard, version) = next_version(Some(self.version));
        Ok((state_row(project, cache_key, &self.state.with_results_fetched(), version)?, guard))
    }
}

/// Expiry of a row written now, in seconds since the epoch.
pub(crate) fn row_expiry() -> i64 {
    // The machine's clock, not the service's: DynamoDB expires items by it.
    Clock::Running.now(None).timestamp() + ROW_TTL_SECONDS
}

/// The row of a state.
pub(crate) fn state_row(
    project: ProjectId,
    cache_key: &str,
    state: &QueryState,
    version: u64,
) -> Result<Item, StoreError> {
    let item = Item::new(keys::query_state(project, cache_key), state)?;
    Ok(item.with_version(version).expiring(row_expiry()))
}

/// The condition for replacing a row of this version, and the new version.
pub(crate) fn next_version(version: Option<u64>) -> (WriteCondition, u64) {
    match version {
        Some(version) => (WriteCondition::Version(version), version + 1),
        // Not 1: a deleted row may have had that version, and another process may still hold it.
        None => {
            (WriteCondition::Absent, u64::try_from(Clock::Running.now(None).timestamp_micros()).unwrap_or(1))
        }
    }
}

/// The machine's clock, for heartbeats.
pub(crate) fn machine_now() -> DateTime<Utc> {
    Clock::Running.now(None)
}
