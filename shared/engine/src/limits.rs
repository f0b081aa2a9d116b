//! Every cap on the size of a question, with the text of its refusal.
//!
//! Must stay true: whatever a caller sends, parsing and planning take bounded memory and time because of these.

use crate::error::CalcError;

/// Steps of one funnel.
pub const STEPS: usize = 32;
/// Series of one trend: a formula names them a to z.
pub const SERIES: usize = 26;
/// Exclusions of one funnel.
pub const EXCLUSIONS: usize = 32;
/// Groups inside groups in one set of property filters.
pub const FILTER_DEPTH: usize = 32;
/// Property filters in one query, all places together.
pub const FILTERS: usize = 1_000;
/// Values in the list of one property filter.
pub const FILTER_VALUES: usize = 10_000;
/// Bytes of one regular expression.
pub const REGEX_BYTES: usize = 4_096;
/// Bytes that one compiled regular expression may take; above it the question is refused.
pub const REGEX_COMPILED_BYTES: usize = 1 << 20;
/// Bytes of a compiled regular expression times bytes of the text that it may search: half a second at its worst.
pub const REGEX_SEARCH_WORK: usize = 1 << 30;
/// Regular expressions in one query.
pub const REGEXES: usize = 64;
/// Entries of `breakdowns`.
pub const BREAKDOWNS: usize = 3;
/// Keys in the `breakdown` of a funnel.
pub const BREAKDOWN_KEYS: usize = 10;
/// Values that `breakdown_limit` may keep.
pub const BREAKDOWN_LIMIT: usize = 1_000;
/// Distinct values of a breakdown: of a funnel or of a trend in one partition, and of each series and period.
pub const BREAKDOWN_VALUES: usize = 100_000;
/// Events of one person times the values that a step gives it, where each value takes a scan of its own: 10,000 values of
/// 10,000 events.
pub const STEP_VALUE_EVENTS: usize = 100_000_000;
/// Bins that numeric values may be put into.
pub const BREAKDOWN_BINS: u32 = 1_000;
/// Cohorts of one breakdown.
pub const BREAKDOWN_COHORTS: usize = 50;
/// Buckets of one series: the range that goes without saying has up to 11,520 minutes.
pub const BUCKETS: usize = 12_000;
/// Buckets of all series of an answer together: those minutes of four series, compared.
pub const POINTS: usize = 100_000;
/// Numbers of all rows of a funnel with a breakdown together, in one partition.
pub const FUNNEL_NUMBERS: usize = 1 << 22;
/// Periods of all series together of a funnel over time with a breakdown; series beyond them are left out.
pub const FUNNEL_POINTS: usize = 1_000;
/// Steps of all rows of a funnel together, where every value of its breakdown has a row: a thousand rows of 32 steps.
pub const FUNNEL_OBJECTS: usize = 32_000;
/// Numbers of all rows of an answer together.
pub const ANSWER_POINTS: usize = 200_000;
/// Bytes that the numbers, values and sets of one trend may take while they are counted.
pub const HELD_BYTES: usize = 256 << 20;
/// Bytes of one link in an answer: what servers take. A longer one is null.
pub const LINK_BYTES: usize = 8_192;
/// Bytes of all links in an answer together; beyond them links are null.
pub const LINKS_BYTES: usize = 1 << 20;
/// Bytes of one name: event, property key, custom name.
pub const NAME_BYTES: usize = 4_096;
/// Formulas of one trend.
pub(crate) const FORMULAS: usize = 26;
/// Bytes of one formula.
pub const FORMULA_BYTES: usize = 4_096;
/// Parentheses inside each other, and powers of powers, in a formula.
pub const FORMULA_DEPTH: usize = 64;
/// Bytes of one SQL expression.
pub const EXPRESSION_BYTES: usize = 4_096;
/// Parts of one SQL expression.
pub const EXPRESSION_NODES: usize = 500;
/// Levels of one SQL expression.
pub const EXPRESSION_DEPTH: usize = 64;
/// Bytes of a text that an SQL expression makes; a longer one counts as missing.
pub const EXPRESSION_TEXT: usize = 1 << 16;
/// Names in one list of a correlation.
pub const CORRELATION_NAMES: usize = 1_000;
/// Candidates of a correlation in one share of the actors.
pub const CORRELATION_CANDIDATES: usize = 200_000;
/// Bytes of the names and values of these.
pub const CORRELATION_BYTES: usize = 64 << 20;
/// Length of a conversion window, in seconds: a hundred years of 366 days.
pub const WINDOW_SECONDS: i64 = 100 * 366 * 86_400;

/// Steps of one action.
pub const ACTION_STEPS: usize = 100;

