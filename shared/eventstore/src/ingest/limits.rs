//! Limits of what is stored straight as segments, and what came of it.

use crate::EventStore;

/// Most events of one call of [`EventStore::ingest`]: what fits into the memory of an import, twice, beside a
/// segment that is being written.
pub const EVENTS_PER_SEGMENT_MAX: usize = 1_250_000;

/// What became of imported events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Events that are new.
    pub stored: u64,
    /// Events whose uuid was there already; they were left as they were.
    pub copies: u64,
}

impl EventStore {
    /// Rows of a person range, about.
    pub(crate) fn range_rows(&self) -> usize {
        self.inner.settings.range_rows
    }
}
