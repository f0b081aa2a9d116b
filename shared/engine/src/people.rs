//! The people behind a number of an answer.
//!
//! Must stay true: whoever counts into a number is found by its selector, and nobody else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::correlation;
pub use crate::correlation::CorrelationPoint;
use crate::error::CalcResult;
use crate::funnel;
pub use crate::funnel::{ActorOutcome, FunnelPoint};
use crate::plan::Plan;
use crate::query::{Math, Query, UniqueBy};
use crate::regroup::ActorKind;
use crate::scan::Micros;
use crate::trends;
pub use crate::trends::TrendPoint;

/// One who counts into a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// Who it is, as in [`crate::scan::Partition::actors`]; for a group an id made of its key.
    pub actor: Uuid,
    /// The group's key or the distinct id, where the question counts these instead of persons.
    pub key: Option<String>,
    /// When the events happened that count, ascending.
    pub times: Vec<Micros>,
}

/// The number whose people are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Of a funnel.
    Funnel(FunnelPoint),
    /// Of a trend.
    Trend(TrendPoint),
    /// Of a correlation.
    Correlation(CorrelationPoint),
}

impl Query {
    /// The number that the parameters of a link choose.
    pub fn selector(&self, request: &Map<String, Value>) -> CalcResult<Selector> {
        match self {
            Self::Trends(query) => trends::parse_point(query, request).map(Selector::Trend),
            Self::Correlation(query) => correlation::parse_point(query, request).map(Selector::Correlation),
            Self::Funnels(query) => funnel::parse_point(query, request).map(Selector::Funnel),
        }
    }
}

/// All parts together: whoever comes from several of them is there once. In the order of ids.
pub fn union(parts: impl IntoIterator<Item = Matched>) -> Vec<Matched> {
    let mut people: BTreeMap<Uuid, Matched> = BTreeMap::new();
    for one in parts {
        match people.entry(one.actor) {
            Entry::Vacant(entry) => {
                entry.insert(one);
            }
            Entry::Occupied(mut entry) => {
                let times = &mut entry.get_mut().times;
                times.extend(one.times);
                times.sort_unstable();
            }
        }
    }
    people.into_values().collect()
}

impl Selector {
    /// Whom the number counts: the groups of a series that counts groups, else the actors of the plan.
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