/// Comparisons of values in one share of the actors: each distinct value with what each filter compares it with, and each
/// part of an SQL expression. Some ten seconds of one core.
pub const EVALUATIONS: u64 = 1 << 29;
/// Bytes of a text that are compared for the price of one more comparison.
pub const EVALUATION_BYTES: usize = 64;

/// Cohorts inside cohorts, actions between them not counted.
pub const COHORT_DEPTH: usize = 32;
/// Criteria on events in all the cohorts of one query; each is a scan of its own.
pub const BEHAVIOURS: usize = 40;
/// Periods that a criterion on regular events may look at.
pub const PERIODS: i64 = 1_000;

/// Bytes that the sessions of a question, which are those of all time, may take while they are made: some 500 bytes each,
/// and more where long texts of them are asked for.
pub const SESSION_BYTES: usize = 512 << 20;

/// Group types of a project: indexes are below it.
pub const GROUP_TYPES: u64 = 5;

/// The refusal of a group type that no project can have.
pub fn invalid_group_type(attr: &str, value: &serde_json::Value) -> CalcError {
    CalcError::invalid(
        attr,
        format!("{value} is not the index of a group type: these are 0 to {}.", GROUP_TYPES - 1),
    )
}

/// The refusal of a funnel with too many steps; the contract gives its text and code.
pub fn too_many_steps() -> CalcError {
    CalcError::coded("funnel_max_steps_exceeded", None, format!("Funnels support up to {STEPS} steps."))
}

/// The refusal of anything else that is too much. `what` is a plural noun.
pub fn too_many(attr: &str, what: &str, most: usize) -> CalcError {
    CalcError::invalid(attr, format!("Too many {what}: at most {most} are allowed."))
}

/// The refusal of a text that is too long.
pub fn too_long(attr: &str, what: &str, most: usize) -> CalcError {
    CalcError::invalid(attr, format!("The {what} is too long: at most {most} bytes are allowed."))
}

/// The refusal of a question about sessions that take more than so many bytes.
pub fn too_many_sessions(most: usize) -> CalcError {
    let detail = format!(
        "Too many sessions: those of all the project's events take more than {most} bytes, too many to look at properties \
         of sessions."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// The refusal of a question that compares too many values.
pub fn too_many_evaluations() -> CalcError {
    let detail = format!(
        "Filters and expressions compare too many values: at most {EVALUATIONS} comparisons, of distinct values times the \
         filters and list entries that they are compared with, are made for one share of the persons. Narrow the dates or \
         the events, or use fewer filters, shorter lists or shorter expressions."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// The refusal of a funnel that scans the events of one person for too many values of a step.
pub fn too_many_step_values() -> CalcError {
    let detail = format!(
        "One person has too many values of the breakdown for breakdown_attribution_type \"step\" in a funnel that is \
         unordered, over time, with optional steps, or strict with exclusions: its events times its values may be at \
         most {STEP_VALUE_EVENTS}. Narrow the dates or the events, or use first_touch, last_touch or all_events."
    );
    CalcError::invalid("breakdown_attribution_type", detail)
}

/// The refusal of a question that would take too much memory.
pub fn too_much_memory() -> CalcError {
    let most = HELD_BYTES >> 20;
    let detail = format!(
        "Counting this takes more than {most} MiB of values at once. Narrow the dates, the events or the breakdown."
    );
    CalcError::coded("invalid_input", None, detail)
}

/// Whether the events of one person may be scanned for each of so many values of a step.
pub fn step_values_fit(events: usize, values: usize) -> bool {
    values <= 1 || events.saturating_mul(values) <= STEP_VALUE_EVENTS
}

/// Whether one number a bucket can be held for each of so many values of a breakdown.
pub fn numbers_fit(values: usize, buckets: usize) -> bool {
    values.saturating_mul(buckets).saturating_mul(size_of::<u64>()) <= HELD_BYTES
}

/// Whether an answer can carry so many links of so many bytes each.
pub fn links_fit(bytes: usize, links: usize) -> bool {
    bytes <= LINK_BYTES && bytes.saturating_mul(links) <= LINKS_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_step_fit_up_to_the_limit() {
        assert!(step_values_fit(STEP_VALUE_EVENTS / 10_000, 10_000));
        assert!(!step_values_fit(STEP_VALUE_EVENTS / 10_000 + 1, 10_000));
        assert!(step_values_fit(usize::MAX, 1), "one scan is always made");
        assert!(!step_values_fit(usize::MAX, 2));
        assert!(too_many_step_values().detail.contains(&STEP_VALUE_EVENTS.to_string()));
    }
}
