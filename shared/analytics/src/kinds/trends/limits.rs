//! The limits of trends, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Series of one trend: formulas name them by one letter.
pub const SERIES: usize = 26;
/// Buckets of all series of a result together: 11,520 minutes for four series with a comparison period.
pub const POINTS: usize = 100_000;
/// Numbers of all rows of a result together.
pub const RESULT_POINTS: usize = 200_000;
/// Memory of the numbers, values and sets of one trend while it is computed, in bytes.
pub const TREND_MEMORY_BYTES: usize = 256 << 20;
/// Formulas of one trend.
pub const FORMULAS: usize = 26;
/// Bytes of one formula.
pub const FORMULA_BYTES: usize = 4_096;
/// Nesting depth of parentheses and powers in a formula.
pub const FORMULA_DEPTH: usize = 64;

/// The error for a query that would take too much memory.
pub fn too_much_memory() -> CalcError {
    let most = TREND_MEMORY_BYTES >> 20;
    let detail = format!(
        "Counting this takes more than {most} MiB of values at once. Narrow the dates, the events or the breakdown."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// Whether one number per bucket and breakdown value is within the memory limit.
pub fn numbers_fit(values: usize, buckets: usize) -> bool {
    values.saturating_mul(buckets).saturating_mul(size_of::<u64>()) <= TREND_MEMORY_BYTES
}
