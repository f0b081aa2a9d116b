//! The paths query and its parser.
//!
//! Must stay true: options that do not change the result are dropped here, so that equal queries are equal.

use std::borrow::Cow;
use std::collections::BTreeSet;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::text_of;
use serde_json::{Value, json};

use super::funnel_paths::FunnelPaths;
use super::limits;
use super::path_key::PathKey;
use super::raw_query::RawPaths;
use crate::filter::Parser;
use crate::kinds::ParsedQuery;
use crate::query::{BreakdownRules, CommonFields, Field, KeyLists, RawCommon, parse_common_fields};
use crate::sql::Expression;

/// What people do one after the other within a session, and how often one step follows another.
#[derive(Debug, Clone, PartialEq)]
pub struct PathsQuery {
    /// Filters and date range; no breakdown.
    pub common: CommonFields,
    /// The kinds of events that are in the paths; empty for all events.
    pub event_types: BTreeSet<EventType>,
    /// The expression that names events.
    pub expression: Option<Expression>,
    /// Items that are left out.
    pub excluded_items: BTreeSet<String>,
    /// Applies the project's path cleaning filters.
    pub uses_project_cleaning: bool,
    /// The query's own path cleaning filters, applied after those of the project.
    pub cleaning_filters: Vec<CleaningFilter>,
    /// Patterns with `*` that replace the items that they match.
    pub groupings: Vec<String>,
    /// The item where paths begin, without a slash at its end.
    pub start_point: Option<String>,
    /// The item where paths end, without a slash at its end.
    pub end_point: Option<String>,
    /// Steps of a session that are kept.
    pub step_limit: usize,
    /// Edges that are kept.
    pub edge_limit: usize,
    /// Minimum passages of an edge.
    pub min_edge_weight: Option<u64>,
    /// Maximum passages of an edge.
    pub max_edge_weight: Option<u64>,
    /// The step or edge whose persons are listed. No effect on the edges.
    pub people_keys: PeopleKeys,
    /// Restricts the paths to a funnel step.
    pub funnel: Option<Box<FunnelPaths>>,
}

/// A kind of events in the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// `$pageview`, named by its URL.
    Pageview,
    /// `$screen`, named by its screen.
    Screen,
    /// Events whose name does not begin with `$`.
    Custom,
    /// Other events are named by the expression. Selects no events.
    Expression,
}

/// Replaces all matches of a regular expression in an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleaningFilter {
    /// The replacement; `\0` to `\9` are the match and its groups.
    pub alias: String,
    /// The regular expression, in RE2 syntax.
    pub regex: String,
}

/// The keys that select a step or an edge for a list of persons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeopleKeys {
    /// The first step of an edge.
    pub start: Option<PathKey>,
    /// The second step of an edge, or a step.
    pub end: Option<PathKey>,
    /// The last step of sessions.
    pub dropoff: Option<PathKey>,
}

/// Default of `step_limit`.
const DEFAULT_STEPS: usize = 5;
/// Default of `edge_limit`.
const DEFAULT_EDGES: usize = 50;

/// Paths have no breakdown.
const BREAKDOWN_RULES: BreakdownRules = BreakdownRules {
    has_bins: false,
    key_lists: KeyLists::AtMost(1),
    mixed_types_error: None,
    inherits_fields: false,
};

impl EventType {
    const NAMES: [(&'static str, Self); 4] = [
        ("$pageview", Self::Pageview),
        ("$screen", Self::Screen),
        ("custom_event", Self::Custom),
        ("hogql", Self::Expression),
    ];

    /// The names that requests use.
    pub fn names() -> [&'static str; 4] {
        Self::NAMES.map(|(name, _)| name)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| *name)
    }
}

impl CleaningFilter {
    /// Parses the filters of a list; entries without a regex or an alias are skipped.
    pub(crate) fn parse_list(list: &[Value], attr: &str) -> CalcResult<Vec<Self>> {
        let mut filters = Vec::new();
        for entry in list {
            let object = entry.as_object().ok_or_else(|| {
                CalcError::invalid(attr, "Expected a list of objects with alias and regex.")
            })?;
            let text = |key: &str| match object.get(key) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text)) if text.len() > limits::REGEX_BYTES => {
                    Err(limits::too_long(attr, key, limits::REGEX_BYTES))
                }
                Some(Value::String(text)) => Ok(Some(text.clone())),
                Some(_) => Err(CalcError::invalid(attr, format!("The {key} of a filter is a string."))),
            };
            if let (Some(alias), Some(regex)) = (text("alias")?, text("regex")?.filter(|it| !it.is_empty())) {
                filters.push(Self { alias, regex });
            }
        }
        Ok(filters)
    }

    /// The filter as in a request.
    pub(super) fn json(&self) -> Value {
        json!({"alias": self.alias, "regex": self.regex})
    }
}

