//! What a call of the publisher is to publish, and what it has published.

use pennon_analytics::scan::Micros;

/// The current time.
pub type Clock<'a> = &'a (dyn Fn() -> Micros + Sync);

/// Which tables are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicationMode {
    /// The events, whose files exist already.
    EventsOnly,
    /// Both; the persons ten minutes after their last version.
    Regular,
    /// Both at once.
    AtOnce,
    /// Both at once, without what only erased data has needed: columns, and data files of publishers that stopped.
    AfterErasure,
}

/// What a call published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Publication {
    /// Whether a version of the events table was published.
    pub events: bool,
    /// Whether a version of the persons table was published.
    pub persons: bool,
}
