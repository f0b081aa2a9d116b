//! The flag list: query parameters, filters and order.
//!
//! Must stay true: filters combine with AND; the order is total (ties are broken by id), so pages neither repeat nor
//! skip flags.

use std::{cmp::Ordering, collections::BTreeSet};

use chrono::{DateTime, Utc};
use pennon_filters::body::{FieldError, fields};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::FlagRow;
use super::field_table::{CompareRows, sortable_fields};
use crate::calls::CallTimes;
use crate::limits;

/// Newest first.
const DEFAULT_ORDER: &str = "-created_at";

/// The filter by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Inactive,
    Stale,
}

/// The filter by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Multivariant,
    /// Linked to an experiment; this product has none.
    Experiment,
    RemoteConfig,
}

/// The parsed query of a flag list.
#[derive(Debug, Clone)]
pub struct FlagQuery {
    state: Option<State>,
    created_by_id: Option<i64>,
    search: Option<Regex>,
    /// Lower-case.
    key: Option<String>,
    kind: Option<Kind>,
    evaluation_runtime: Option<String>,
    tags: BTreeSet<String>,
    excluded_tags: BTreeSet<String>,
    excluded_keys: BTreeSet<String>,
    order: CompareRows,
    descending: bool,
}

impl FlagQuery {
    /// Parses the query parameters; of a repeated parameter the last one counts, unknown ones are ignored.
    pub fn parse(parameters: &[(String, String)]) -> Result<Self, FieldError> {
        let last = |name: &str| {
            parameters.iter().rev().find(|(parameter, _)| parameter == name).map(|(_, value)| value.as_str())
        };
        let (order, descending) = parse_order(last("order").unwrap_or_default())?;
        Ok(Self {
            state: last("active").map(parse_state),
            created_by_id: last("created_by_id").map(parse_created_by_id).transpose()?,
            search: parse_search(last("search").unwrap_or_default())?,
            key: last("key").map(str::to_lowercase),
            kind: last("type").and_then(parse_kind),
            evaluation_runtime: last("evaluation_runtime").map(str::to_owned),
            tags: last("tags").map(parse_texts).unwrap_or_default(),
            excluded_tags: last("excluded_tags").map(parse_texts).unwrap_or_default(),
            excluded_keys: last("excluded_properties").map(parse_texts).unwrap_or_default(),
            order,
            descending,
        })
    }

    /// Whether the list contains this flag at an instant, given the known calls. Deleted flags are never listed.
    pub fn matches(&self, row: &FlagRow, now: DateTime<Utc>, calls: &CallTimes) -> bool {
        !row.deleted
            && self.state.is_none_or(|state| match state {
                State::Active => row.active,
                State::Inactive => !row.active,
                State::Stale => row.is_listed_as_stale(now, calls),
            })
            && self.created_by_id.is_none_or(|id| row.created_by_id == Some(id))
            && self.search.as_ref().is_none_or(|text| text.is_match(&row.key) || text.is_match(&row.name))
            && self.key.as_ref().is_none_or(|key| row.key.to_lowercase() == *key)
            && self.kind.is_none_or(|kind| match kind {
                Kind::Boolean => row.variants == 0,
                Kind::Multivariant => row.variants > 0,
                Kind::Experiment => false,
                Kind::RemoteConfig => row.is_remote_configuration,
            })
            && self
                .evaluation_runtime
                .as_ref()
                .is_none_or(|runtime| row.evaluation_runtime.as_ref() == Some(runtime))
            && (self.tags.is_empty() || row.tags.iter().any(|tag| self.tags.contains(tag)))
            && !row.tags.iter().any(|tag| self.excluded_tags.contains(tag))
            && !self.excluded_keys.contains(&row.key)
    }

    /// The order of two flags in the list.
    pub fn compare(&self, left: &FlagRow, right: &FlagRow, calls: &CallTimes) -> Ordering {
        let order = (self.order)(left, right, calls);
        let order = order.then(left.id.cmp(&right.id));
        if self.descending { order.reverse() } else { order }
    }

    /// The flags of the list, in its order.
    pub fn select<'a>(
        &self,
        rows: impl IntoIterator<Item = &'a FlagRow>,
        now: DateTime<Utc>,
        calls: &CallTimes,
    ) -> Vec<&'a FlagRow> {
        let mut shown: Vec<&FlagRow> = rows.into_iter().filter(|row| self.matches(row, now, calls)).collect();
        shown.sort_by(|left, right| self.compare(left, right, calls));
        shown
    }
}

fn parse_state(value: &str) -> State {
    if value == "STALE" {
        State::Stale
    } else if value.eq_ignore_ascii_case("true") {
        State::Active
    } else {
        State::Inactive
    }
}

fn parse_kind(value: &str) -> Option<Kind> {
    match value {
        "boolean" => Some(Kind::Boolean),
        "multivariant" => Some(Kind::Multivariant),
        "experiment" => Some(Kind::Experiment),
        "remote_config" => Some(Kind::RemoteConfig),
        _ => None,
    }
}

fn parse_created_by_id(value: &str) -> Result<i64, FieldError> {
    value.trim().parse().map_err(|_| FieldError::invalid("created_by_id", "A valid integer is required."))
}

/// A case-insensitive search in which a space matches any run of separators, or none.
fn parse_search(text: &str) -> Result<Option<Regex>, FieldError> {
    const SEPARATORS: &str = r"[\s_-]*";
    if text.is_empty() {
        return Ok(None);
    }
    if text.chars().count() > limits::SEARCH_CHARS {
        let detail = format!("Search term cannot exceed {} characters", limits::SEARCH_CHARS);
        return Err(FieldError::general(detail));
    }
    let words: Vec<String> = text.split(' ').map(regex::escape).collect();
    let pattern = RegexBuilder::new(&words.join(SEPARATORS)).case_insensitive(true).build();
    pattern.map(Some).map_err(|_| FieldError::invalid("search", "This text cannot be searched for."))
}

/// The strings of a JSON list; empty when it is not one.
fn parse_texts(value: &str) -> BTreeSet<String> {
    let list: Vec<Value> = serde_json::from_str(value).unwrap_or_default();
    list.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn parse_order(value: &str) -> Result<(CompareRows, bool), FieldError> {
    let value = if value.is_empty() { DEFAULT_ORDER } else { value };
    let (name, descending) = match value.strip_prefix('-') {
        Some(name) => (name, true),
        None => (value, false),
    };
    match sortable_fields().find(|(field, _)| *field == name) {
        Some((_, compare)) => Ok((compare, descending)),
        None => Err(fields::invalid_choice("order", value)),
    }
}

#[cfg(test)]
mod tests;
