//! The people behind a number of an answer.
//!
//! Must stay true: whoever counts into a number is found by its selector, and nobody else.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{CalcError, CalcResult};
use crate::funnel;
pub use crate::funnel::{FunnelPoint, Which};
use crate::query::Query;
use crate::scan::Micros;

/// One who counts into a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// Who it is, as in [`crate::scan::Partition::actors`].
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
}

impl Query {
    /// The number that the parameters of a link choose.
    pub fn selector(&self, request: &Map<String, Value>) -> CalcResult<Selector> {
        match self {
            Self::Trends(_) => Err(CalcError::unsupported("insight", "the people of trends")),
            Self::Funnels(query) => funnel::point(query, request).map(Selector::Funnel),
        }
    }
}
