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
