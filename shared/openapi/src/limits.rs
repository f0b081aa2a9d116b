//! Limits and names of the validators, in the form that the schemas use.
//!
//! Must stay true: a limit or a list is the constant that the validator uses, never a copy. Texts are formatted from the
//! constants; patterns are compared with them by the tests below.

use pennon_analytics::{DURATION_OPERATORS, session_fields};
use pennon_core::model::AccessLevel;
use pennon_filters::dates::Interval;
use pennon_filters::operator::{FilterSide, Operator};

pub(crate) use pennon_analytics::SESSION_DURATION;
pub(crate) use pennon_analytics::kinds::funnels::limits::{
    BREAKDOWN_KEYS, EXCLUSIONS, STEPS, WINDOW_SECONDS,
};
pub(crate) use pennon_analytics::kinds::retention::limits::{BRACKETS, COLUMNS};
pub(crate) use pennon_analytics::kinds::trends::limits::SERIES;
pub(crate) use pennon_analytics::limits::{
    ACTION_STEPS, BREAKDOWN_BINS, BREAKDOWN_COHORTS, BREAKDOWN_LIMIT, BREAKDOWNS, GROUP_TYPES,
    NAME_BYTES as NAME_MAX,
};
pub(crate) use pennon_core::idempotency::BYTES_MAX as IDEMPOTENCY_KEY_MAX;
pub(crate) use pennon_core::limits::{api_keys, calculation, capture, evaluation, insights};
pub(crate) use pennon_core::store::keys::QUERY_NAME_BYTES_MAX as QUERY_ID_MAX;
pub(crate) use pennon_filters::limits::{BUCKETS, TAG_CHARS, TAGS};

/// The operators of a filter on events and persons.
pub(crate) fn operators() -> Vec<&'static str> {
    Operator::names(FilterSide::Calculations)
}

/// The operators of a condition of a flag.
pub(crate) fn flag_operators() -> Vec<&'static str> {
    Operator::names(FilterSide::Flags)
}

/// The operators of a filter on the session duration.
pub(crate) fn duration_operators() -> Vec<&'static str> {
    DURATION_OPERATORS.iter().map(|operator| operator.name()).collect()
}

/// The operators that need no value.
pub(crate) fn presence_operators() -> Vec<&'static str> {
    let operators = Operator::available_to(FilterSide::Calculations).iter();
    operators.filter(|operator| !operator.needs_value()).map(|operator| operator.name()).collect()
}

/// The intervals of a query.
pub(crate) fn intervals() -> [&'static str; 5] {
    Interval::ALL.map(Interval::name)
}

/// The session fields other than the duration, to which all operators apply.
pub(crate) fn session_fields_without_duration() -> Vec<&'static str> {
    session_fields().map(|(name, _)| name).filter(|name| *name != SESSION_DURATION).collect()
}

/// The largest index of a group type.
pub(crate) const GROUP_TYPE_MAX: i64 = GROUP_TYPES as i64 - 1;

/// The access levels of insights and dashboards: viewing, and editing.
pub(crate) fn view_and_edit_levels() -> [u8; 2] {
    [AccessLevel::View, AccessLevel::Edit].map(u8::from)
}

/// A number with commas between groups of three digits.
pub(crate) fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Names as a list in a text.
pub(crate) fn quote_choices(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

/// The description of an id that the caller gives to a calculation.
pub(crate) fn query_id_text() -> String {
    format!("The caller's id of the calculation: at most {QUERY_ID_MAX} bytes.")
}

/// The description of an index of a group type.
pub(crate) fn group_type_text() -> String {
    format!("For groups: the index of the group type, 0 to {GROUP_TYPE_MAX}.")
}

/// The description of the number of bins of a numeric breakdown.
pub(crate) fn bins_text() -> String {
    format!("For numeric properties in a trend: the number of bins, 1 to {BREAKDOWN_BINS}.")
}

/// Patterns of numbers in a query string, each for the numbers of a range. Leading zeros are allowed.
pub(crate) mod patterns {
    /// The index of a series.
    pub(crate) const SERIES_INDEX: &str = "0*([01]?[0-9]|2[0-5])";
    /// The index of a step that is not the last.
    pub(crate) const FROM_STEP: &str = "0*([12]?[0-9]|30)";
    /// The index of a step that is not the first.
    pub(crate) const TO_STEP: &str = "0*([1-9]|[12][0-9]|3[01])";
    /// The number of intervals of a moving average.
    pub(crate) const SMOOTHING: &str = "0*([1-9][0-9]{0,3}|1[01][0-9]{3}|12000)";
    /// The number of breakdown values.
    pub(crate) const BREAKDOWN_LIMIT: &str = "0*(1000|[0-9]{1,3})";
    /// The number of columns of a retention result.
    pub(crate) const COLUMNS: &str = "0*(100|[0-9]{1,2})";
    /// The index of a group type.
    pub(crate) const GROUP_TYPE: &str = "0*[0-4]";
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::http::{BODY_BYTES_MAX, LIMIT_DEFAULT, LIMIT_MAX};
    use regex::Regex;

    #[test]
    fn patterns_match_the_numbers_of_their_ranges() {
        let steps = STEPS as i64;
        let ranges = [
            (patterns::SERIES_INDEX, 0, SERIES as i64 - 1),
            (patterns::FROM_STEP, 0, steps - 2),
            (patterns::TO_STEP, 1, steps - 1),
            (patterns::SMOOTHING, 1, BUCKETS as i64),
            (patterns::BREAKDOWN_LIMIT, 0, BREAKDOWN_LIMIT as i64),
            (patterns::COLUMNS, 0, COLUMNS as i64),
            (patterns::GROUP_TYPE, 0, GROUP_TYPE_MAX),
        ];
        for (pattern, least, most) in ranges {
            let pattern = Regex::new(&format!("^({pattern})$")).unwrap();
            for number in 0..most + 2_000 {
                let matches = pattern.is_match(&number.to_string());
                assert_eq!(matches, (least..=most).contains(&number), "{pattern} {number}");
            }
        }
    }

    #[test]
    fn numbers_and_names_are_written_as_in_texts() {
        assert_eq!([7, 1000, 20_000, 6_000_000].map(group_digits), ["7", "1,000", "20,000", "6,000,000"]);
        assert_eq!(quote_choices(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!([quote_choices(&["a"]), quote_choices(&[])], ["`a`", ""]);
    }

    #[test]
    fn texts_have_the_numbers_of_the_limits() {
        let document = crate::document("0");
        let parameters = document["paths"]["/api/projects/"]["get"]["parameters"].as_array().unwrap();
        let limit = parameters.iter().find(|parameter| parameter["name"] == "limit").unwrap();
        let text = limit["description"].as_str().unwrap();
        assert!(
            text.contains(&format!("1 to {LIMIT_MAX}.")) && text.ends_with(&format!(": {LIMIT_DEFAULT}."))
        );
        let body =
            &document["paths"]["/api/projects/{project_id}/feature_flags/"]["post"]["responses"]["413"];
        let digits: String =
            body["description"].as_str().unwrap().chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, BODY_BYTES_MAX.to_string());
    }
}
