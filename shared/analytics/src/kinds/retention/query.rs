//! The retention query and its parser.
//!
//! Must stay true: invalid combinations of options are rejected here, so the calculation never sees them.

use std::borrow::Cow;

use pennon_filters::dates::Interval;
use pennon_filters::text::number_of;
use pennon_filters::{CalcError, CalcResult};
use serde_json::Value;

use super::limits;
use super::options::{Aggregation, AggregationType, RetentionType, TimeWindowMode};
use super::raw_query::RawRetention;
use crate::filter::{Filter, Parser};
use crate::kinds::ParsedQuery;
use crate::query::{
    Breakdown, BreakdownBy, BreakdownRules, CommonFields, DimensionSource, EventOrAction, Field, KeyLists,
    Math, MathArguments, NumberSource, RawSeries, Series, parse_common_fields, parse_series,
};

/// A retention query.
#[derive(Debug, Clone, PartialEq)]
pub struct RetentionQuery {
    /// The event or action that starts, and the one that returns.
    pub entities: Box<[Series; 2]>,
    /// Filters, date range, breakdown; the interval is the period.
    pub common: CommonFields,
    /// Number of columns without custom brackets, and of periods in a range without a start.
    pub total_intervals: usize,
    /// The number of periods in each column after the first; empty for one period in each.
    pub brackets: Vec<u64>,
    /// Which starting events count.
    pub retention_type: RetentionType,
    /// Returning events that a period needs; at least 1.
    pub minimum_occurrences: u32,
    /// Whether an actor counts in all columns up to its last return.
    pub cumulative: bool,
    /// How the time to a return is measured.
    pub time_window_mode: TimeWindowMode,
    /// What is added up beside the number of actors.
    pub aggregation: Option<Aggregation>,
    /// Counts groups of the type with this index instead of persons.
    pub group_type_index: Option<u8>,
}

impl RetentionQuery {
    /// The event or action that starts.
    pub fn target(&self) -> &Series {
        &self.entities[0]
    }

    /// The event or action that returns.
    pub fn returning(&self) -> &Series {
        &self.entities[1]
    }

    /// Whether the same events start and return.
    pub fn has_same_entity(&self) -> bool {
        let key = |series: &Series| (series.event_or_action.clone(), series.properties.clone());
        key(self.target()) == key(self.returning())
    }

    /// Number of columns of the result.
    pub fn column_count(&self) -> usize {
        if self.brackets.is_empty() { self.total_intervals } else { self.brackets.len() + 1 }
    }
}

/// The event that starts and returns if the request names none.
const DEFAULT_EVENT: &str = "$pageview";
/// Number of breakdown values that keep their own rows.
const DEFAULT_BREAKDOWN_LIMIT: usize = 25;
const ONE_BREAKDOWN: &str = "Retention supports one breakdown.";

const BREAKDOWN_RULES: BreakdownRules = BreakdownRules {
    has_bins: false,
    key_lists: KeyLists::Rejected(ONE_BREAKDOWN),
    mixed_types_error: None,
    inherits_fields: true,
};

/// Parses a retention query.
pub fn parse(raw: &RawRetention<'_>) -> CalcResult<ParsedQuery> {
    let mut parser = Parser::default();
    let mut common = parse_common_fields(&raw.common, &mut parser, BREAKDOWN_RULES)?;
    common.interval = parse_period(&raw.period)?;
    if let Some(breakdown) = &mut common.breakdown {
        restrict_breakdown(breakdown, raw.common.breakdown.kind.attr)?;
    }
    let target = parse_entity(&raw.target, &mut parser)?;
    let returning = parse_entity(&raw.returning, &mut parser)?;
    let query = RetentionQuery {
        entities: Box::new([target, returning]),
        common,
        total_intervals: parse_total_intervals(&raw.total_intervals, raw.default_intervals)?,
        brackets: parse_brackets(&raw.brackets)?,
        retention_type: parse_choice(&raw.retention_type, "retentionType", &RetentionType::NAMES)?
            .unwrap_or_default(),
        minimum_occurrences: parse_minimum_occurrences(&raw.minimum_occurrences)?,
        cumulative: raw.cumulative.boolean()?,
        time_window_mode: parse_choice(&raw.time_window_mode, "timeWindowMode", &TimeWindowMode::NAMES)?
            .unwrap_or_default(),
        aggregation: parse_aggregation(raw)?,
        group_type_index: raw.group_type.group_type_index()?,
    };
    reject_combinations(&query, raw)?;
    Ok(ParsedQuery::Query(query.into()))
}

