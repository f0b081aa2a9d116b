//! Limits on filters, dates and values of bodies, with their error texts.
//!
//! Must stay true: with these limits, compiling and testing any filter takes bounded memory and time.

use crate::error::CalcError;

/// Bytes of one regular expression.
pub const REGEX_BYTES: usize = 4_096;
/// Size of one compiled regular expression, in bytes.
pub const REGEX_COMPILED_BYTES: usize = 1 << 20;
/// Bytes of a compiled regular expression times bytes of the searched text: at most half a second.
pub const REGEX_SEARCH_WORK: usize = 1 << 30;
/// Regular expressions in one query.
pub const REGEXES: usize = 64;
/// Buckets of one series: the default date range has up to 11,520 minutes.
pub const BUCKETS: usize = 12_000;
/// Tags of a record.
pub const TAGS: usize = 100;
/// Characters of one tag.
pub const TAG_CHARS: usize = 255;

/// Comparisons in one partition, or for one page of a list of events or persons: each distinct value with each value of each
/// filter, and each node of an SQL expression. About ten seconds on one core.
pub const EVALUATIONS: u64 = 1 << 29;
/// Bytes of a text that count as one more comparison.
pub const EVALUATION_BYTES: usize = 64;

/// The error for any other exceeded limit. `what` is a plural noun.
pub fn too_many(attr: &str, what: &str, most: usize) -> CalcError {
    CalcError::invalid(attr, format!("Too many {what}: at most {most} are allowed."))
}

/// The error for a text that is too long.
pub fn too_long(attr: &str, what: &str, most: usize) -> CalcError {
    CalcError::invalid(attr, format!("The {what} is too long: at most {most} bytes are allowed."))
}

/// The error for a query that compares too many values.
pub fn too_many_evaluations() -> CalcError {
    let detail = format!(
        "Filters and expressions compare too many values: at most {EVALUATIONS} comparisons, of distinct values times the \
         filters and list entries that they are compared with, are made for one share of the persons. Narrow the dates or \
         the events, or use fewer filters, shorter lists or shorter expressions."
    );
    CalcError::coded("invalid_input", None, detail)
}
