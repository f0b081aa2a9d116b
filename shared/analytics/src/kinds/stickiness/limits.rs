//! The limits of stickiness, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Series of one query.
pub const SERIES: usize = 26;
/// Bars of all series of a result together, with those of the comparison period.
pub const BARS: usize = 100_000;
/// Maximum of `intervalCount`.
pub const INTERVAL_COUNT: i64 = 365;
/// Memory of the values of SQL expressions that are counted as actors, in bytes.
pub const VALUES_MEMORY_BYTES: usize = 256 << 20;

/// The error for a query that would take too much memory.
pub fn too_much_memory() -> CalcError {
    let most = VALUES_MEMORY_BYTES >> 20;
    let detail = format!(
        "The values of math_hogql take more than {most} MiB at once. Narrow the dates or the events, or count persons."
    );
    CalcError::coded("invalid_input", None, detail)
}