fn parse_period(field: &Field<'_>) -> CalcResult<Interval> {
    let Some(name) = field.text()? else { return Ok(Interval::Day) };
    match Interval::from_name(name.trim()) {
        Some(interval) if interval != Interval::Minute => Ok(interval),
        _ => {
            let detail = format!("The period \"{name}\" is not one of Hour, Day, Week, Month.");
            Err(CalcError::invalid(field.attr, detail))
        }
    }
}

/// Parses one of several names; an error names the field as nodes do.
fn parse_choice<T: Copy>(field: &Field<'_>, of: &str, names: &[(&str, T)]) -> CalcResult<Option<T>> {
    let Some(text) = field.text()? else { return Ok(None) };
    match names.iter().find(|(name, _)| *name == text.trim()) {
        Some((_, option)) => Ok(Some(*option)),
        None => {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let detail = format!("The {of} \"{text}\" is not one of {}.", names.join(", "));
            Err(CalcError::invalid(field.attr, detail))
        }
    }
}

/// Parses an event or action: an object, or JSON text of one.
fn parse_entity(field: &Field<'_>, parser: &mut Parser) -> CalcResult<Series> {
    let invalid = |detail: &str| CalcError::invalid(field.attr, detail);
    let value = match field.value.as_deref() {
        None => return Ok(default_entity()),
        Some(Value::String(text)) => {
            Cow::Owned(serde_json::from_str(text).map_err(|_| invalid("The text is not valid JSON."))?)
        }
        Some(other) => Cow::Borrowed(other),
    };
    let fields = match &*value {
        Value::Null => return Ok(default_entity()),
        Value::Object(fields) => fields,
        _ => return Err(invalid("Expected an object with the id and the type of an event or action.")),
    };
    let action = match Field::of(fields, "type", field.attr).text()?.map(str::trim) {
        None | Some("events") => false,
        Some("actions") => true,
        Some("data_warehouse") => {
            return Err(CalcError::unsupported(field.attr, "data warehouse entities in retention"));
        }
        Some(other) => return Err(invalid(&format!("The type \"{other}\" is not events or actions."))),
    };
    let id = fields.get("id").filter(|id| !id.is_null()).cloned();
    let entity = RawSeries { attr: field.attr, action, id, fields: Cow::Borrowed(fields) };
    // The math of an entity has no meaning here.
    Ok(Series {
        requested_math: None,
        math_arguments: MathArguments::default(),
        ..parse_series(&entity, parser)?
    })
}

fn default_entity() -> Series {
    Series {
        event_or_action: EventOrAction::Event(Some(DEFAULT_EVENT.to_owned())),
        name: None,
        custom_name: None,
        math: Math::Total,
        requested_math: None,
        math_arguments: MathArguments::default(),
        properties: Filter::none(),
    }
}

fn parse_total_intervals(field: &Field<'_>, default: usize) -> CalcResult<usize> {
    let max = limits::COLUMNS;
    let invalid =
        || CalcError::invalid(field.attr, format!("totalIntervals must be a whole number from 0 to {max}."));
    match field.integer().map_err(|_| invalid())? {
        None | Some(0) => Ok(default),
        Some(count) => usize::try_from(count).ok().filter(|count| *count <= max).ok_or_else(invalid),
    }
}

