//! Requests of the calculation endpoints: query string and body as one object.
//!
//! Must stay true: the body takes precedence over the query string, except for `properties`; parameters that do not change
//! the result are not part of the query.

use axum::http::Method;
use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields};
use pennon_core::store::keys::QUERY_NAME_BYTES_MAX;
use pennon_filters::CalcResult;
use serde_json::Value;

use crate::errors::engine_error;
use crate::jobs::query_name_is_too_long;
use crate::refresh::RefreshParam;
use crate::source::QuerySource;

/// A parsed request.
#[derive(Debug)]
pub struct Request {
    /// The query.
    pub parsed: ParsedQuery,
    /// How it uses cached results.
    pub refresh: RefreshParam,
    /// Query string and body as one object.
    pub merged: Fields,
    /// The same, for a background calculation.
    pub source: QuerySource,
    /// The client's own id of the calculation.
    pub query_id: Option<String>,
    /// Part of the cache key: clients change it when they know that data changed.
    pub invalidation_key: Option<String>,
}

/// The parameter with the client's own id of a calculation.
pub const QUERY_ID: &str = "client_query_id";

/// Parameters that are not part of the query.
const NON_QUERY_PARAMETERS: [&str; 10] = [
    "refresh",
    QUERY_ID,
    "cache_invalidation_key",
    "personal_api_key",
    "token",
    "format",
    "export_insight_id",
    "export_name",
    "limit",
    "offset",
];

/// Parses a request to the endpoint of a kind of insight.
pub fn parse(call: &Call, kind: InsightKind) -> ApiResult<Request> {
    parse_with(call, kind, InsightKind::parse_request)
}

/// Parses a request for the actors behind a number of a kind of insight.
pub fn parse_people(call: &Call, kind: InsightKind) -> ApiResult<Request> {
    parse_with(call, kind, InsightKind::parse_people_request)
}

fn parse_with(
    call: &Call,
    kind: InsightKind,
    parse_query: fn(InsightKind, &Fields) -> CalcResult<ParsedQuery>,
) -> ApiResult<Request> {
    let body = if call.method == Method::POST { call.json_fields()? } else { Fields::new() };
    let query_id = query_id(call, Some(&body))?;
    let refresh = RefreshParam::parse(call.query_value("refresh"), body.get("refresh"));
    let invalidation_key =
        match (body.get("cache_invalidation_key"), call.query_value("cache_invalidation_key")) {
            (Some(Value::String(key)), _) => Some(key.clone()),
            (Some(Value::Null) | None, key) => key.map(str::to_owned),
            (Some(other), _) => Some(other.to_string()),
        };
    let merged = merge(call.query(), body);
    let parsed = parse_query(kind, &merged).map_err(engine_error)?;
    let source = QuerySource::Request(kind, merged.clone());
    Ok(Request { parsed, refresh, merged, source, query_id, invalidation_key })
}

/// The client's own id of the calculation, from the query string, else from a body; `None` where it is empty.
pub fn query_id(call: &Call, body: Option<&Fields>) -> ApiResult<Option<String>> {
    let sent =
        call.query_value(QUERY_ID).or_else(|| body?.get(QUERY_ID)?.as_str()).filter(|id| !id.is_empty());
    if sent.is_some_and(query_name_is_too_long) {
        let detail = format!("Ensure this field has no more than {QUERY_NAME_BYTES_MAX} bytes.");
        return Err(ApiError::invalid("max_length", detail, Some(QUERY_ID)));
    }
    Ok(sent.map(str::to_owned))
}

/// The query string overridden by the body.
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
    merged.retain(|name, _| !NON_QUERY_PARAMETERS.contains(&name.as_str()));
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_body_overrides_the_query_string_except_for_properties() {
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