/// A text without one slash at its end, unless the slash is all there is.
pub(super) fn trim_slash(text: &str) -> &str {
    text.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(text)
}

/// Parses a paths query.
pub(super) fn parse(raw: RawPaths<'_>) -> CalcResult<ParsedQuery> {
    let common = parse_common(raw.common)?;
    let expression = match raw.expression.text()? {
        Some(text) => Some(Expression::parse(text, raw.expression.attr)?),
        None => None,
    };
    let groupings = parse_texts(&raw.groupings, "groupings", limits::GROUPINGS)?;
    let point = |field: &Field<'_>| field.text().map(|text| text.map(|text| trim_slash(text).to_owned()));
    let weight = |field: &Field<'_>| parse_count(field).map(|count| count.map(|count| count as u64));
    let key = |field: &Field<'_>| PathKey::parse_field(field);
    Ok(ParsedQuery::Query(
        PathsQuery {
            common,
            event_types: parse_event_types(&raw.event_types)?,
            expression,
            excluded_items: parse_texts(&raw.exclude_events, "names", limits::EXCLUDED_ITEMS)?
                .into_iter()
                .collect(),
            uses_project_cleaning: raw.path_replacements.boolean()?,
            cleaning_filters: CleaningFilter::parse_list(
                &parse_list(&raw.cleaning_filters)?,
                raw.cleaning_filters.attr,
            )?,
            groupings: groupings.into_iter().filter(|grouping| !grouping.is_empty()).collect(),
            start_point: point(&raw.start_point)?,
            end_point: point(&raw.end_point)?,
            step_limit: parse_count(&raw.step_limit)?.unwrap_or(DEFAULT_STEPS),
            edge_limit: parse_count(&raw.edge_limit)?.unwrap_or(DEFAULT_EDGES),
            min_edge_weight: weight(&raw.min_edge_weight)?,
            max_edge_weight: weight(&raw.max_edge_weight)?,
            people_keys: PeopleKeys {
                start: key(&raw.start_key)?,
                end: key(&raw.end_key)?,
                dropoff: key(&raw.dropoff_key)?,
            },
            funnel: raw.funnel.as_ref().map(FunnelPaths::parse).transpose()?.map(Box::new),
        }
        .into(),
    ))
}

/// Parses filters and dates. Interval and breakdown have no effect.
fn parse_common(mut raw: RawCommon<'_>) -> CalcResult<CommonFields> {
    raw.interval.value = None;
    raw.breakdown.breakdown.value = None;
    raw.breakdown.breakdowns.value = None;
    parse_common_fields(&raw, &mut Parser::default(), BREAKDOWN_RULES)
}

fn parse_event_types(field: &Field<'_>) -> CalcResult<BTreeSet<EventType>> {
    let parse = |value: &Value| {
        let name = value.as_str();
        let known = EventType::NAMES.iter().find(|(known, _)| Some(*known) == name);
        known.map(|(_, event_type)| *event_type).ok_or_else(|| {
            let names = EventType::names().join(", ");
            CalcError::invalid(
                field.attr,
                format!("{value} is not a valid choice. It must be one of {names}."),
            )
        })
    };
    parse_list(field)?.iter().map(parse).collect()
}

/// Parses a count; null and 0 count as not given.
fn parse_count(field: &Field<'_>) -> CalcResult<Option<usize>> {
    match field.integer()? {
        None | Some(0) => Ok(None),
        Some(count) => usize::try_from(count).map(Some).map_err(|_| {
            CalcError::invalid(
                field.attr,
                format!("{count} is negative. It must be a whole number from 0 on."),
            )
        }),
    }
}

/// Parses a list of names.
fn parse_texts(field: &Field<'_>, what: &str, most: usize) -> CalcResult<Vec<String>> {
    let list = parse_list(field)?;
    if list.len() > most {
        return Err(limits::too_many(field.attr, what, most));
    }
    let parse = |value: &Value| match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            let text = text_of(value).unwrap_or_default().into_owned();
            if text.len() > limits::NAME_BYTES {
                return Err(limits::too_long(field.attr, "name", limits::NAME_BYTES));
            }
            Ok(text)
        }
        _ => Err(CalcError::invalid(field.attr, "Expected a list of strings.")),
    };
    list.iter().map(parse).collect()
}

/// The entries of a list, which may be a JSON text; none if it is absent.
fn parse_list<'a>(field: &'a Field<'_>) -> CalcResult<Cow<'a, [Value]>> {
    let invalid = || CalcError::invalid(field.attr, "Expected a list of items.");
    match field.value.as_deref() {
        None => Ok(Cow::Borrowed(&[])),
        Some(Value::Array(list)) => Ok(Cow::Borrowed(list)),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Array(list)) => Ok(Cow::Owned(list)),
            Ok(Value::Null) => Ok(Cow::Borrowed(&[])),
            _ => Err(invalid()),
        },
        Some(_) => Err(invalid()),
    }
}
