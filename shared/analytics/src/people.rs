//! The actors behind a data point of a result.
//!
//! Must stay true: a selector lists exactly the actors that its data point counts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pennon_filters::error::CalcResult;
use serde_json::{Map, Value};
use uuid::Uuid;

pub use crate::correlation::CorrelationPoint;
pub use crate::funnel::{ActorOutcome, FunnelPoint};
use crate::plan::Plan;
use crate::query::{Math, Query, UniqueBy};
use crate::repartition::ActorKind;
use crate::scan::Micros;
pub use crate::trends::TrendPoint;
use crate::{correlation, funnel, trends};

/// An actor that counts towards a data point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedActor {
    /// Its id, as in [`crate::scan::Partition::actors`]; for a group or distinct id, derived from its key.
    pub actor: Uuid,
    /// The group key or distinct id; none for persons.
    pub key: Option<String>,
    /// Times of the events that count, ascending.
    pub times: Vec<Micros>,
}

/// Selects one data point of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A step of a funnel.
    Funnel(FunnelPoint),
    /// A value of a trend series.
    Trend(TrendPoint),
    /// A row of a correlation.
    Correlation(CorrelationPoint),
}

impl Query {
    /// Parses the query parameters of a link to the actors of a data point.
    pub fn selector(&self, request: &Map<String, Value>) -> CalcResult<Selector> {
        match self {
            Self::Trends(query) => trends::parse_point(query, request).map(Selector::Trend),
            Self::Correlation(query) => correlation::parse_point(query, request).map(Selector::Correlation),
            Self::Funnels(query) => funnel::parse_point(query, request).map(Selector::Funnel),
        }
    }
}

/// Merges the actors of several partitions. An actor of several partitions is listed once, with all its times. Ordered by
/// id.
pub fn union(parts: impl IntoIterator<Item = MatchedActor>) -> Vec<MatchedActor> {
    let mut people: BTreeMap<Uuid, MatchedActor> = BTreeMap::new();
    for matched in parts {
        match people.entry(matched.actor) {
            Entry::Vacant(entry) => {
                entry.insert(matched);
            }
            Entry::Occupied(mut entry) => {
                let times = &mut entry.get_mut().times;
                times.extend(matched.times);
                times.sort_unstable();
            }
        }
    }
    people.into_values().collect()
}

impl Selector {
    /// The actor kind that the data point counts: groups if its series counts groups, else the actors of the plan.
    pub fn counts(&self, query: &Query, plan: &Plan) -> ActorKind {
        if let (Self::Trend(point), Query::Trends(trends)) = (self, query)
            && let Some(series) = trends.series.get(point.series)
            && let Math::Unique(UniqueBy::Group(index)) | Math::Rolling(_, UniqueBy::Group(index)) =
                series.math
        {
            return ActorKind::Groups(index);
        }
        plan.actors(self)
    }
}
