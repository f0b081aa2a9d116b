//! All limits on queries, with their error texts.
//!
//! Must stay true: with these limits, parsing and planning any request takes bounded memory and time.

use pennon_filters::dates::Micros;
use pennon_filters::error::CalcError;
pub use pennon_filters::limits::*;

/// Steps of one funnel.
pub const STEPS: usize = 32;
/// Series of one trend: formulas name them by one letter.
pub const SERIES: usize = 26;
/// Exclusions of one funnel.
pub const EXCLUSIONS: usize = 32;
/// Nesting depth of groups of property filters.
pub const FILTER_DEPTH: usize = 32;
/// Property filters in one query, in all fields together.
pub const FILTERS: usize = 1_000;
/// Values in the list of one property filter.
pub const FILTER_VALUES: usize = 10_000;
/// Entries of `breakdowns`.
pub const BREAKDOWNS: usize = 3;
/// Keys in the `breakdown` of a funnel.
pub const BREAKDOWN_KEYS: usize = 10;
/// Maximum of `breakdown_limit`.
pub const BREAKDOWN_LIMIT: usize = 1_000;
/// Distinct breakdown values: of a funnel or trend in one partition, and of each series and period.
pub const BREAKDOWN_VALUES: usize = 100_000;
/// Events of one person times its breakdown values of a step, if each value takes a separate pass: 10,000 values times
/// 10,000 events.
pub const STEP_VALUE_EVENTS: usize = 100_000_000;
/// Bins of a numeric breakdown.
pub const BREAKDOWN_BINS: u32 = 1_000;
/// Cohorts of one breakdown.
pub const BREAKDOWN_COHORTS: usize = 50;
/// Buckets of all series of a result together: 11,520 minutes for four series with a comparison period.
pub const POINTS: usize = 100_000;
/// Numbers of all rows of a funnel with a breakdown, in one partition.
pub const FUNNEL_NUMBERS: usize = 1 << 22;
/// Periods of all series of a funnel over time with a breakdown; further series are left out.
pub const FUNNEL_POINTS: usize = 1_000;
/// Steps of all rows of a funnel that has a row for each breakdown value: 1,000 rows of 32 steps.
pub const FUNNEL_OBJECTS: usize = 32_000;
/// Numbers of all rows of a result together.
pub const RESULT_POINTS: usize = 200_000;
/// Memory of the numbers, values and sets of one trend while it is computed, in bytes.
pub const TREND_MEMORY_BYTES: usize = 256 << 20;
/// Bytes of one link in a result, as servers limit URLs. A longer link is null.
pub const LINK_BYTES: usize = 8_192;
/// Bytes of all links in a result together; further links are null.
pub const LINKS_BYTES: usize = 1 << 20;
/// Bytes of one name: event, property key, custom name.
pub const NAME_BYTES: usize = 4_096;
/// Formulas of one trend.
pub(crate) const FORMULAS: usize = 26;
/// Bytes of one formula.
pub const FORMULA_BYTES: usize = 4_096;
/// Nesting depth of parentheses and powers in a formula.
pub const FORMULA_DEPTH: usize = 64;
/// Bytes of one SQL expression.
pub const EXPRESSION_BYTES: usize = 4_096;
/// Nodes of one SQL expression.
pub const EXPRESSION_NODES: usize = 500;
/// Nesting depth of one SQL expression.
pub const EXPRESSION_DEPTH: usize = 64;
/// Bytes of a text computed by an SQL expression; a longer text counts as missing.
pub const EXPRESSION_TEXT: usize = 1 << 16;
/// Names in one list of a correlation.
pub const CORRELATION_NAMES: usize = 1_000;
/// Candidates of a correlation in one partition.
pub const CORRELATION_CANDIDATES: usize = 200_000;
/// Bytes of the names and values of these candidates.
pub const CORRELATION_BYTES: usize = 64 << 20;
/// Length of a conversion window, in seconds: a hundred years of 366 days.
pub const WINDOW_SECONDS: i64 = 100 * 366 * 86_400;

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

/// The error for a funnel with too many steps; its text and code are part of the contract.
pub fn too_many_steps() -> CalcError {
    CalcError::coded("funnel_max_steps_exceeded", None, format!("Funnels support up to {STEPS} steps."))
}

/// The error for a query whose sessions take more than `most` bytes.
pub fn too_many_sessions(most: usize) -> CalcError {
    let detail = format!(
        "Too many sessions: those of all the project's events take more than {most} bytes, too many to look at properties \
         of sessions."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// The error for a funnel that takes too many passes over the events of one person, one per breakdown value of a step.
pub fn too_many_step_values() -> CalcError {
    let detail = format!(
        "One person has too many values of the breakdown for breakdown_attribution_type \"step\" in a funnel that is \
         unordered, over time, with optional steps, or strict with exclusions: its events times its values may be at \
         most {STEP_VALUE_EVENTS}. Narrow the dates or the events, or use first_touch, last_touch or all_events."
    );
    CalcError::invalid("breakdown_attribution_type", detail)
}

/// The error for a query that would take too much memory.
pub fn too_much_memory() -> CalcError {
    let most = TREND_MEMORY_BYTES >> 20;
    let detail = format!(
        "Counting this takes more than {most} MiB of values at once. Narrow the dates, the events or the breakdown."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// Whether one pass per value over so many events of one person is within the limit.
pub fn step_values_fit(events: usize, values: usize) -> bool {
    values <= 1 || events.saturating_mul(values) <= STEP_VALUE_EVENTS
}

/// Whether one number per bucket and breakdown value is within the memory limit.
pub fn numbers_fit(values: usize, buckets: usize) -> bool {
    values.saturating_mul(buckets).saturating_mul(size_of::<u64>()) <= TREND_MEMORY_BYTES
}

/// Whether a result can have so many links of so many bytes each.
pub fn links_fit(bytes: usize, links: usize) -> bool {
    bytes <= LINK_BYTES && bytes.saturating_mul(links) <= LINKS_BYTES
}

/// Minimum event time: the year 1, in microseconds since 1970.
pub const MIN_EVENT_TIME: Micros = -62_135_596_800_000_000;
/// Maximum event time: the end of the year 9999.
pub const MAX_EVENT_TIME: Micros = 253_402_300_799_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_values_fit_up_to_the_limit() {
        assert!(step_values_fit(STEP_VALUE_EVENTS / 10_000, 10_000));
        assert!(!step_values_fit(STEP_VALUE_EVENTS / 10_000 + 1, 10_000));
        assert!(step_values_fit(usize::MAX, 1), "one scan is always made");
        assert!(!step_values_fit(usize::MAX, 2));
        assert!(too_many_step_values().detail.contains(&STEP_VALUE_EVENTS.to_string()));
    }
}
