//! The kinds of insight that are calculated: one folder each, and one line each in the registration below.
//!
//! A kind implements three traits of `insight`: `InsightQuery` for its parsed query, `RegisteredKind` for its names, its
//! parsers and its compiler, and `CompiledInsight` for its calculation. The registration makes [`Query`], [`DataPoint`] and [`PartitionResult`] of them.
//!
//! Must stay true: nothing outside of a kind's folder distinguishes kinds.

pub mod correlation;
pub mod funnels;
mod insight;
mod parse;
mod plan;
#[macro_use]
mod registration;
mod saved_query;
mod table;
pub mod trends;

use serde_json::Value;

pub use crate::query::node::{SAVED_INSIGHT, WRAPPERS};
pub use insight::{Endpoint, KindDescription};
pub use parse::{ParsedQuery, stored_kinds};
pub use plan::Plan;
pub use saved_query::{
    ACTION_SERIES, CONDITION_TYPES, FLAG_OPERATOR, FieldType, SERIES_FIELDS, SERIES_KINDS,
    decode_and_validate_query, validate_node, validated_fields,
};
pub use table::TableRows;

register_kinds! {
    /// A count or statistic for each time bucket, or one over the whole range.
    Trends(trends::TrendsQuery),
    /// How many actors reach each step of a sequence.
    Funnels(funnels::FunnelsQuery),
    /// Which events and properties correlate with converting in a funnel.
    Correlation(correlation::CorrelationQuery),
}

/// The final result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryOutput {
    /// The `result` field of the response.
    pub result: Value,
    /// Whether breakdown values were cut off by the limit. `None` for kinds without such a limit.
    pub has_more: Option<bool>,
}
