//! Limits of requests, by the kind of request. They stand here because the API document states them as well.
//!
//! Must stay true: a request at the limit is accepted, one past it is refused and changes nothing.

pub mod api_keys;
pub mod calculation;
pub mod capture;
pub mod evaluation;
pub mod insights;
