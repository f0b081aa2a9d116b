//! What a deployment may decide about the event store.
//!
//! Must stay true: no setting changes an answer.

use std::time::Duration;

use crate::blocks::block_log;
use crate::compaction::compact;
use crate::segments::RANGE_ROWS;

/// About how many bytes the rows of a person range take when segments are merged: they are put in order as a whole, and
/// beside them lies what comes of them.
const MERGED_RANGE_BYTES: u64 = 512 << 20;
/// The smallest of these limits, whatever memory there is: below them compaction would not get on.
const LEAST_MERGED_RANGE_BYTES: u64 = 16 << 20;
const LEAST_INFLATED_BYTES: u64 = 8 << 20;
const LEAST_SHARD_BYTES: u64 = 8 << 20;
/// How long a command goes on when other writers are always faster.
const TURNS_IN_ALL: Duration = Duration::from_secs(600);
/// The longest time that it then waits at once.
const LONGEST_TURN_WAIT: Duration = Duration::from_secs(2);

/// Memory and layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of decoded columns that are kept between scans, of all projects together.
    pub cache_bytes: u64,
    /// Most bytes that all questions may take at one time, what they count included, together with what is kept between
    /// scans: kept columns are evicted for questions. A question that alone needs more is refused.
    pub memory_bytes: u64,
    /// Most bytes that the events of one question may take in memory, all its scans together; larger questions are
    /// refused. What is being decoded takes half as much besides, of all questions together, or what one part of one row
    /// group needs.
    pub scan_bytes: u64,
    /// Rows of a person range of a segment to be written, about.
    pub range_rows: usize,
    /// Most bytes that the rows of a person range may take in memory, about, where segments are merged into one. Ranges are
    /// made narrower for it, and segments that no range is narrow enough for are not merged.
    pub merged_range_bytes: u64,
    /// Most bytes of blocks, after inflation, that one run of compaction takes; one block at least.
    pub compacted_bytes: u64,
    /// Most compressed bytes of a shard's blocks that one run of compaction reads.
    pub compacted_shard_bytes: usize,
    /// Most compressed bytes of a shard's blocks that wait for compaction and can still be read by one question.
    pub shard_bytes: usize,
    /// How long a writer goes on trying when others change the segments each time before it.
    pub turns_in_all: Duration,
    /// The longest time that it then waits at once.
    pub longest_turn_wait: Duration,
}

impl Settings {
    /// For a process that may use so many bytes for questions on events: one half at most for what is kept, and one for
    /// the events of one question. Compaction has about as much as a quarter besides, at most.
    pub fn for_memory(bytes: u64) -> Settings {
        Settings {
            memory_bytes: bytes,
            cache_bytes: bytes / 2,
            scan_bytes: bytes / 2,
            range_rows: RANGE_ROWS,
            merged_range_bytes: (bytes / 4).clamp(LEAST_MERGED_RANGE_BYTES, MERGED_RANGE_BYTES),
            compacted_bytes: (bytes / 8).clamp(LEAST_INFLATED_BYTES, compact::INFLATED_BYTES_MAX),
            compacted_shard_bytes: shard(bytes / 16, block_log::COMPACTED_BYTES_PER_SHARD),
            shard_bytes: shard(bytes / 8, block_log::SHARD_BYTES_MAX),
            turns_in_all: TURNS_IN_ALL,
            longest_turn_wait: LONGEST_TURN_WAIT,
        }
    }
}

/// So many bytes of a shard, at most and at least what lets compaction get on.
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
