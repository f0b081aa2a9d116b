//! The limits of a capture request, beside the 6 MB as sent of [`crate::http::BODY_BYTES_MAX`].

/// Maximum bytes of a body after decompression.
pub const INFLATED_BYTES_MAX: usize = 20_000_000;
/// Maximum events of a request.
pub const EVENTS_MAX: usize = 20_000;
/// Maximum size of an event, as JSON text without whitespace.
pub const EVENT_BYTES_MAX: usize = 900 * 1024;
/// Maximum nesting of arrays and objects in the fields that are stored.
pub const NESTING_MAX: usize = 64;
/// Longer event names are truncated to this number of characters.
pub const NAME_CHARS_MAX: usize = 200;
/// Longer distinct ids are truncated to this number of characters.
pub const DISTINCT_ID_CHARS_MAX: usize = 200;
/// Upper bound of the magnitude of `offset`, in milliseconds: about three thousand years.
pub const OFFSET_MS_MAX: f64 = 1e14;
