//! Settings of a deployment: memory limits and layout.
//!
//! Must stay true: no setting changes a query result.

use std::time::Duration;

/// Approximate rows of a person range.
const RANGE_ROWS: usize = 524_288;
/// Most decompressed bytes of blocks in one compaction run. A run takes at least one block.
const INFLATED_BYTES_MAX: u64 = 64 << 20;
/// Most compressed bytes of a shard that one compaction run reads; more than the largest block.
const COMPACTED_BYTES_PER_SHARD: usize = 16 << 20;
/// Most compressed bytes of waiting blocks of a shard that one query reads.
pub(crate) const SHARD_BYTES_MAX: usize = 32 << 20;
/// Approximate memory of the rows of a person range during a merge: they are sorted as a whole, and the output
/// is beside them.
const MERGED_RANGE_BYTES: u64 = 512 << 20;
/// Minimum limits, whatever memory there is: below them compaction makes no progress.
const LEAST_MERGED_RANGE_BYTES: u64 = 16 << 20;
const LEAST_INFLATED_BYTES: u64 = 8 << 20;
const LEAST_SHARD_BYTES: u64 = 8 << 20;
/// How long a command retries version conflicts.
const TURNS_IN_ALL: Duration = Duration::from_secs(600);
/// Longest wait between two retries.
const LONGEST_TURN_WAIT: Duration = Duration::from_secs(2);

/// Memory and layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of decoded columns in the cache, for all projects together.
    pub cache_bytes: u64,
    /// Most bytes of all queries at one time, including aggregation, together with the cache, which is evicted
    /// for queries. A query that alone needs more is refused.
    pub memory_bytes: u64,
    /// Most bytes of the events of one query, all its scans together; larger queries are refused. Decoding
    /// takes half as much in addition, for all queries together, or what one part of one row group needs.
    pub scan_bytes: u64,
    /// Approximate rows of a person range of a new segment.
    pub range_rows: usize,
    /// Approximate limit of the memory of a person range during a merge. Ranges are made narrower to fit;
    /// segments that do not fit at all are not merged.
    pub merged_range_bytes: u64,
    /// Most decompressed bytes of blocks of one compaction run; at least one block.
    pub compacted_bytes: u64,
    /// Most compressed bytes of a shard that one compaction run reads.
    pub compacted_shard_bytes: usize,
    /// Most compressed bytes of waiting blocks of a shard that one query reads.
    pub shard_bytes: usize,
    /// How long a writer retries version conflicts.
    pub turns_in_all: Duration,
    /// Longest wait between two retries.
    pub longest_turn_wait: Duration,
}

impl Settings {
    /// Settings for a process that may use so many bytes for queries: at most half for the cache and half for
    /// the events of one query. Compaction takes at most about a quarter in addition.
    pub fn for_memory(bytes: u64) -> Settings {
        Settings {
            memory_bytes: bytes,
            cache_bytes: bytes / 2,
            scan_bytes: bytes / 2,
            range_rows: RANGE_ROWS,
            merged_range_bytes: (bytes / 4).clamp(LEAST_MERGED_RANGE_BYTES, MERGED_RANGE_BYTES),
            compacted_bytes: (bytes / 8).clamp(LEAST_INFLATED_BYTES, INFLATED_BYTES_MAX),
            compacted_shard_bytes: shard(bytes / 16, COMPACTED_BYTES_PER_SHARD),
            shard_bytes: shard(bytes / 8, SHARD_BYTES_MAX),
            turns_in_all: TURNS_IN_ALL,
            longest_turn_wait: LONGEST_TURN_WAIT,
        }
    }
}

/// Limits bytes of a shard to `most` and at least what compaction needs.
fn shard(bytes: u64, most: usize) -> usize {
    let bytes = usize::try_from(bytes.max(LEAST_SHARD_BYTES)).unwrap_or(most);
    bytes.min(most)
}

impl Default for Settings {
    /// For 2 GiB.
    fn default() -> Settings {
        Settings::for_memory(2 << 30)
    }
}
