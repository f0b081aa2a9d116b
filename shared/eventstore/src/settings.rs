//! What a deployment may decide about the event store.
//!
//! Must stay true: no setting changes an answer.

use std::time::Duration;

use crate::segment::RANGE_ROWS;

/// About how many bytes the rows of a person range take when segments are merged: they are put in order as a whole, and
/// beside them lies what comes of them.
const MERGED_RANGE_BYTES: u64 = 512 << 20;
/// How long a command goes on when other writers are always faster.
const TURNS_IN_ALL: Duration = Duration::from_secs(600);
/// The longest time that it then waits at once.
const LONGEST_TURN_WAIT: Duration = Duration::from_secs(2);

/// Memory and layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of decoded columns that are kept between scans, of all projects together.
    pub cache_bytes: u64,
    /// Most bytes that the events of one question may take in memory, all its scans together; larger questions are
    /// refused. What is being decoded takes half as much besides, of all questions together, or what one part of one row
    /// group needs.
    pub scan_bytes: u64,
    /// Rows of a person range of a segment to be written, about.
    pub range_rows: usize,
    /// Most bytes that the rows of a person range may take in memory, about, where segments are merged into one. Ranges are
    /// made narrower for it, and segments that no range is narrow enough for are not merged.
    pub merged_range_bytes: u64,
    /// How long a writer goes on trying when others change the segments each time before it.
    pub turns_in_all: Duration,
    /// The longest time that it then waits at once.
    pub longest_turn_wait: Duration,
}

impl Settings {
    /// For a process that may use so many bytes for events: one half for what is kept, one for what is asked.
    pub fn for_memory(bytes: u64) -> Settings {
        Settings {
            cache_bytes: bytes / 2,
            scan_bytes: bytes / 2,
            range_rows: RANGE_ROWS,
            merged_range_bytes: MERGED_RANGE_BYTES,
            turns_in_all: TURNS_IN_ALL,
            longest_turn_wait: LONGEST_TURN_WAIT,
        }
    }
}

impl Default for Settings {
    /// For 2 GiB.
    fn default() -> Settings {
        Settings::for_memory(2 << 30)
    }
}
