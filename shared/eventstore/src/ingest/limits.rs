//! Limits and result of an import call.

use crate::EventStore;

/// Most events of one call of [`EventStore::ingest`]: they fit into the memory of an import twice, beside a
/// segment that is being written.
pub const EVENTS_PER_SEGMENT_MAX: usize = 1_250_000;

/// Counters of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IngestReport {
    /// New events.
    pub stored: u64,
    /// Duplicates, which were dropped.
    pub copies: u64,
}

impl EventStore {
    /// Approximate rows of a person range.
    pub(crate) fn range_rows(&self) -> usize {
        self.inner.settings.range_rows
    }
}
