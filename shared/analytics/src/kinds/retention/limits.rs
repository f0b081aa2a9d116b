//! The limits of retention, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Columns of a result without custom brackets.
pub const COLUMNS: usize = 100;
/// Custom brackets: with the first column, a result has as many columns as without.
pub const BRACKETS: usize = COLUMNS - 1;
/// Cells of a result, rows times columns.
pub const CELLS: usize = 100_000;
/// Cells of the results of all breakdown values together.
pub const RESULT_CELLS: usize = 200_000;
/// Memory of the cells of one query while it is computed, in bytes.
pub const RETENTION_MEMORY_BYTES: usize = 256 << 20;

/// The error for a range of so many periods that a result would have too many cells.
pub fn too_many_periods(periods: usize, columns: usize) -> CalcError {
    let detail = format!(
        "The range has {periods} periods; with {columns} columns there can be at most {}. Use a shorter date range, a longer \
         period or fewer intervals.",
        CELLS / columns.max(1)
    );
    CalcError::invalid("date_from", detail)
}

/// The error for a query that would take too much memory.
pub fn too_much_memory() -> CalcError {
    let most = RETENTION_MEMORY_BYTES >> 20;
    let detail = format!(
        "Counting this takes more than {most} MiB of cells at once. Narrow the dates, the events or the breakdown."
    );
    CalcError::coded("invalid_input", None, detail)
}
