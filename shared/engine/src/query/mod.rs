//! Questions: one typed model for legacy requests and for query nodes.
//!
//! Must stay true: both ways in give the same model for the same question; whatever would change the numbers and is not
//! calculated is refused while parsing, so that a [`Query`] that exists can be answered.

mod breakdown;
mod correlation;
mod describe;
mod echo;
mod exclusions;
mod field;
mod formulas;
mod freshness;
mod funnels;
mod legacy;
mod math;
mod node;
mod normal;
mod refresh;
mod trends;
mod validate;

use serde_json::{Map, Value};

pub use breakdown::{Breakdown, BreakdownBy, CohortChoice, Form, Part, PartSource};
pub use correlation::{CorrelationQuery, Factor};
pub(crate) use echo::with_dates;
pub(crate) use field::{Field, switch, whole};
pub use freshness::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};
pub use funnels::{Attribution, FirstTime, FunnelsQuery, Order, StepRule, Viz};
pub use math::{Math, MathArguments, NumberSource, Statistic, Who};
pub use refresh::{Decision, Refresh, Start, Then, decide};
pub use validate::{accept_query, validate_node};

use crate::dates::Interval;
use crate::dates::compare::Comparison;
use crate::dates::range::DateSpec;
use crate::definitions::{Definitions, Mentions};
use crate::error::CalcResult;
use crate::filter::Filter;
pub use crate::trends::Formula;
pub use formulas::NamedFormula;

/// A question that can be calculated.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    /// Numbers over time, or one number.
    Trends(TrendsQuery),
    /// How far people get through steps.
    Funnels(FunnelsQuery),
    /// What goes with getting through a funnel.
    Correlation(CorrelationQuery),
}

/// What a request or a node turned out to be.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one a request")]
pub enum Parsed {
    /// A question.
    Query(Query),
    /// A trend or a funnel without any series: an empty answer, or a refusal where the endpoint demands one.
    Empty,
    /// A kind of question that is stored but not calculated; the kind's name, such as `RetentionQuery`.
    OtherKind(String),
}

/// A trend.
#[derive(Debug, Clone, PartialEq)]
pub struct TrendsQuery {
    /// At least one.
    pub series: Vec<Series>,
    /// What every question has.
    pub common: Common,
    /// How the numbers are laid out.
    pub display: Display,
    /// True when the request named a known display: answers echo only what was said.
    pub display_given: bool,
    /// Trailing average over so many buckets; 1 is none.
    pub smoothing: u32,
    /// The earlier period that is shown beside.
    pub comparison: Option<Comparison>,
    /// Lines that are calculated from the series instead of these; none where the series themselves are the answer.
    pub formulas: Vec<NamedFormula>,
}

/// What trends and funnels share.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    /// Filters on every event.
    pub properties: Filter,
    /// The project's test account filters apply too.
    pub filter_test_accounts: bool,
    /// The range.
    pub dates: DateSpec,
    /// Width of the buckets; rounds the range of a funnel.
    pub interval: Interval,
    /// What splits the numbers.
    pub breakdown: Option<Breakdown>,
}

/// One line of a trend, one step of a funnel.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Which events.
    pub source: EventSource,
    /// The name that the request gave, for display.
    pub name: Option<String>,
    /// The user's own name for it, trimmed, never empty.
    pub custom_name: Option<String>,
    /// What is counted; a funnel ignores it.
    pub math: Math,
    /// The text sent as `math`, to be echoed.
    pub math_given: Option<String>,
    /// The arguments of `math`.
    pub math_arguments: MathArguments,
    /// Filters on this series alone.
    pub properties: Filter,
}

/// Events by name or by action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSource {
    /// Events of this name; none is every event.
    Event(Option<String>),
    /// Events that match the action with this id.
    Action(u64),
}

impl EventSource {
    /// The event's name or the action's id, as requests have it.
    pub fn id(&self) -> Value {
        match self {
            Self::Event(name) => Value::from(name.clone()),
            Self::Action(id) => Value::from(*id),
        }
    }

    /// The list of a request that such entries stand in.
    pub fn list(&self) -> &'static str {
        match self {
            Self::Event(_) => "events",
            Self::Action(_) => "actions",
        }
    }

    /// What answers call it: the event's or the action's name.
    pub fn name<'a>(&'a self, definitions: &'a Definitions) -> Option<&'a str> {
        match self {
            Self::Event(name) => name.as_deref(),
            Self::Action(id) => definitions.actions.get(id).map(|action| action.name.as_str()),
        }
    }
}

/// How a trend is shown, as far as the numbers depend on it.
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

    /// The names that requests may use, for error texts.
    pub fn names() -> String {
        Self::NAMES.map(|(name, _)| name).join(", ")
    }

    /// The display of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, display)| *display)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, display)| *display == self).map_or("ActionsLineGraph", |(name, _)| *name)
    }

    /// One number over the whole range instead of one a bucket.
    pub fn is_total(self) -> bool {
        matches!(
            self,
            Self::ActionsTable | Self::ActionsPie | Self::ActionsBarValue | Self::WorldMap | Self::BoldNumber
        )
    }
}

