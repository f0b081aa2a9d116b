//! Insight queries: one typed model, parsed from insight filters or from query nodes.
//!
//! The API accepts two dialects. *Query nodes* are nested objects such as `{"kind": "TrendsQuery", ...}` (module `node`).
//! *Insight filters* are flat objects such as `{"insight": "TRENDS", "events": [...]}`: the older requests, the `filters`
//! that saved insights store, and the parameters of links to people (module `insight_filters`).
//!
//! Must stay true: both dialects parse the same query to the same model. Any option that would change the numbers but is
//! not supported is rejected while parsing, so every [`Query`] value can be calculated.

mod breakdown;
mod canonical;
mod correlation;
mod describe;
mod exclusions;
mod field;
mod formulas;
mod freshness;
mod funnels;
mod insight_filters;
mod math;
mod node;
mod refresh;
mod trends;
mod validate;

use pennon_filters::dates::Interval;
use pennon_filters::dates::compare::Comparison;
use pennon_filters::dates::range::DateSpec;
use pennon_filters::error::CalcResult;
use serde_json::{Map, Value};

use crate::definitions::{DefinitionIds, Definitions};
use crate::filter::Filter;
pub use crate::trends::Formula;
pub use breakdown::{
    Breakdown, BreakdownBy, BreakdownDimension, BreakdownForm, CohortChoice, DimensionSource,
};
pub use correlation::{CorrelationQuery, Factor};
pub(crate) use field::{Field, parse_boolean, parse_integer};
pub use formulas::NamedFormula;
pub use freshness::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};
pub use funnels::{Attribution, FirstTime, FunnelVizType, FunnelsQuery, StepOptions, StepOrder};
pub(crate) use insight_filters::serialize::insight_filters_with_dates;
pub use math::{Math, MathArguments, NumberSource, Statistic, UniqueBy};
pub use refresh::{BackgroundStart, Decision, RefreshAction, RefreshMode, decide};
pub use validate::{
    BREAKDOWN_TYPES, CONDITION_TYPES, DISPLAYS, INTERVALS, decode_and_validate_query, validate_node,
};

/// An insight query that can be calculated.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    /// A count or statistic for each time bucket, or one over the whole range.
    Trends(TrendsQuery),
    /// How many actors reach each step of a sequence.
    Funnels(FunnelsQuery),
    /// Which events and properties correlate with converting in a funnel.
    Correlation(CorrelationQuery),
}

/// Result of parsing a request, stored filters or a query node.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one value per request")]
pub enum ParsedQuery {
    /// A supported query.
    Query(Query),
    /// A trend or a funnel without series. The endpoint decides between an empty result and an error.
    Empty,
    /// A query kind that insights can store but that cannot be calculated; its name, such as `RetentionQuery`.
    OtherKind(String),
}

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

/// The fields that trends and funnels share.
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
}

/// A conversion window: the time allowed from the first step to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionWindow {
    /// Number of units; at least 1.
    pub count: i64,
    /// The unit.
    pub unit: WindowUnit,
}

/// Unit of a conversion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum WindowUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 31 days.
    Month,
}

/// An exclusion: an event that disqualifies a path when it occurs between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Exclusion {
    /// The excluded event and its filters.
    pub series: Series,
    /// Index of the step after which the exclusion applies.
    pub from_step: usize,
    /// Index of the step before which the exclusion applies.
    pub to_step: usize,
}

impl Query {
    /// Parses a trends request (I17, I18): query string and body already merged into one object.
    pub fn from_trends_filters(request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        insight_filters::parse::parse_trends(request)
    }

    /// Parses a funnel request (I11, I12): query string and body already merged into one object.
    pub fn from_funnel_filters(request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        insight_filters::parse::parse_funnel(request)
    }

    /// Parses a correlation request (I13, I14): query string and body already merged into one object.
    pub fn from_correlation_filters(request: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        correlation::parse(request)
    }

    /// Parses the stored `filters` of an insight. Without an `insight` field they are trends filters.
    pub fn from_insight_filters(filters: &Map<String, Value>) -> CalcResult<ParsedQuery> {
        match filters.get("insight").and_then(Value::as_str).unwrap_or("TRENDS") {
            "TRENDS" | "SESSIONS" => insight_filters::parse::parse_trends(filters),
            "FUNNELS" => insight_filters::parse::parse_funnel(filters),
            other => Ok(ParsedQuery::OtherKind(other.to_owned())),
        }
    }

