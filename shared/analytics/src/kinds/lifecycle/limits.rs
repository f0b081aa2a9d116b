//! The limits of lifecycles, beside those of all queries.

pub(crate) use crate::limits::*;

/// Series of one query.
pub const SERIES: usize = 26;
/// Shown periods of a result.
pub const PERIODS: usize = 10_000;
