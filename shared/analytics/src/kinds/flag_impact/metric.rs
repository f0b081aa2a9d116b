//! What is compared: conversion in a funnel, or a series of a trend.
//!
//! Must stay true: an option of the node that would change a number but has no meaning for a person's value is rejected.

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value};

use super::flag::FlagUnderTest;
use crate::definitions::DefinitionIds;
use crate::kinds::funnels::{FunnelVizType, FunnelsQuery};
use crate::kinds::insight::InsightQuery;
use crate::kinds::trends::TrendsQuery;
use crate::kinds::{ParsedQuery, Query};
use crate::query::{CommonFields, Math, NumberSource, Series, Statistic, UniqueBy};

/// What is compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Metric {
    /// The share of persons that complete a funnel.
    Funnel(FunnelsQuery),
    /// A number of each person, by the first series of a trend.
    Trend(TrendMetric),
}

/// A number of each person.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendMetric {
    /// The trend, with one series.
    pub trend: TrendsQuery,
    /// The number.
    pub value: TrendValue,
}

/// The number of a person.
#[derive(Debug, Clone, PartialEq)]
pub enum TrendValue {
    /// Whether it has an event.
    HasEvent,
    /// How many events it has.
    EventCount,
    /// The sum of a property over its events, times a factor.
    Sum(NumberSource, f64),
}

/// The field with the query node.
const QUERY: &str = "query";

impl Metric {
    /// Parses the metric of a query node.
    pub fn of_node(node: &Value, flag: &FlagUnderTest) -> CalcResult<Self> {
        Self::of_parsed(Query::from_query_node(node)?, flag)
    }

    /// Parses the metric of insight filters.
    pub fn of_filters(filters: &Map<String, Value>, flag: &FlagUnderTest) -> CalcResult<Self> {
        Self::of_parsed(Query::from_insight_filters(filters)?, flag)
    }

    fn of_parsed(parsed: ParsedQuery, flag: &FlagUnderTest) -> CalcResult<Self> {
        match parsed {
            ParsedQuery::Query(Query::Funnels(funnel)) => Self::of_funnel(funnel, flag),
            ParsedQuery::Query(Query::Trends(trend)) => Self::of_trend(trend, flag),
            ParsedQuery::Query(_) => Err(other_kind("another kind of query")),
            ParsedQuery::OtherKind(kind) => Err(other_kind(&format!("a {kind}"))),
            ParsedQuery::Empty => {
                Err(CalcError::invalid(QUERY, "The metric needs at least one event or action in series."))
            }
        }
    }

    fn of_funnel(mut funnel: FunnelsQuery, flag: &FlagUnderTest) -> CalcResult<Self> {
        if funnel.common.breakdown.is_some() {
            return Err(refused("breakdownFilter", "a breakdown of the metric; the variants split it"));
        }
        if funnel.viz != FunnelVizType::Steps {
            return Err(refused("funnelsFilter__funnelVizType", "a funnel other than of steps as a metric"));
        }
        if funnel.steps.iter().any(|step| step.first.is_some()) {
            return Err(refused(
                "series",
                "steps on first events ever in the metric; they may be before the exposure",
            ));
        }
        match (funnel.group_type_index, flag.group_type_index) {
            (None, group) => funnel.group_type_index = group,
            (node, group) if node == group => {}
            _ => return Err(other_actors("aggregation_group_type_index", flag)),
        }
        Ok(Self::Funnel(funnel))
    }

    fn of_trend(mut trend: TrendsQuery, flag: &FlagUnderTest) -> CalcResult<Self> {
        if trend.common.breakdown.is_some() {
            return Err(refused("breakdownFilter", "a breakdown of the metric; the variants split it"));
        }
        if trend.comparison.is_some() {
            return Err(refused("compareFilter", "a comparison with an earlier period"));
        }
        if !trend.formulas.is_empty() {
            return Err(refused("trendsFilter__formulas", "formulas; the first series is the metric"));
        }
        trend.series.truncate(1);
        let Some(series) = trend.series.first() else {
            return Err(CalcError::invalid(QUERY, "The metric needs an event or action in series."));
        };
        let value = match (&series.math, flag.group_type_index) {
            (Math::Total, _) => TrendValue::EventCount,
            (Math::Unique(UniqueBy::Actor), None) => TrendValue::HasEvent,
            (Math::Unique(UniqueBy::Group(index)), Some(group)) if *index == group => TrendValue::HasEvent,
            (Math::Unique(UniqueBy::Actor | UniqueBy::Group(_)), _) => {
                return Err(other_actors("series", flag));
            }
            (Math::Property(Statistic::Sum, source), _) if *source != NumberSource::SessionDuration => {
                TrendValue::Sum(source.clone(), series.math_arguments.multiplier.unwrap_or(1.0))
            }
            _ => {
                let name = series.requested_math.as_deref().unwrap_or("total");
                let what = format!("the math {name} in the metric of a flag");
                let instead = "Use total, dau, unique_group for a flag on groups, or sum with math_property.";
                return Err(CalcError::unsupported("series", what).instead(instead));
            }
        };
        Ok(Self::Trend(TrendMetric { trend, value }))
    }

    /// Whether the metric is a share of persons; else it is a mean.
    pub fn is_rate(&self) -> bool {
        match self {
            Self::Funnel(_) => true,
            Self::Trend(metric) => metric.value == TrendValue::HasEvent,
        }
    }

    /// The query of the metric.
    pub(super) fn query(&self) -> &dyn InsightQuery {
        match self {
            Self::Funnel(funnel) => funnel,
            Self::Trend(metric) => &metric.trend,
        }
    }

    pub(super) fn common(&self) -> &CommonFields {
        self.query().common()
    }

    pub(super) fn common_mut(&mut self) -> &mut CommonFields {
        match self {
            Self::Funnel(funnel) => &mut funnel.common,
            Self::Trend(metric) => &mut metric.trend.common,
        }
    }

    pub(super) fn series(&self) -> &[Series] {
        self.query().series()
    }

    pub(super) fn direct_references(&self) -> DefinitionIds {
        self.query().direct_references()
    }
}

fn other_kind(what: &str) -> CalcError {
    let what = format!("{what} as the metric of a flag");
    CalcError::unsupported(QUERY, what).instead("Use a FunnelsQuery or a TrendsQuery.")
}

fn refused(attr: &str, what: &str) -> CalcError {
    CalcError::unsupported(attr, what)
}

/// The error for a metric that counts others than the flag decides for.
fn other_actors(attr: &str, flag: &FlagUnderTest) -> CalcError {
    let actors = match flag.group_type_index {
        Some(index) => format!(
            "groups of type {index}: use aggregation_group_type_index {index} in a funnel, and total, sum or unique_group with \
             math_group_type_index {index} in a trend"
        ),
        None => "persons: use no group type in the metric".to_owned(),
    };
    CalcError::invalid(attr, format!("The flag {} is evaluated for {actors}.", flag.key))
}
