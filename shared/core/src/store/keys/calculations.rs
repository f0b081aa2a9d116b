//! Keys of calculations: results, and state and jobs of background calculations.
//!
//! Must stay true: no other partition key starts with [`JOB_PREFIX`], because the stream is filtered by it.

use chrono::NaiveDate;
use uuid::Uuid;

use super::ProjectId;
use crate::store::Key;

/// A stored calculation result.
pub fn result(project: ProjectId, cache_key: &str) -> Key {
    Key::new(format!("PROJECT#{project}#RESULT"), cache_key)
}

/// Maximum length of a caller's name for a calculation, in bytes, by DynamoDB's limit for sort keys.
pub const QUERY_NAME_BYTES_MAX: usize = 1000;

fn queries_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#QUERY")
}

/// The state of the background calculation with this cache key.
pub fn query_state(project: ProjectId, cache_key: &str) -> Key {
    Key::new(queries_pk(project), format!("KEY#{cache_key}"))
}

/// The calculations that a caller gave this name.
pub fn query_name(project: ProjectId, name: &str) -> Key {
    Key::new(queries_pk(project), format!("ID#{name}"))
}

/// Number of partitions of the job queue.
pub const JOB_SHARDS: u128 = 8;
/// The prefix of the job queue's partitions.
pub const JOB_PREFIX: &str = "JOB#";

/// A partition of the job queue.
pub fn jobs_pk(shard: u128) -> String {
    format!("{JOB_PREFIX}{shard}")
}

/// A queued calculation. Its uuid ends in random bits, which spread jobs over the partitions.
pub fn job(id: Uuid) -> Key {
    Key::new(jobs_pk(id.as_u128() % JOB_SHARDS), id.to_string())
}

/// The lease of a query that is calculated in parts.
pub fn part_lease(project: ProjectId, id: Uuid) -> Key {
    Key::new(queries_pk(project), format!("PARTS#{id}"))
}

/// The counter of what the parts of the project's queries have cost on a day.
pub fn part_spending(project: ProjectId, day: NaiveDate) -> Key {
    Key::new(queries_pk(project), format!("SPENT#{day}"))
}

/// All partitions of the job queue.
pub fn jobs_pks() -> impl Iterator<Item = String> {
    (0..JOB_SHARDS).map(jobs_pk)
}
