//! The limits of correlations, beside those of all queries.

pub(crate) use crate::limits::*;

/// Names in one list of a correlation.
pub const CORRELATION_NAMES: usize = 1_000;
/// Candidates of a correlation in one partition.
pub const CORRELATION_CANDIDATES: usize = 200_000;
/// Bytes of the names and values of these candidates.
pub const CORRELATION_BYTES: usize = 64 << 20;
