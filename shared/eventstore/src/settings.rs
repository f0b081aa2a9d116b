//! Settings of a deployment: memory limits and layout.
//!
//! Must stay true: no setting changes a query result.

use std::time::Duration;

/// Approximate rows of a person range.
const RANGE_ROWS: usize = 524_288;
/// Most decompressed bytes of blocks in one compaction run. A run takes at least one block.
const INFLATED_BYTES_MAX: u64 = 64 << 20;
/// Most compressed bytes of blocks that one compaction run reads, about; more than the largest block.
const COMPACTED_READ_BYTES_MAX: usize = 64 << 20;
/// Most compressed bytes of waiting blocks that one query reads.
const WAITING_BYTES_MAX: usize = 128 << 20;
/// Most waiting blocks that one query reads, and the memory of the process for each of them.
const WAITING_BLOCKS_MAX: usize = 200_000;
const WAITING_BLOCKS_MIN: usize = 20_000;
const MEMORY_PER_WAITING_BLOCK: u64 = 4096;
/// Approximate memory of the rows of a person range during a merge: they are sorted as a whole, and the output
/// is beside them.
const MERGED_RANGE_BYTES: u64 = 512 << 20;
/// Most bytes of segments that are merged into one: the new one is built in memory.
const MERGED_BYTES_MAX: u64 = 512 << 20;
/// Minimum limits, whatever memory there is: below them compaction makes no progress.
const LEAST_MERGED_RANGE_BYTES: u64 = 16 << 20;
const LEAST_MERGED_BYTES: u64 = 32 << 20;
const LEAST_INFLATED_BYTES: u64 = 8 << 20;
const LEAST_BLOCK_BYTES: u64 = 32 << 20;
/// Rows of a merge log that are not folded into an object: less than a page of the table.
const MERGE_ROWS_LEFT: usize = 256;
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
    /// Most bytes of segments that are merged into one, which is built in memory.
    pub merged_bytes: u64,
    /// Most decompressed bytes of blocks of one compaction run; at least one block.
    pub compacted_bytes: u64,
    /// Most compressed bytes of blocks that one compaction run reads, about.
    pub compacted_read_bytes: usize,
    /// Most compressed bytes of waiting blocks that one query reads.
    pub waiting_bytes: usize,
    /// Most waiting blocks that one query reads.
    pub waiting_blocks: usize,
    /// Rows of a merge log that are not folded into an object, at least.
    pub merge_rows_left: usize,
    /// Whether captured blocks insert the rows that wake compaction, for a worker that reads the table's stream.
    pub wakes_compaction: bool,
    /// Write units a second with which compaction deletes the blocks of one partition; `None` without a limit, for tables
    /// of this machine.
    pub deleted_units: Option<u32>,
    /// How long a writer retries version conflicts.
    pub turns_in_all: Duration,
    /// Longest wait between two retries.
    pub longest_turn_wait: Duration,
}

/// [`Settings::deleted_units`] for DynamoDB, whose partitions take 1,000: captures have the other half.
const DELETED_UNITS: u32 = 500;

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
            merged_bytes: (bytes / 2).clamp(LEAST_MERGED_BYTES, MERGED_BYTES_MAX),
            compacted_bytes: (bytes / 8).clamp(LEAST_INFLATED_BYTES, INFLATED_BYTES_MAX),
            compacted_read_bytes: block_bytes(bytes / 4, COMPACTED_READ_BYTES_MAX),
            waiting_bytes: block_bytes(bytes / 2, WAITING_BYTES_MAX),
            waiting_blocks: usize::try_from(bytes / MEMORY_PER_WAITING_BLOCK)
                .unwrap_or(WAITING_BLOCKS_MAX)
                .clamp(WAITING_BLOCKS_MIN, WAITING_BLOCKS_MAX),
            merge_rows_left: MERGE_ROWS_LEFT,
            wakes_compaction: false,
            deleted_units: None,
            turns_in_all: TURNS_IN_ALL,
            longest_turn_wait: LONGEST_TURN_WAIT,
        }
    }

    /// These settings for tables in DynamoDB.
    pub fn for_dynamodb(self) -> Settings {
        Settings { deleted_units: Some(DELETED_UNITS), ..self }
    }
}

/// Limits bytes of blocks to `most` and at least what compaction needs.
fn block_bytes(bytes: u64, most: usize) -> usize {
    let bytes = usize::try_from(bytes.max(LEAST_BLOCK_BYTES)).unwrap_or(most);
    bytes.min(most)
}

impl Default for Settings {
    /// For 2 GiB.
    fn default() -> Settings {
        Settings::for_memory(2 << 30)
    }
}
