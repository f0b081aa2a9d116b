//! Limits and result of an import call.

/// Most events of one call of [`crate::EventStore::ingest`]: they fit into the memory of an import twice, beside a
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