fn parse_minimum_occurrences(field: &Field<'_>) -> CalcResult<u32> {
    let invalid = || CalcError::invalid(field.attr, "minimumOccurrences must be a whole number.");
    let count = field.integer().map_err(|_| invalid())?.unwrap_or(1).max(1);
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Parses the brackets: a list of numbers from 1, or JSON text of one. Fractions are cut off.
fn parse_brackets(field: &Field<'_>) -> CalcResult<Vec<u64>> {
    let invalid = || {
        let detail =
            "retentionCustomBrackets must be a list of whole numbers from 1, the periods of each bracket.";
        CalcError::invalid(field.attr, detail)
    };
    if !field.has_content() {
        return Ok(Vec::new());
    }
    let list = match field.value.as_deref() {
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| invalid())?,
        Some(other) => other.clone(),
        None => Value::Null,
    };
    let list = list.as_array().ok_or_else(invalid)?;
    if list.len() > limits::BRACKETS {
        let detail =
            format!("There can be at most {} brackets in retentionCustomBrackets.", limits::BRACKETS);
        return Err(CalcError::invalid(field.attr, detail));
    }
    let bracket = |value: &Value| {
        let number = number_of(value).filter(|number| *number >= 1.0).ok_or_else(invalid)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "casts of floats saturate"
        )]
        let periods = number as u64;
        Ok(periods)
    };
    list.iter().map(bracket).collect()
}

/// Parses what is added up; nothing without a property.
fn parse_aggregation(raw: &RawRetention<'_>) -> CalcResult<Option<Aggregation>> {
    let kinds = [("event", true), ("person", false)];
    let of_event = parse_choice(&raw.aggregation_property_type, "aggregationPropertyType", &kinds)?;
    let statistic =
        parse_choice(&raw.aggregation_type, "aggregationType", &AggregationType::NAMES)?.flatten();
    let (Some(statistic), Some(key)) = (statistic, raw.aggregation_property.text()?) else { return Ok(None) };
    let number = match of_event {
        Some(false) => NumberSource::Person(key.to_owned()),
        _ => NumberSource::Event(key.to_owned()),
    };
    Ok(Some(Aggregation { statistic, number }))
}

/// Rejects breakdowns that retention does not have, and drops the options that have no effect.
fn restrict_breakdown(breakdown: &mut Breakdown, attr: &str) -> CalcResult<()> {
    breakdown.limit = breakdown.limit.or(Some(DEFAULT_BREAKDOWN_LIMIT));
    breakdown.hide_other = false;
    let BreakdownBy::Dimensions { dimensions, .. } = &mut breakdown.by else { return Ok(()) };
    if dimensions.len() > 1 {
        return Err(CalcError::invalid(attr, ONE_BREAKDOWN));
    }
    for dimension in dimensions {
        dimension.normalize_url = false;
        if let DimensionSource::Session(_) = dimension.source {
            let detail = "Retention has no breakdown of type \"session\". The type must be one of event, person, group, \
                          event_metadata, hogql, cohort.";
            return Err(CalcError::invalid(attr, detail));
        }
    }
    Ok(())
}

fn reject_combinations(query: &RetentionQuery, raw: &RawRetention<'_>) -> CalcResult<()> {
    let has_windows = query.time_window_mode == TimeWindowMode::TwentyFourHourWindows;
    let aggregates = query.aggregation.is_some();
    if has_windows && query.cumulative {
        let detail = "Cumulative retention is not supported for 24 hour windows.";
        return Err(CalcError::invalid(raw.cumulative.attr, detail));
    }
    if has_windows && aggregates {
        let detail = "Sum and average aggregation are not supported for 24 hour windows.";
        return Err(CalcError::invalid(raw.aggregation_type.attr, detail));
    }
    if query.cumulative && aggregates {
        let detail = "Sum and average aggregation are not supported for cumulative retention.";
        return Err(CalcError::invalid(raw.aggregation_type.attr, detail));
    }
    Ok(())
}
