//! What the queries of all kinds of insight share: fields, series, breakdowns, and the two dialects of requests.
//!
//! The API accepts two dialects. *Query nodes* are nested objects such as `{"kind": "TrendsQuery", ...}` (module `node`).
//! *Insight filters* are flat objects such as `{"insight": "TRENDS", "events": [...]}`: the older requests, the `filters`
//! that saved insights store, and the parameters of links to people (module `insight_filters`).
//!
//! Must stay true: both dialects parse the same query to the same model. Any option that would change the numbers but is
//! not supported is rejected while parsing, so every query can be calculated. Nothing here knows a kind of insight.

mod breakdown;
pub(crate) mod canonical;
mod common;
pub(crate) mod describe;
mod field;
pub(crate) mod insight_filters;
pub(crate) mod math;
pub(crate) mod node;

use std::collections::BTreeSet;

use pennon_filters::dates::Interval;
use pennon_filters::dates::range::DateSpec;
use serde_json::Value;

use crate::definitions::{DefinitionIds, Definitions};
use crate::filter::Filter;
pub use breakdown::{
    BREAKDOWN_KINDS, Breakdown, BreakdownBy, BreakdownDimension, BreakdownForm, CohortChoice,
    DimensionSource, EVENTS as BREAKDOWN_EVENTS,
};
pub(crate) use breakdown::{BreakdownRules, KeyLists};
pub(crate) use common::{
    parse_common_fields, parse_comparison, parse_fields_without_breakdown, parse_series,
};
pub(crate) use field::{Field, RawCommon, RawSeries, parse_boolean, parse_integer};
pub use math::{Math, MathArguments, NumberSource, Statistic, UniqueBy};

/// The fields that all kinds share.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonFields {
    /// Filters that every event must pass.
    pub properties: Filter,
    /// Whether the project's test account filters apply as well.
    pub filter_test_accounts: bool,
    /// The date range.
    pub dates: DateSpec,
    /// Width of the time buckets. For a funnel it only rounds the date range.
    pub interval: Interval,
    /// The breakdown, if any.
    pub breakdown: Option<Breakdown>,
}

/// One series of a trend, or one step of a funnel.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The event or action to count.
    pub event_or_action: EventOrAction,
    /// The name that the client sent, for display.
    pub name: Option<String>,
    /// The name that the user chose; trimmed, never empty.
    pub custom_name: Option<String>,
    /// How the events are aggregated; funnels ignore it.
    pub math: Math,
    /// The `math` parameter as sent, for writing it back.
    pub requested_math: Option<String>,
    /// The parameters of `math`.
    pub math_arguments: MathArguments,
    /// Filters of this series only.
    pub properties: Filter,
}

/// Selects events by name or by action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventOrAction {
    /// Events with this name; `None` selects every event.
    Event(Option<String>),
    /// Events that match the action with this id.
    Action(u64),
}

impl EventOrAction {
    /// The `id` of the series in a request: the event's name (null for every event) or the action's id.
    pub fn id(&self) -> Value {
        match self {
            Self::Event(name) => Value::from(name.clone()),
            Self::Action(id) => Value::from(*id),
        }
    }

    /// The request list that holds such series, `events` or `actions`; also their `type`.
    pub fn list_name(&self) -> &'static str {
        match self {
            Self::Event(_) => "events",
            Self::Action(_) => "actions",
        }
    }

    /// The event's or the action's name for display; `None` for every event and for an unknown action.
    pub fn name<'a>(&'a self, definitions: &'a Definitions) -> Option<&'a str> {
        match self {
            Self::Event(name) => name.as_deref(),
            Self::Action(id) => definitions.actions.get(id).map(|action| action.name.as_str()),
        }
    }
}

impl CommonFields {
    /// The ids of the actions and cohorts that these fields and `series` reference.
    pub(crate) fn direct_references<'a>(
        &self,
        series: impl IntoIterator<Item = &'a Series>,
    ) -> DefinitionIds {
        let mut actions = BTreeSet::new();
        let mut cohorts: BTreeSet<u64> = self.breakdown.iter().flat_map(Breakdown::cohorts).collect();
        let mut add_filter_cohorts = |filter: &Filter| {
            filter.cohorts(&mut |id| {
                cohorts.insert(id);
            })
        };
        add_filter_cohorts(&self.properties);
        for one in series {
            add_filter_cohorts(&one.properties);
            if let EventOrAction::Action(id) = one.event_or_action {
                actions.insert(id);
            }
        }
        DefinitionIds { actions, cohorts }
    }
}
