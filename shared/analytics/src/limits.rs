//! The limits on queries of all kinds, with their error texts. Those of one kind are in its folder (`kinds/<kind>/limits.rs`).
//!
//! Must stay true: with all limits together, parsing and planning any request takes bounded memory and time.

use pennon_filters::dates::Micros;
use pennon_filters::error::CalcError;
pub use pennon_filters::limits::*;

/// Nesting depth of groups of property filters.
pub const FILTER_DEPTH: usize = 32;
/// Property filters in one query, in all fields together.
pub const FILTERS: usize = 1_000;
/// Values in the list of one property filter.
pub const FILTER_VALUES: usize = 10_000;
/// Entries of `breakdowns`.
pub const BREAKDOWNS: usize = 3;
/// Maximum of `breakdown_limit`.
pub const BREAKDOWN_LIMIT: usize = 1_000;
/// Distinct breakdown values: of a funnel or trend in one partition, of each series and period, and of retention.
pub const BREAKDOWN_VALUES: usize = 100_000;
/// Bins of a numeric breakdown.
pub const BREAKDOWN_BINS: u32 = 1_000;
/// Cohorts of one breakdown.
pub const BREAKDOWN_COHORTS: usize = 50;
/// Bytes of one link in a result, as servers limit URLs. A longer link is null.
pub const LINK_BYTES: usize = 8_192;
/// Bytes of all links in a result together; further links are null.
pub const LINKS_BYTES: usize = 1 << 20;
/// Bytes of one name: event, property key, custom name.
pub const NAME_BYTES: usize = 4_096;
/// Bytes of one SQL expression.
pub const EXPRESSION_BYTES: usize = 4_096;
/// Nodes of one SQL expression.
pub const EXPRESSION_NODES: usize = 500;
/// Nesting depth of one SQL expression.
pub const EXPRESSION_DEPTH: usize = 64;
/// Bytes of a text computed by an SQL expression; a longer text counts as missing.
pub const EXPRESSION_TEXT: usize = 1 << 16;

/// Steps of one action.
pub const ACTION_STEPS: usize = 100;

/// Nesting depth of cohorts; actions between them are not counted.
pub const COHORT_DEPTH: usize = 32;
/// Behavioural criteria in all cohorts of one query; each takes a separate scan.
pub const BEHAVIOURS: usize = 40;
/// Maximum of `total_periods` in a `performed_event_regularly` criterion.
pub const PERIODS: i64 = 1_000;

/// Memory for building the sessions of a query, in bytes. Sessions of all time are built, at about 500 bytes each, more if
/// the query reads their long text fields.
pub const SESSION_BYTES: usize = 512 << 20;

/// Group types of a project: valid indexes are below this number.
pub const GROUP_TYPES: u64 = 5;

/// The error for an invalid group type index.
pub fn invalid_group_type(attr: &str, value: &serde_json::Value) -> CalcError {
    CalcError::invalid(
        attr,
        format!("{value} is not the index of a group type: these are 0 to {}.", GROUP_TYPES - 1),
    )
}

/// The error for a query whose sessions take more than `most` bytes.
pub fn too_many_sessions(most: usize) -> CalcError {
    let detail = format!(
        "Too many sessions: those of all the project's events take more than {most} bytes, too many to look at properties \
         of sessions."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// Whether a result can have so many links of so many bytes each.
pub fn links_fit(bytes: usize, links: usize) -> bool {
    bytes <= LINK_BYTES && bytes.saturating_mul(links) <= LINKS_BYTES
}

/// Minimum event time: the year 1, in microseconds since 1970.
pub const MIN_EVENT_TIME: Micros = -62_135_596_800_000_000;
/// Maximum event time: the end of the year 9999.
pub const MAX_EVENT_TIME: Micros = 253_402_300_799_999_999;
