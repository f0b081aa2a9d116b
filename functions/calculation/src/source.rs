//! A query as it was sent, so that a job can parse it again.

use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_core::http::Fields;
use pennon_filters::CalcResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A query as it was sent. Parsing it again gives the same query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "StoredSource", try_from = "StoredSource")]
pub enum QuerySource {
    /// A query node.
    Node(Value),
    /// The filters of an insight.
    Filters(Fields),
    /// A request to the endpoint of a kind of insight.
    Request(InsightKind, Fields),
}

/// The stored form: which form of query, and the query.
#[derive(Serialize, Deserialize)]
struct StoredSource {
    form: String,
    /// Stored jobs have this name.
    #[serde(rename = "question")]
    query: Value,
}

const NODE: &str = "node";
const FILTERS: &str = "filters";

impl QuerySource {
    /// Parses the query.
    pub fn parse(&self) -> CalcResult<ParsedQuery> {
        match self {
            QuerySource::Node(node) => Query::from_query_node(node),
            QuerySource::Filters(filters) => Query::from_insight_filters(filters),
            QuerySource::Request(kind, request) => kind.parse_request(request),
        }
    }
}

impl From<QuerySource> for StoredSource {
    fn from(source: QuerySource) -> StoredSource {
        let (form, query) = match source {
            QuerySource::Node(node) => (NODE, node),
            QuerySource::Filters(filters) => (FILTERS, Value::Object(filters)),
            QuerySource::Request(kind, request) => {
                (kind.description().endpoint.job_form, Value::Object(request))
            }
        };
        StoredSource { form: form.to_owned(), query }
    }
}

impl TryFrom<StoredSource> for QuerySource {
    type Error = String;

    fn try_from(stored: StoredSource) -> Result<QuerySource, String> {
        let StoredSource { form, query } = stored;
        if form == NODE {
            return Ok(QuerySource::Node(query));
        }
        let Value::Object(fields) = query else { return Err(format!("a {form} query is not an object")) };
        if form == FILTERS {
            return Ok(QuerySource::Filters(fields));
        }
        let kind = InsightKind::from_job_form(&form);
        kind.map(|kind| QuerySource::Request(kind, fields)).ok_or(format!("unknown form of query: {form}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stored_form_is_that_of_earlier_releases() {
        for (form, query) in [
            ("node", json!({"kind": "TrendsQuery"})),
            ("filters", json!({"insight": "FUNNELS"})),
            ("funnel", json!({"events": []})),
            ("correlation", json!({"events": []})),
            ("path", json!({"step_limit": 5})),
            ("trend", json!({"events": []})),
            ("stickiness", json!({"events": []})),
            ("lifecycle", json!({"events": []})),
            ("flag_impact", json!({"impact": {}})),
        ] {
            let stored = json!({"form": form, "question": query});
            let source: QuerySource = serde_json::from_value(stored.clone()).unwrap();
            assert_eq!(serde_json::to_string(&source).unwrap(), stored.to_string());
        }
        assert!(serde_json::from_value::<QuerySource>(json!({"form": "other", "question": {}})).is_err());
    }
}
