//! Parsing of query parameters of lists; a 400 names the parameter and the accepted values.

use std::collections::BTreeSet;

use chrono::DateTime;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::limits::calculation::{NAMES, TEXT_CHARS};
use pennon_eventstore::parse_timestamp;

/// The value of a parameter, trimmed; `None` where it is empty.
pub(crate) fn text<'a>(call: &'a Call, name: &str) -> ApiResult<Option<&'a str>> {
    let value = call.query_value(name).unwrap_or("").trim();
    if value.chars().count() > TEXT_CHARS {
        let detail = format!("Ensure this field has no more than {TEXT_CHARS} characters.");
        return Err(ApiError::invalid("max_length", detail, Some(name)));
    }
    Ok((!value.is_empty()).then_some(value))
}

/// A required parameter.
pub(crate) fn required<'a>(call: &'a Call, name: &str) -> ApiResult<&'a str> {
    text(call, name)?.ok_or_else(|| ApiError::invalid("required", "This field is required.", Some(name)))
}

/// `true` or `false`, `1` or `0`, case-insensitive.
pub(crate) fn boolean(call: &Call, name: &str) -> ApiResult<Option<bool>> {
    match text(call, name)?.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(invalid(name, "A boolean is true or false.")),
    }
}

/// A whole number from `least` to `most`.
pub(crate) fn integer(call: &Call, name: &str, least: usize, most: usize) -> ApiResult<Option<usize>> {
    let Some(value) = text(call, name)? else { return Ok(None) };
    match value.parse().ok().filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(name, format!("A whole number from {least} to {most} is needed."))),
    }
}

/// An instant, in microseconds since the epoch.
pub(crate) fn instant(call: &Call, name: &str) -> ApiResult<Option<i64>> {
    let Some(value) = text(call, name)? else { return Ok(None) };
    let wrong = || invalid(name, "An ISO 8601 date or time is needed, such as 2024-01-31T12:00:00Z.");
    let at = parse_timestamp(value).ok_or_else(wrong)?;
    DateTime::from_timestamp_micros(at).map(|_| Some(at)).ok_or_else(wrong)
}

/// A list of texts in JSON.
pub(crate) fn json_names(call: &Call, name: &str) -> ApiResult<BTreeSet<String>> {
    let value = call.query_value(name).unwrap_or("").trim();
    if value.is_empty() {
        return Ok(BTreeSet::new());
    }
    let names: Vec<String> = serde_json::from_str(value)
        .map_err(|_| invalid(name, "A JSON list of names is needed, such as [\"name\"]."))?;
    at_most(names, name)
}

/// Comma-separated names, or repeated parameters, or both.
pub(crate) fn names(call: &Call, name: &str) -> ApiResult<BTreeSet<String>> {
    let values = call.query().iter().filter(|(key, _)| key == name).flat_map(|(_, value)| value.split(','));
    let names = values.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    at_most(names.collect(), name)
}

/// The values of a repeated parameter.
pub(crate) fn repeated(call: &Call, name: &str) -> ApiResult<BTreeSet<String>> {
    let values = call.query().iter().filter(|(key, value)| key == name && !value.is_empty());
    at_most(values.map(|(_, value)| value.clone()).collect(), name)
}

fn at_most(names: Vec<String>, name: &str) -> ApiResult<BTreeSet<String>> {
    if names.len() > NAMES {
        return Err(invalid(name, format!("At most {NAMES} names are allowed.")));
    }
    Ok(names.into_iter().collect())
}

/// Fails with 400 where one of these unsupported parameters of the vendor's API is sent.
pub(crate) fn reject_unsupported(call: &Call, parameters: &[&str]) -> ApiResult<()> {
    let sent = |name: &&&str| call.query_value(name).is_some_and(|value| !value.trim().is_empty());
    match parameters.iter().find(sent) {
        Some(name) => Err(invalid(name, format!("Not supported yet: the parameter {name} of this list."))),
        None => Ok(()),
    }
}

pub(crate) fn invalid(name: &str, detail: impl Into<String>) -> ApiError {
    ApiError::invalid("invalid_input", detail, Some(name))
}

/// Whether a name contains every word of a search (case-insensitive). An empty search matches every name.
pub(crate) fn contains_words(name: &str, search: Option<&str>) -> bool {
    let name = name.to_lowercase();
    search.unwrap_or("").split_whitespace().all(|word| name.contains(&word.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_search_is_contained() {
        assert!(contains_words("Signed Up", Some("UP sign")));
        assert!(contains_words("signed up", None) && contains_words("x", Some("  ")));
        assert!(!contains_words("signed up", Some("sign out")));
    }
}
