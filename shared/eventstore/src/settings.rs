//! What a deployment may decide about the event store.
//!
//! Must stay true: no setting changes an answer.

use crate::segment::RANGE_ROWS;

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
}

impl Settings {
    /// For a process that may use so many bytes for events: one half for what is kept, one for what is asked.
    pub fn for_memory(bytes: u64) -> Settings {
        Settings { cache_bytes: bytes / 2, scan_bytes: bytes / 2, range_rows: RANGE_ROWS }
    }
}

impl Default for Settings {
    /// For 2 GiB.
    fn default() -> Settings {
        Settings::for_memory(2 << 30)
    }
}
