//! The limits of paths, with their error texts, beside those of all queries.

use pennon_filters::error::CalcError;

pub(crate) use crate::limits::*;

/// Distinct passages of one query: pairs of neighbouring steps, by the number and the item of both. The memory that they
/// take is also counted towards the memory budget of the query.
pub const PASSAGES: usize = 1_000_000;
/// Names in `excludeEvents`.
pub const EXCLUDED_ITEMS: usize = 1_000;
/// Entries of `pathGroupings`.
pub const GROUPINGS: usize = 200;
/// Bytes of a name after a cleaning filter, if the filter made it longer.
pub const CLEANED_BYTES: usize = 1 << 16;

/// The error for paths with more than [`PASSAGES`] distinct passages.
pub fn too_many_passages() -> CalcError {
    let detail = format!(
        "The paths have more than {PASSAGES} different pairs of neighbouring steps. Make equal what need not be distinguished \
         (path cleaning filters with pathReplacements or localPathCleaningFilters, pathGroupings), use a lower stepLimit, or \
         narrow the dates, the events or the filters."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// The error for a cleaning filter that makes a name too long.
pub fn cleaned_name_too_long(regex: &str) -> CalcError {
    let detail = format!(
        "The path cleaning filter with the regex \"{regex}\" makes a name longer than {CLEANED_BYTES} bytes. Use a shorter \
         alias, or a regex that matches less often."
    );
    CalcError::coded("invalid_input", None, detail)
}
