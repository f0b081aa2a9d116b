//! `POST P/query/`: query nodes. Results are shared with saved insights of the same query.

use axum::extract::State;
use axum::response::Response;
use pennon_analytics::kinds::unsupported_kind;
use pennon_analytics::{ParsedQuery, Query};
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json, sized};
use pennon_core::store::keys::ProjectId;
use serde_json::{Value, json as object};

use crate::calculator::{CacheScope, KeyedQuery, QueryOrigin, QueryRequest};
use crate::errors::engine_error;
use crate::query_response::QueryResponse;
use crate::refresh::RefreshParam;
use crate::request::query_id;
use crate::source::QuerySource;
use crate::{Calculation, RefreshMode};

pub(crate) const READ_QUERIES: &str = "query:read";

/// A parsed request.
struct NodeRequest {
    /// Its query; else the kind that is not supported, or `None` where it is empty.
    query: Result<KeyedQuery, Option<String>>,
    refresh: RefreshMode,
    /// The client's own id of the calculation.
    query_id: Option<String>,
}

/// `POST P/query/`
pub async fn query(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let request = parse_request(&call);
    let query = request.as_ref().ok().and_then(|request| request.query.as_ref().ok());
    let (access, items) = state
        .app
        .authorize_project_with(&call, READ_QUERIES, |id| {
            query.iter().flat_map(|query| query.keys(id)).collect()
        })
        .await?;
    let request = request?;
    let project = &access.project;
    let query = match request.query {
        Ok(query) => query,
        Err(Some(kind)) => {
            return Err(engine_error(unsupported_kind("query", &kind, &project.id.to_string())));
        }
        Err(None) => return Ok(json(empty(&project.timezone, timestamp(call.now)))),
    };
    let deadline = state.calculator.deadline();
    let stored = state.calculator.complete_prefetch(project, &query, items).await?;
    let query_request = QueryRequest {
        project,
        keyed: &query,
        stored: stored.stored.first().and_then(Option::as_ref),
        tracked: stored.tracked.first().and_then(Option::as_ref),
        known: &stored.known,
        now: call.now,
        deadline,
        origin: QueryOrigin { query_id: request.query_id.as_deref(), ..QueryOrigin::default() },
    };
    let response = state.calculator.respond(&query_request, request.refresh).await?;
    sized(&call.headers, &envelope(&response, &query.key, project.id))
}

fn parse_request(call: &Call) -> ApiResult<NodeRequest> {
    let fields = call.json_fields()?;
    let (node, parsed) = parse_node(&fields)?;
    let refresh = parse_refresh(call, &fields);
    let query_id = query_id(call, Some(&fields))?;
    let query = match parsed {
        ParsedQuery::Query(query) => {
            Ok(KeyedQuery::new(query, CacheScope::Saved, None).with_source(QuerySource::Node(node)))
        }
        ParsedQuery::OtherKind(kind) => Err(Some(kind)),
        ParsedQuery::Empty => Err(None),
    };
    Ok(NodeRequest { query, refresh, query_id })
}

/// The refresh mode of a request. The default is to calculate a stale result.
pub(crate) fn parse_refresh(call: &Call, fields: &Fields) -> RefreshMode {
    let refresh = RefreshParam::parse(call.query_value("refresh"), fields.get("refresh"));
    if refresh.is_explicit { refresh.mode } else { RefreshMode::Blocking }
}

fn parse_node(fields: &Fields) -> ApiResult<(Value, ParsedQuery)> {
    let node = match fields.get("query") {
        None => return Err(ApiError::invalid("required", "This field is required.", Some("query"))),
        Some(Value::Null) => {
            return Err(ApiError::invalid("null", "This field may not be null.", Some("query")));
        }
        Some(node) => node,
    };
    Ok((node.clone(), Query::from_query_node(node).map_err(engine_error)?))
}

fn empty(timezone: &str, now: String) -> Value {
    object!({
        "results": [], "timezone": timezone, "is_cached": false, "last_refresh": now, "cache_key": null,
        "hasMore": null, "hogql": null, "query_status": null,
    })
}

/// The body of a response.
pub(crate) fn envelope(response: &QueryResponse, key: &str, project: ProjectId) -> Value {
    let status = response.status.as_ref().map(|status| status.to_json(project, None, None));
    let calculated = response.calculated.as_ref();
    object!({
        "results": calculated.map(|it| &it.result),
        "timezone": calculated.map(|it| &it.timezone),
        "is_cached": calculated.is_some_and(|it| it.is_cached),
        "last_refresh": calculated.map(|it| timestamp(it.last_refresh)),
        "cache_target_age": calculated.map(|it| timestamp(it.cache_target_age)),
        "next_allowed_client_refresh": calculated.map(|it| timestamp(it.next_allowed_client_refresh)),
        "cache_key": key,
        "hasMore": calculated.and_then(|it| it.has_more),
        "hogql": calculated.map(|it| &it.hogql),
        "query_status": status,
    })
}
