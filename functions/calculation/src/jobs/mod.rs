//! Calculations in the background: started by a request, done by whoever the records table's stream wakes.
//!
//! A calculation that is started is two rows, written in one transaction: its state ([`state`]), one row a question, and a
//! job ([`keys::job`]), whose insertion the stream tells a worker. Must stay true: a job that was written is done or given
//! up by its askers, whoever dies meanwhile; a job delivered twice has one effect; equal questions are calculated once;
//! what callers were told is still true when they ask again.
//!
//! Whoever works for a job holds the claim on its state and shows it every half a second; every sign of life is a
//! conditional write, so the one who was cancelled or taken for dead notices. Nobody compares the clocks of two
//! machines: a worker is dead when another one has watched its state for the length of a lease without any change.

mod ask;
mod start;
pub(crate) mod state;
mod status;
mod work;

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::clock::Clock;
use pennon_core::store::keys;
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Table};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::calculator::Purpose;
use crate::source::Source;

pub use state::{Failure, Progress};
pub use status::Status;

pub(crate) use ask::query_name_is_too_long;
pub(crate) use start::Wanted;
pub(crate) use state::{Asker, End, State, Wish};

/// How often a job that fails for a reason that may pass is tried.
pub const ATTEMPTS_MAX: u32 = 3;
/// Seconds after which the store may forget a job, or a state whose calculation does not end.
const KEPT_SECONDS: i64 = 2 * 3600;

/// The name of a job: that of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobKey(Uuid);

impl JobKey {
    /// The job whose row lies there; none for other rows.
    pub fn parse(pk: &str, sk: &str) -> Option<JobKey> {
        let id: Uuid = sk.parse().ok()?;
        let key = keys::job(id);
        (key.pk == pk && key.sk == sk).then_some(JobKey(id))
    }

    /// Where its row lies.
    pub fn row(self) -> Key {
        keys::job(self.0)
    }
}

/// How a job is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Time for one attempt.
    pub time: Duration,
    /// How often a worker shows that it is alive, and learns whether it is still wanted.
    pub beat: Duration,
    /// A worker that shows no sign of life for this long is dead. Zero where no other worker can be.
    pub lease: Duration,
}

impl Default for JobLimits {
    fn default() -> JobLimits {
        JobLimits {
            time: Duration::from_secs(5 * 60),
            beat: Duration::from_millis(500),
            lease: Duration::from_secs(10),
        }
    }
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has ended, well or badly, and callers are told.
    Done,
    /// There was nothing to do, or nobody wants it any more.
    Dropped,
    /// It has to be tried again, after a pause: the store or the events could not be reached, it ran out of time, or
    /// somebody else is at it.
    Again,
}

/// A job, as its row has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Job {
    project: u64,
    /// The question.
    source: Source,
    purpose: Purpose,
    invalidation: Option<String>,
    /// Where its state and its result lie.
    cache_key: String,
}

/// The state of a question's calculation as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Tracked {
    pub(crate) state: State,
    version: u64,
}

impl Tracked {
    /// What an item holds; none where this release cannot read it.
    pub(crate) fn read(item: Option<&Item>) -> Option<Tracked> {
        let item = item?;
        let state = item
            .body()
            .inspect_err(|error| tracing::warn!(%error, "the state of a calculation is passed over"))
            .ok()?;
        Some(Tracked { state, version: item.version })
    }

    /// The row when the result has been fetched that was promised.
    pub(crate) fn with_promise_kept(
        &self,
        project: u64,
        cache_key: &str,
    ) -> Result<(Item, Guard), StoreError> {
        let (guard, version) = start::next(Some(self.version));
        Ok((start::row(project, cache_key, &self.state.with_promises_kept(), version)?, guard))
    }
}

/// Which calculations a caller's name stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    targets: Vec<Target>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Target {
    cache_key: String,
    generation: Uuid,
    insight_id: Option<u64>,
    dashboard_id: Option<u64>,
}

/// The machine's clock, which says who is alive.
fn machine_now() -> DateTime<Utc> {
    Clock::Running.now(None)
}

/// The jobs that wait, or whose workers may have died: at most as many as a page of each partition holds.
pub async fn left_over(records: &Table) -> Result<Vec<JobKey>, StoreError> {
    let pages = keys::jobs_pks().map(|pk| records.query(Query::partition(pk).limit(LEFT_OVER_MAX)));
    let rows = futures::future::try_join_all(pages.collect::<Vec<_>>()).await?;
    Ok(rows.into_iter().flatten().filter_map(|row| JobKey::parse(&row.key.pk, &row.key.sk)).collect())
}

/// Jobs of one partition that are found at once; the next look finds the next.
const LEFT_OVER_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_is_named_by_its_row_and_by_nothing_else() {
        let id = Uuid::now_v7();
        let row = keys::job(id);
        assert_eq!(JobKey::parse(&row.pk, &row.sk), Some(JobKey(id)));
        assert_eq!(JobKey(id).row(), row);
        assert!(row.pk.starts_with(keys::JOB_PREFIX));
        let other = keys::jobs_pk((id.as_u128() + 1) % keys::JOB_SHARDS);
        let upper = row.sk.to_uppercase();
        let (pk, sk) = (row.pk.as_str(), row.sk.as_str());
        for (pk, sk) in [(other.as_str(), sk), ("PROJECT#1", sk), (pk, "x"), (pk, upper.as_str())] {
            assert_eq!(JobKey::parse(pk, sk), None, "{pk} {sk}");
        }
    }

    #[test]
    fn jobs_spread_over_the_partitions() {
        let mut seen = std::collections::BTreeMap::<String, usize>::new();
        for _ in 0..800 {
            *seen.entry(keys::job(pennon_core::ids::new_uuid()).pk).or_default() += 1;
        }
        assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), keys::jobs_pks().collect::<Vec<_>>());
        assert!(seen.values().all(|count| *count > 30), "{seen:?}");
    }
}
