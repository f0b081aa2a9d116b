//! The limits of lists of persons, events, definitions and property values.

/// Characters of a text by which a list is filtered or searched.
pub const TEXT_CHARS: usize = 1000;
/// Names in a query parameter.
pub const NAMES: usize = 1000;
/// Event names in `event_names`.
pub const EVENT_NAMES: usize = 20;
/// Events of a page.
pub const EVENTS: usize = 1000;
/// Events of a page, without `limit`.
pub const EVENTS_DEFAULT: usize = 100;
/// Property values of a response.
pub const VALUES: usize = 1000;
/// Property values of a response, without `limit`.
pub const VALUES_DEFAULT: usize = 10;
/// Bytes of the properties of a page of events, as JSON, after which the page ends: a response has at most 6 MB.
pub const PAGE_BYTES: usize = 3_000_000;
/// Events that are read for one page of events.
pub const PAGE_EVENTS_READ: usize = 20_000;
/// Bytes of event files that are read for one page of events.
pub const PAGE_BYTES_READ: u64 = 64 << 20;
/// Events of each name that are searched for the names of their properties.
pub const SEARCHED_EVENTS: usize = 1000;
/// Days without an event after which an event definition is stale.
pub const STALE_DAYS: i64 = 30;
