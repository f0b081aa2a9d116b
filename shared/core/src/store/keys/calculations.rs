//! Rows of calculations: their results, and those in the background.
//!
//! Must stay true: no other partition begins as those of waiting calculations do, because the stream is filtered by it.

use uuid::Uuid;

use super::ProjectId;
use crate::store::Key;

/// A stored calculation result.
pub fn result(project: ProjectId, cache_key: &str) -> Key {
    Key::new(format!("PROJECT#{project}#RESULT"), cache_key)
}

/// Longest name that a caller can give to a calculation, in bytes: the store takes no longer keys.
pub const QUERY_NAME_BYTES_MAX: usize = 1000;

fn queries_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#QUERY")
}

/// What is known of the calculation in the background of the question with this cache key.
pub fn query_state(project: ProjectId, cache_key: &str) -> Key {
    Key::new(queries_pk(project), format!("KEY#{cache_key}"))
}

/// Which calculations a caller's name stands for.
pub fn query_name(project: ProjectId, name: &str) -> Key {
    Key::new(queries_pk(project), format!("ID#{name}"))
}

/// Over how many partitions calculations that wait are spread.
pub const JOB_SHARDS: u128 = 8;
/// What the partitions of calculations that wait begin with, and no others do.
pub const JOB_PREFIX: &str = "JOB#";

/// One of the partitions of calculations that wait.
pub fn jobs_pk(shard: u128) -> String {
    format!("{JOB_PREFIX}{shard}")
}

/// A calculation that waits for a worker. Its uuid ends in random bits.
pub fn job(id: Uuid) -> Key {
    Key::new(jobs_pk(id.as_u128() % JOB_SHARDS), id.to_string())
}

/// The calculations that wait are in these partitions.
pub fn jobs_pks() -> impl Iterator<Item = String> {
    (0..JOB_SHARDS).map(jobs_pk)
}
