//! `POST P/query/`: query nodes, calculated at once. Results are shared with saved insights of the same query.

use axum::extract::State;
use axum::response::Response;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json};
use pennon_engine::{CalcError, Parsed, Query};
use serde_json::{Value, json as object};

use crate::Calculation;
use crate::calculator::{Asked, Calculated, Purpose, Question};
use crate::errors::refusal;
use crate::refresh::Refresh;

const READ_QUERIES: &str = "query:read";

/// A request, read.
struct Request {
    /// Its question; else a kind that is not calculated, or none when it asks for nothing.
    asked: Result<Asked, Option<String>>,
    refresh: Refresh,
}

/// `POST P/query/`
pub async fn query(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let read = read(&call);
    let asked = read.as_ref().ok().and_then(|request| request.asked.as_ref().ok());
    let (access, found) = state
        .app
        .project_with(&call, READ_QUERIES, |id| asked.iter().flat_map(|asked| asked.keys(id)).collect())
        .await?;
    let request = read?;
    let project = &access.project;
    let asked = match request.asked {
        Ok(asked) => asked,
        Err(Some(kind)) => return Err(refusal(CalcError::unsupported("query", kind))),
        Err(None) => return Ok(json(empty(&project.timezone, timestamp(call.now)))),
    };
    let deadline = state.calculator.deadline();
    let read = state.calculator.read_after(project, &asked, found).await?;
    let stored = read.stored.into_iter().next().flatten();
    let question = Question {
        project,
        asked: &asked,
        stored: stored.as_ref(),
        known: &read.known,
        now: call.now,
        deadline,
    };
    let shown = state.calculator.answer(&question, request.refresh).await?;
    Ok(json(envelope(shown, &asked.key)))
}

fn read(call: &Call) -> ApiResult<Request> {
    let fields = call.json_fields()?;
    let parsed = parse(&fields)?;
    let said = Refresh::read(call.query_value("refresh"), fields.get("refresh"));
    // Whoever asks a question here wants its answer, unless the request says otherwise.
    let refresh = if said.explicit { said.mode } else { Refresh::Blocking };
    refresh.require_synchronous()?;
    let asked = match parsed {
        Parsed::Query(query) => Ok(Asked::new(query, Purpose::Saved, None)),
        Parsed::OtherKind(kind) => Err(Some(kind)),
        Parsed::Empty => Err(None),
    };
    Ok(Request { asked, refresh })
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