    /// Parses a query node, bare or inside wrapper nodes.
    pub fn from_query_node(node: &Value) -> CalcResult<ParsedQuery> {
        node::parse(node)
    }

    /// The fields that trends and funnels share.
    pub fn common(&self) -> &CommonFields {
        match self {
            Self::Trends(query) => &query.common,
            Self::Funnels(query) => &query.common,
            Self::Correlation(query) => &query.funnel.common,
        }
    }

    /// The series of a trend, or the steps of a funnel.
    pub fn series(&self) -> &[Series] {
        match self {
            Self::Trends(query) => &query.series,
            Self::Funnels(query) => &query.series,
            Self::Correlation(query) => &query.funnel.series,
        }
    }

    /// The options of a funnel's step; `None` for a trend.
    pub(crate) fn funnel_step_options(&self, order: usize) -> Option<StepOptions> {
        match self {
            Self::Trends(_) => None,
            Self::Funnels(query) => Some(query.steps.get(order).copied().unwrap_or_default()),
            Self::Correlation(query) => Some(query.funnel.steps.get(order).copied().unwrap_or_default()),
        }
    }

    /// The ids of the actions and cohorts that the query references directly. These may reference further ones.
    pub fn mentions(&self) -> DefinitionIds {
        let mut mentions = DefinitionIds::default();
        let mut add_filter_cohorts = |filter: &Filter| {
            filter.cohorts(&mut |id| {
                mentions.cohorts.insert(id);
            })
        };
        add_filter_cohorts(&self.common().properties);
        let breakdown_cohorts = self.common().breakdown.iter().flat_map(Breakdown::cohorts);
        let breakdown_cohorts: Vec<u64> = breakdown_cohorts.collect();
        let exclusions = match self {
            Self::Trends(_) => &[][..],
            Self::Funnels(query) => &query.exclusions,
            Self::Correlation(query) => &query.funnel.exclusions,
        };
        let all_series = self.series().iter().chain(exclusions.iter().map(|entry| &entry.series));
        let mut actions = std::collections::BTreeSet::new();
        for series in all_series {
            add_filter_cohorts(&series.properties);
            if let EventOrAction::Action(id) = series.event_or_action {
                actions.insert(id);
            }
        }
        mentions.actions = actions;
        mentions.cohorts.extend(breakdown_cohorts);
        mentions
    }

    /// Whether resolving the date range needs the time of the project's earliest event.
    pub fn needs_earliest(&self) -> bool {
        self.common().dates.needs_earliest()
    }

    /// Canonical JSON of the query, for cache keys: the query node without wrappers, defaults filled in, keys sorted.
    /// Equal queries have equal texts. Fields that do not affect the result are left out.
    pub fn normalised(&self) -> String {
        canonical::canonical_json(self)
    }

    /// Readable SQL-like text, for the `hogql` field of an insight.
    pub fn describe(&self) -> String {
        describe::describe(self)
    }

    /// The query as insight filters, dates as they were sent.
    pub fn to_insight_filters(&self) -> Map<String, Value> {
        insight_filters::serialize::to_insight_filters(self)
    }
}

impl ConversionWindow {
    /// Duration in microseconds.
    pub fn micros(self) -> i64 {
        self.count.saturating_mul(self.unit.seconds()).saturating_mul(1_000_000)
    }
}

impl WindowUnit {
    const NAMES: [(&'static str, Self, i64); 6] = [
        ("second", Self::Second, 1),
        ("minute", Self::Minute, 60),
        ("hour", Self::Hour, 3_600),
        ("day", Self::Day, 86_400),
        ("week", Self::Week, 604_800),
        ("month", Self::Month, 31 * 86_400),
    ];

    /// The names that requests use.
    pub fn names() -> [&'static str; 6] {
        Self::NAMES.map(|(name, ..)| name)
    }

    /// Parses a unit name; case-insensitive, with or without a plural `s`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let singular = name.strip_suffix('s').unwrap_or(&name);
        Self::NAMES.iter().find(|(known, ..)| *known == singular).map(|(_, unit, _)| *unit)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or("day", |(name, ..)| *name)
    }

    /// Duration in seconds.
    pub fn seconds(self) -> i64 {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or(86_400, |(.., seconds)| *seconds)
    }
}
