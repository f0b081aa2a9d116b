//! Background calculations: started by a request, run by a worker that the records table's stream triggers.
//!
//! Starting one writes two rows in one transaction: the query's state ([`crate::query_state`]; one row per cache key), and a job
//! ([`keys::job`]), whose insertion reaches a worker through the stream. Must stay true: a job that was written is finished
//! or cancelled by its waiters, wherever a process crashes; a job delivered twice has one effect; equal queries are
//! calculated once; a reported status stays valid for later requests.
//!
//! A worker holds a claim (a lease) on the state and writes a heartbeat every 0.5 s. A heartbeat is a conditional write, so
//! a worker that was cancelled or replaced notices. Clocks of two machines are never compared: a worker is dead when
//! another one has seen no change of its state for the length of a lease.

mod lookup;
mod start;
mod worker;

use std::time::Duration;

use pennon_core::store::keys;
use pennon_core::store::{Key, PartitionQuery, StoreError, Table};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::calculator::CacheScope;
use crate::source::QuerySource;

pub(crate) use lookup::query_name_is_too_long;
pub(crate) use start::BackgroundQuery;

/// Most attempts at a job that fails for a transient reason.
pub const ATTEMPTS_MAX: u32 = 3;

/// Id of a job, taken from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobKey(Uuid);

impl JobKey {
    /// The job of the row with this key; `None` for other rows.
    pub fn parse(pk: &str, sk: &str) -> Option<JobKey> {
        let id: Uuid = sk.parse().ok()?;
        let key = keys::job(id);
        (key.pk == pk && key.sk == sk).then_some(JobKey(id))
    }

    /// The key of its row.
    pub fn row(self) -> Key {
        keys::job(self.0)
    }
}

/// Time limits of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// Time for one attempt.
    pub time: Duration,
    /// Interval of heartbeats, which also detect that the job was cancelled.
    pub beat: Duration,
    /// A worker without a heartbeat for this long is dead. Zero where there can be no other worker.
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

/// The outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    /// It has ended, with a result or a failure.
    Done,
    /// There was nothing to do, or it was cancelled.
    Dropped,
    /// It has to be retried later: the store or the events could not be reached, it timed out, or another worker holds the
    /// claim.
    Retry,
}

/// The row of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Job {
    project: u64,
    /// The query as it was sent.
    source: QuerySource,
    #[serde(rename = "purpose")]
    scope: CacheScope,
    invalidation: Option<String>,
    /// Cache key of its result, which is also the key of its state.
    cache_key: String,
}

/// The row of a client query id: the calculations that it stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ClientQueryId {
    targets: Vec<CalculationRef>,
}

/// A calculation, and what it was requested for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CalculationRef {
    cache_key: String,
    generation: Uuid,
    insight_id: Option<u64>,
    dashboard_id: Option<u64>,
}

/// Jobs that wait, or whose workers may have crashed: at most 100 of each partition.
pub async fn left_over(records: &Table) -> Result<Vec<JobKey>, StoreError> {
    let pages =
        keys::jobs_pks().map(|pk| records.query(PartitionQuery::partition(pk).limit(PENDING_JOBS_MAX)));
    let rows = futures::future::try_join_all(pages.collect::<Vec<_>>()).await?;
    Ok(rows.into_iter().flatten().filter_map(|row| JobKey::parse(&row.key.pk, &row.key.sk)).collect())
}

/// Most jobs of one partition in one call; a later call finds the others.
const PENDING_JOBS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_key_is_parsed_from_its_row_only() {
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
