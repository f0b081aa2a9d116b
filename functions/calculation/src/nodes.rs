//! `POST P/query/`: query nodes, calculated at once. Results are shared with saved insights of the same query.

use axum::extract::State;
use axum::response::Response;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json};
use pennon_core::store::Key;
use pennon_engine::{CalcError, Parsed, Query};
use serde_json::{Value, json as object};

use crate::Calculation;
use crate::calculator::{Calculated, Purpose, Question, Stored, cache_key, result_key};
use crate::errors::refusal;
use crate::refresh::Refresh;

const READ_QUERIES: &str = "query:read";

/// A request, read.
struct Request {
    parsed: Parsed,
    key: Option<String>,
    refresh: Refresh,
}

/// `POST P/query/`
pub async fn query(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let read = read(&call);
    let wanted = read.as_ref().ok().and_then(|request| request.key.clone());
    let (access, found) = state
        .app
        .project_with(&call, READ_QUERIES, |id| {
            wanted.iter().map(|key| result_key(id, key)).collect::<Vec<Key>>()
        })
        .await?;
    let request = read?;
    let (query, key) = match (&request.parsed, &request.key) {
        (Parsed::Query(query), Some(key)) => (query, key),
        (Parsed::OtherKind(kind), _) => return Err(refusal(CalcError::unsupported("query", kind))),
        _ => return Ok(json(empty(&access.project.timezone, timestamp(call.now)))),
    };
    let stored = Stored::read(found.into_iter().next().flatten().as_ref());
    let question = Question {
        project: &access.project,
        query,
        key,
        stored: stored.as_ref(),
        now: call.now,
        deadline: state.calculator.deadline(),
    };
    let shown = state.calculator.answer(&question, request.refresh).await?;
    Ok(json(envelope(shown, key)))
}

fn read(call: &Call) -> ApiResult<Request> {
    let fields = call.json_fields()?;
    let parsed = parse(&fields)?;
    let said = Refresh::read(call.query_value("refresh"), fields.get("refresh"));
    // Whoever asks a question here wants its answer, unless the request says otherwise.
    let refresh = if said.explicit { said.mode } else { Refresh::Blocking };
    refresh.require_synchronous()?;
    let key = match &parsed {
        Parsed::Query(query) => Some(cache_key(Purpose::Saved, query, None)),
        _ => None,
    };
    Ok(Request { parsed, key, refresh })
}

fn parse(fields: &Fields) -> ApiResult<Parsed> {
    let node = match fields.get("query") {
        None => return Err(ApiError::invalid("required", "This field is required.", Some("query"))),
        Some(Value::Null) => {
            return Err(ApiError::invalid("null", "This field may not be null.", Some("query")));
        }
        Some(node) => node,
    };
    Query::from_node(node).map_err(refusal)
}

fn empty(timezone: &str, now: String) -> Value {
    object!({
        "results": [], "timezone": timezone, "is_cached": false, "last_refresh": now, "cache_key": null,
        "hasMore": null, "hogql": null, "query_status": null,
    })
}

fn envelope(shown: Option<Calculated>, key: &str) -> Value {
    let shown = shown.as_ref();
    object!({
        "results": shown.map(|it| &it.result),
        "timezone": shown.map(|it| &it.timezone),
        "is_cached": shown.is_some_and(|it| it.is_cached),
        "last_refresh": shown.map(|it| timestamp(it.last_refresh)),
        "cache_target_age": shown.map(|it| timestamp(it.cache_target_age)),
        "next_allowed_client_refresh": shown.map(|it| timestamp(it.next_allowed_client_refresh)),
        "cache_key": key,
        "hasMore": shown.and_then(|it| it.has_more),
        "hogql": shown.map(|it| &it.hogql),
        "query_status": null,
    })
}
