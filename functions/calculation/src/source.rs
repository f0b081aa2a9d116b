//! A question as it was sent, so that it can be read again elsewhere: a job carries it.

use pennon_core::http::Fields;
use pennon_engine::{CalcResult, Parsed, Query};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A question as it was sent. Reading it again gives the same question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", content = "question", rename_all = "snake_case")]
pub enum Source {
    /// A query node.
    Node(Value),
    /// The filters of an insight.
    Filters(Fields),
    /// A request for a funnel.
    Funnel(Fields),
    /// A request for a correlation.
    Correlation(Fields),
    /// A request for a trend.
    Trend(Fields),
}

impl Source {
    /// The question.
    pub fn parse(&self) -> CalcResult<Parsed> {
        match self {
            Source::Node(node) => Query::from_node(node),
            Source::Filters(filters) => Query::from_filters(filters),
            Source::Funnel(request) => Query::from_legacy_funnel(request),
            Source::Correlation(request) => Query::from_legacy_correlation(request),
            Source::Trend(request) => Query::from_legacy_trends(request),
        }
    }
}
