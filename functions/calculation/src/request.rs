//! Requests of the calculation endpoints: query string and body as one object.
//!
//! Must stay true: the body wins over the query string, but for `properties`; what names or steers a calculation
//! without changing its numbers is not part of the question.

use axum::http::Method;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Fields};
use pennon_engine::{CalcResult, Parsed};
use serde_json::Value;

use crate::errors::refusal;
use crate::refresh::{Refresh, Said};

/// Which endpoint asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Funnels.
    Funnel,
    /// What those have in common who get through a funnel.
    Correlation,
    /// Trends.
    Trend,
}

/// A request, read.
#[derive(Debug)]
pub struct Request {
    /// The question.
    pub parsed: Parsed,
    /// What it says about stored results.
    pub refresh: Said,
    /// Query string and body as one object.
    pub merged: Fields,
    /// Told apart from the same question with another value, as clients do when they know that data changed.
    pub invalidation_key: Option<String>,
}

/// Parameters that are about the request, not about the numbers.
const ABOUT_THE_REQUEST: [&str; 10] = [
    "refresh",
    "client_query_id",
    "cache_invalidation_key",
    "personal_api_key",
    "token",
    "format",
    "export_insight_id",
    "export_name",
    "limit",
    "offset",
];

/// Reads the request of an endpoint.
pub fn read(call: &Call, endpoint: Endpoint) -> ApiResult<Request> {
    let body = if call.method == Method::POST { call.json_fields()? } else { Fields::new() };
    let refresh = Refresh::read(call.query_value("refresh"), body.get("refresh"));
    let invalidation_key =
        match (body.get("cache_invalidation_key"), call.query_value("cache_invalidation_key")) {
            (Some(Value::String(key)), _) => Some(key.clone()),
            (Some(Value::Null) | None, key) => key.map(str::to_owned),
            (Some(other), _) => Some(other.to_string()),
        };
    let merged = merge(call.query(), body);
    let parsed = parse(&merged, endpoint).map_err(refusal)?;
    Ok(Request { parsed, refresh, merged, invalidation_key })
}

fn parse(merged: &Fields, endpoint: Endpoint) -> CalcResult<Parsed> {
    match endpoint {
        Endpoint::Funnel => pennon_engine::Query::from_legacy_funnel(merged),
        Endpoint::Correlation => pennon_engine::Query::from_legacy_correlation(merged),
        Endpoint::Trend => pennon_engine::Query::from_legacy_trends(merged),
    }
}

/// The parameters with the body laid over them.
fn merge(query: &[(String, String)], body: Fields) -> Fields {
    let mut merged = Fields::new();
    for (name, value) in query {
        merged.insert(name.clone(), Value::String(value.clone()));
    }
    let properties = merged.get("properties").filter(|text| text.as_str() != Some("")).cloned();
    merged.extend(body);
    if let Some(properties) = properties {
        merged.insert("properties".to_owned(), properties);
    }
    merged.retain(|name, _| !ABOUT_THE_REQUEST.contains(&name.as_str()));
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_body_wins_but_for_properties() {
        let query =
            [("interval", "week"), ("display", "ActionsBar"), ("properties", "[]"), ("refresh", "true")];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = json!({"interval": "day", "properties": [{"key": "a"}], "client_query_id": "x"});
        let merged = merge(&query, body.as_object().unwrap().clone());
        assert_eq!(
            Value::Object(merged),
            json!({"interval": "day", "display": "ActionsBar", "properties": "[]"})
        );
    }
}
