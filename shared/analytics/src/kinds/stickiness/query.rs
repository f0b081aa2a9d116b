//! The stickiness query and its parser.

use pennon_filters::dates::compare::Comparison;
use pennon_filters::{CalcError, CalcResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::limits;
use super::raw_query::RawStickiness;
use crate::filter::Parser;
use crate::query::{
    CommonFields, Field, Series, parse_comparison, parse_fields_without_breakdown, parse_integer,
    parse_series,
};
use crate::sql::Expression;

/// A stickiness query.
#[derive(Debug, Clone, PartialEq)]
pub struct StickinessQuery {
    /// The series to count; at least one.
    pub series: Vec<Series>,
    /// By series: what counts as an actor.
    pub actors: Vec<SeriesActor>,
    /// Filters, date range and interval; never a breakdown.
    pub common: CommonFields,
    /// Length of an interval in units of `interval`, cut backwards from the end of the range. `None` is the calendar's intervals, which
    /// is not the same as 1.
    pub interval_count: Option<u32>,
    /// Whether a bar also holds the actors of all bars after it.
    pub is_cumulative: bool,
    /// How many events an actor needs in an interval to be active in it; one without.
    pub criterion: Option<Criterion>,
    /// The earlier period to compare with.
    pub comparison: Option<Comparison>,
}

/// What counts as an actor of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesActor {
    /// The person.
    Person,
    /// The event's group of the type with this index.
    Group(u8),
    /// The value of an expression, as text.
    Value(Expression),
}

/// A condition on the number of events of an actor in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Criterion {
    /// How the number is compared.
    pub comparison: CountComparison,
    /// What it is compared with.
    pub value: u64,
}

/// How a count is compared with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountComparison {
    /// At least as many.
    AtLeast,
    /// At most as many.
    AtMost,
    /// Exactly as many.
    Exactly,
}

/// The field of the criterion, for error messages.
const CRITERION: &str = "stickinessFilter__stickinessCriteria";

impl CountComparison {
    /// The names in requests.
    pub const NAMES: &[&str] = &["gte", "lte", "exact"];

    /// Parses the name that requests use.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "gte" => Some(Self::AtLeast),
            "lte" => Some(Self::AtMost),
            "exact" => Some(Self::Exactly),
            _ => None,
        }
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtLeast => "gte",
            Self::AtMost => "lte",
            Self::Exactly => "exact",
        }
    }

    /// Whether a count fits.
    #[inline]
    pub fn accepts(self, count: u64, value: u64) -> bool {
        match self {
            Self::AtLeast => count >= value,
            Self::AtMost => count <= value,
            Self::Exactly => count == value,
        }
    }

    /// The sign in SQL.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Exactly => "=",
        }
    }
}

/// Values of `stickinessFilter.computedAs`: each actor in one bar, or in all bars up to its own.
pub const COMPUTED_AS: &[&str] = &["non_cumulative", "cumulative"];

/// Parses a stickiness query; `None` if it has no series.
pub fn parse(raw: &RawStickiness<'_>) -> CalcResult<Option<StickinessQuery>> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::SERIES {
        let attr = raw.common.series.first().map_or("events", |series| series.attr);
        return Err(limits::too_many(attr, "series", limits::SERIES));
    }
    let common = parse_fields_without_breakdown(&raw.common, &mut parser)?;
    let interval_count = parse_interval_count(&raw.interval_count)?;
    let is_cumulative = parse_computed_as(&raw.computed_as)?;
    let criterion = raw.criterion.map(parse_criterion).transpose()?;
    let (mut series, mut actors) = (Vec::new(), Vec::new());
    for entry in &raw.common.series {
        let one = parse_series(entry, &mut parser)?;
        actors.push(parse_actor(&one, entry.attr)?);
        series.push(one);
    }
    if series.is_empty() {
        return Ok(None);
    }
    let comparison = parse_comparison(&raw.compare, &raw.compare_to)?;
    Ok(Some(StickinessQuery { series, actors, common, interval_count, is_cumulative, criterion, comparison }))
}

/// What a series counts; any other `math` counts persons.
fn parse_actor(series: &Series, attr: &str) -> CalcResult<SeriesActor> {
    let arguments = &series.math_arguments;
    Ok(match (series.requested_math.as_deref(), arguments.group_index, &arguments.expression) {
        (Some("unique_group"), Some(index), _) => SeriesActor::Group(index),
        (Some("hogql"), _, Some(text)) => SeriesActor::Value(Expression::parse(text, attr)?),
        _ => SeriesActor::Person,
    })
}

fn parse_interval_count(field: &Field<'_>) -> CalcResult<Option<u32>> {
    let Some(count) = field.integer()? else { return Ok(None) };
    let refused = |code, detail: String| Err(CalcError::coded(code, Some(field.attr), detail));
    if count <= 0 {
        let detail = "intervalCount must be a positive integer.".to_owned();
        return refused("stickiness_interval_count_non_positive", detail);
    }
    if count > limits::INTERVAL_COUNT {
        let detail = format!("intervalCount cannot exceed {}.", limits::INTERVAL_COUNT);
        return refused("stickiness_interval_count_too_large", detail);
    }
    Ok(u32::try_from(count).ok())
}

/// Whether bars are cumulative.
fn parse_computed_as(field: &Field<'_>) -> CalcResult<bool> {
    match field.text()? {
        None | Some("non_cumulative") => Ok(false),
        Some("cumulative") => Ok(true),
        Some(other) => Err(CalcError::invalid(
            field.attr,
            format!("\"{other}\" is not a way to compute: it must be one of {}.", COMPUTED_AS.join(", ")),
        )),
    }
}

fn parse_criterion(fields: &Map<String, Value>) -> CalcResult<Criterion> {
    let operator = Field::of(fields, "operator", CRITERION);
    let names = CountComparison::NAMES.join(", ");
    let comparison = operator.text()?.and_then(CountComparison::from_name).ok_or_else(|| {
        CalcError::invalid(CRITERION, format!("The operator of stickinessCriteria must be one of {names}."))
    })?;
    let value = fields.get("value").and_then(parse_integer).ok_or_else(|| {
        CalcError::invalid(CRITERION, "The value of stickinessCriteria must be a whole number.")
    })?;
    let Ok(value) = u64::try_from(value) else {
        let detail = "Stickiness criteria value must be non-negative.";
        return Err(CalcError::coded("stickiness_criteria_negative", Some(CRITERION), detail));
    };
    if value == 0 && comparison != CountComparison::AtLeast {
        let detail =
            "Stickiness criteria with operator exact or lte must use a value greater than 0.".to_owned();
        return Err(CalcError::coded("stickiness_criteria_zero_incompatible", Some(CRITERION), detail));
    }
    Ok(Criterion { comparison, value })
}
