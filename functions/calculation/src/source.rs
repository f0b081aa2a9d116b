//! A query as it was sent, so that a job can parse it again.

use pennon_analytics::{ParsedQuery, Query};
use pennon_core::http::Fields;
use pennon_filters::CalcResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A query as it was sent. Parsing it again gives the same query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", content = "question", rename_all = "snake_case")]
pub enum QuerySource {
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

impl QuerySource {
    /// Parses the query.
    pub fn parse(&self) -> CalcResult<ParsedQuery> {
        match self {
            QuerySource::Node(node) => Query::from_query_node(node),
            QuerySource::Filters(filters) => Query::from_insight_filters(filters),
            QuerySource::Funnel(request) => Query::from_funnel_filters(request),
            QuerySource::Correlation(request) => Query::from_correlation_filters(request),
            QuerySource::Trend(request) => Query::from_trends_filters(request),
        }
    }
}
