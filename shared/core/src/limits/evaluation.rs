//! The limits of an evaluation request of an SDK.

/// Largest body as received.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest body after decompression.
pub const INFLATED_BYTES_MAX: usize = 4 << 20;
/// Largest response before compression.
pub const RESPONSE_BYTES_MAX: usize = 4_500_000;
/// Longest distinct id in characters; longer ones are truncated, as in capture.
pub const DISTINCT_ID_CHARS_MAX: usize = super::capture::DISTINCT_ID_CHARS_MAX;
/// Most characters of any other id.
pub const ID_CHARS_MAX: usize = 400;
/// Most flag keys in a request.
pub const FLAG_KEYS_MAX: usize = 1000;
/// Deepest nesting of arrays and objects in a property value.
pub const NESTING_MAX: usize = 64;