/// A conversion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How many units; at least one.
    pub count: i64,
    /// The unit.
    pub unit: WindowUnit,
}

/// Unit of a conversion window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum WindowUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 31 days.
    Month,
}

/// An event that voids a path when it falls between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Exclusion {
    /// The event and its filters.
    pub series: Series,
    /// Index of the step after which it counts.
    pub from_step: usize,
    /// Index of the step before which it counts.
    pub to_step: usize,
}

impl Query {
    /// A trend request (I17, I18): query string and body already merged into one object.
    pub fn from_legacy_trends(request: &Map<String, Value>) -> CalcResult<Parsed> {
        legacy::trends(request)
    }

    /// A funnel request (I11, I12): query string and body already merged into one object.
    pub fn from_legacy_funnel(request: &Map<String, Value>) -> CalcResult<Parsed> {
        legacy::funnel(request)
    }

    /// A correlation request (I13, I14): query string and body already merged into one object.
    pub fn from_legacy_correlation(request: &Map<String, Value>) -> CalcResult<Parsed> {
        correlation::build(request)
    }

    /// The stored `filters` of an insight, a trend unless its `insight` says otherwise.
    pub fn from_filters(filters: &Map<String, Value>) -> CalcResult<Parsed> {
        match filters.get("insight").and_then(Value::as_str).unwrap_or("TRENDS") {
            "TRENDS" | "SESSIONS" => legacy::trends(filters),
            "FUNNELS" => legacy::funnel(filters),
            other => Ok(Parsed::OtherKind(other.to_owned())),
        }
    }

    /// A query node, bare or inside wrapper nodes.
    pub fn from_node(node: &Value) -> CalcResult<Parsed> {
        node::parse(node)
    }

    /// What trends and funnels share.
    pub fn common(&self) -> &Common {
        match self {
            Self::Trends(query) => &query.common,
            Self::Funnels(query) => &query.common,
            Self::Correlation(query) => &query.funnel.common,
        }
    }

    /// The series or the steps.
    pub fn series(&self) -> &[Series] {
        match self {
            Self::Trends(query) => &query.series,
            Self::Funnels(query) => &query.series,
            Self::Correlation(query) => &query.funnel.series,
        }
    }

    /// What is special about a step of a funnel; none for a trend.
    pub(crate) fn step(&self, order: usize) -> Option<StepRule> {
        match self {
            Self::Trends(_) => None,
            Self::Funnels(query) => Some(query.steps.get(order).copied().unwrap_or_default()),
            Self::Correlation(query) => Some(query.funnel.steps.get(order).copied().unwrap_or_default()),
        }
    }

    /// The actions and cohorts that the question itself refers to; these may refer to more.
    pub fn mentions(&self) -> Mentions {
        let mut mentions = Mentions::default();
        let mut of_filter = |filter: &Filter| {
            filter.cohorts(&mut |id| {
                mentions.cohorts.insert(id);
            })
        };
        of_filter(&self.common().properties);
        let split = self.common().breakdown.iter().flat_map(Breakdown::cohorts);
        let split: Vec<u64> = split.collect();
        let exclusions = match self {
            Self::Trends(_) => &[][..],
            Self::Funnels(query) => &query.exclusions,
            Self::Correlation(query) => &query.funnel.exclusions,
        };
        let sources = self.series().iter().chain(exclusions.iter().map(|entry| &entry.series));
        let mut actions = std::collections::BTreeSet::new();
        for series in sources {
            of_filter(&series.properties);
            if let EventSource::Action(id) = series.source {
                actions.insert(id);
            }
        }
        mentions.actions = actions;
        mentions.cohorts.extend(split);
        mentions
    }

    /// True when planning needs the time of the project's earliest event.
    pub fn needs_earliest(&self) -> bool {
        self.common().dates.needs_earliest()
    }

    /// The query node of the question with defaults filled in and keys sorted, without a wrapper: equal questions give
    /// equal texts, so it serves in cache keys. What changes nothing in an answer is not in it.
    pub fn normalised(&self) -> String {
        normal::text(self)
    }

    /// The question as readable SQL-like text, for the `hogql` field of an insight.
    pub fn describe(&self) -> String {
        describe::text(self)
    }

    /// The question as a legacy filter object, dates as they were sent.
    pub fn to_legacy(&self) -> Map<String, Value> {
        echo::legacy(self)
    }
}

impl Window {
    /// Length in microseconds.
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

    /// The unit of a name, in any case, with or without a plural `s`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let singular = name.strip_suffix('s').unwrap_or(&name);
        Self::NAMES.iter().find(|(known, ..)| *known == singular).map(|(_, unit, _)| *unit)
    }

    /// The name that requests use.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or("day", |(name, ..)| *name)
    }

    /// Length in seconds.
    pub fn seconds(self) -> i64 {
        Self::NAMES.iter().find(|(_, unit, _)| *unit == self).map_or(86_400, |(.., seconds)| *seconds)
    }
}
