//! The trends query and its parser.

use pennon_filters::dates::compare::Comparison;
use pennon_filters::{CalcError, CalcResult};

use super::formulas::{self, NamedFormula};
use super::limits;
use super::raw_query::RawTrends;
use crate::filter::Parser;
use crate::kinds::ParsedQuery;
use crate::query::{
    BreakdownRules, CommonFields, Field, KeyLists, Series, math, parse_common_fields, parse_comparison,
    parse_series,
};

/// A trends query.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendsQuery {
    /// The series to count; at least one.
    pub series: Vec<Series>,
    /// Filters, date range, interval and breakdown.
    pub common: CommonFields,
    /// The chart type, which decides between buckets and a total.
    pub display: Display,
    /// Whether the request named the display. Only an explicit display is written back to insight filters.
    pub is_display_explicit: bool,
    /// Number of buckets in the trailing average; 1 means no smoothing.
    pub smoothing: u32,
    /// The earlier period to compare with.
    pub comparison: Option<Comparison>,
    /// Formulas over the series. If there are any, the result contains their values instead of the series.
    pub formulas: Vec<NamedFormula>,
}

/// Chart type of a trend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names are the contract's")]
pub enum Display {
    #[default]
    ActionsLineGraph,
    ActionsBar,
    ActionsUnstackedBar,
    ActionsStackedBar,
    ActionsAreaGraph,
    ActionsLineGraphCumulative,
    ActionsTable,
    ActionsPie,
    ActionsBarValue,
    WorldMap,
    BoldNumber,
}

impl Display {
    const NAMES: [(&'static str, Self); 11] = [
        ("ActionsLineGraph", Self::ActionsLineGraph),
        ("ActionsBar", Self::ActionsBar),
        ("ActionsUnstackedBar", Self::ActionsUnstackedBar),
        ("ActionsStackedBar", Self::ActionsStackedBar),
        ("ActionsAreaGraph", Self::ActionsAreaGraph),
        ("ActionsLineGraphCumulative", Self::ActionsLineGraphCumulative),
        ("ActionsTable", Self::ActionsTable),
        ("ActionsPie", Self::ActionsPie),
        ("ActionsBarValue", Self::ActionsBarValue),
        ("WorldMap", Self::WorldMap),
        ("BoldNumber", Self::BoldNumber),
    ];

    /// All names, comma separated, for error messages.
    pub fn names() -> String {
        Self::NAMES.map(|(name, _)| name).join(", ")
    }

    /// Parses the name that requests use.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, display)| *display)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, display)| *display == self).map_or("ActionsLineGraph", |(name, _)| *name)
    }

    /// Whether the result is one number over the whole range instead of one per bucket.
    pub fn is_total(self) -> bool {
        matches!(
            self,
            Self::ActionsTable | Self::ActionsPie | Self::ActionsBarValue | Self::WorldMap | Self::BoldNumber
        )
    }

    /// The limit of breakdown values if the query sets none.
    pub(super) fn default_value_limit(self) -> usize {
        if self == Self::WorldMap { 250 } else { 25 }
    }
}

/// A breakdown has one key, or up to three dimensions.
const BREAKDOWN_RULES: BreakdownRules = BreakdownRules {
    has_bins: true,
    key_lists: KeyLists::Rejected(
        "A trend takes several keys in \"breakdowns\", not as a list in \"breakdown\".",
    ),
    mixed_types_error: None,
    inherits_fields: false,
};

/// Parses a trends query.
pub fn parse(raw: &RawTrends<'_>) -> CalcResult<ParsedQuery> {
    let mut parser = Parser::default();
    if raw.common.series.len() > limits::SERIES {
        let attr = raw.common.series.first().map_or("events", |series| series.attr);
        return Err(limits::too_many(attr, "series", limits::SERIES));
    }
    let common = parse_common_fields(&raw.common, &mut parser, BREAKDOWN_RULES)?;
    let (display, is_display_explicit) = parse_display(&raw.display)?;
    let smoothing = parse_smoothing(&raw.smoothing_intervals)?;
    if raw.conversion_goal.has_content() {
        let instead = "Use a FunnelsQuery whose last step is the goal.";
        return Err(CalcError::unsupported(raw.conversion_goal.attr, "conversion goals").instead(instead));
    }
    let series = raw
        .common
        .series
        .iter()
        .map(|entry| {
            let mut series = parse_series(entry, &mut parser)?;
            series.math = math::parse(series.requested_math.as_deref(), &series.math_arguments, entry.attr)?;
            Ok(series)
        })
        .collect::<CalcResult<Vec<_>>>()?;
    if series.is_empty() {
        return Ok(ParsedQuery::Empty);
    }
    let comparison = parse_comparison(&raw.compare, &raw.compare_to)?;
    let formulas = formulas::parse(raw, series.len())?;
    let query = TrendsQuery { series, common, display, is_display_explicit, smoothing, comparison, formulas };
    Ok(ParsedQuery::Query(query.into()))
}

/// Parses the display, and whether the request named it.
fn parse_display(field: &Field<'_>) -> CalcResult<(Display, bool)> {
    let Some(name) = field.text()? else { return Ok((Display::default(), false)) };
    match Display::from_name(name) {
        Some(display) => Ok((display, true)),
        None if name == "CalendarHeatmap" => {
            let instead = "Use the display ActionsLineGraph with the interval hour, and draw its numbers by weekday and hour.";
            Err(CalcError::unsupported(field.attr, "the display CalendarHeatmap").instead(instead))
        }
        None => Err(CalcError::invalid(
            "display",
            format!("\"{name}\" is not a display. It must be one of {}.", Display::names()),
        )),
    }
}

fn parse_smoothing(field: &Field<'_>) -> CalcResult<u32> {
    let max = i64::try_from(limits::BUCKETS).unwrap_or(i64::MAX);
    match field.integer()? {
        None => Ok(1),
        Some(count) if (1..=max).contains(&count) => Ok(u32::try_from(count).unwrap_or(1)),
        Some(_) => Err(CalcError::invalid(field.attr, format!("Must be a number from 1 to {max}."))),
    }
}
