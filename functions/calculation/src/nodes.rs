//! `POST P/query/`: query nodes. Results are shared with saved insights of the same query.

use axum::extract::State;
use axum::response::Response;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json, sized};
use pennon_core::store::keys::ProjectId;
use pennon_engine::{CalcError, Parsed, Query};
use serde_json::{Value, json as object};

use crate::calculator::{Asked, AskedBy, Purpose, Question, Shown};
use crate::errors::refusal;
use crate::refresh::Said;
use crate::request::query_id;
use crate::source::Source;
use crate::{Calculation, Refresh};

const READ_QUERIES: &str = "query:read";

/// A request, read.
struct Request {
    /// Its question; else a kind that is not calculated, or none when it asks for nothing.
    asked: Result<Asked, Option<String>>,
    refresh: Refresh,
    /// The caller's own name for the calculation.
    query_id: Option<String>,
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
    let question = Question {
        project,
        asked: &asked,
        stored: read.stored.first().and_then(Option::as_ref),
        tracked: read.tracked.first().and_then(Option::as_ref),
        known: &read.known,
        now: call.now,
        deadline,
        by: AskedBy { query_id: request.query_id.as_deref(), ..AskedBy::default() },
    };
    let shown = state.calculator.answer(&question, request.refresh).await?;
    sized(&call.headers, &envelope(&shown, &asked.key, project.id))
}

fn read(call: &Call) -> ApiResult<Request> {
    let fields = call.json_fields()?;
    let (node, parsed) = parse(&fields)?;
    let said = Said::read(call.query_value("refresh"), fields.get("refresh"));
    // Whoever asks a question here wants its answer, unless the request says otherwise.
    let refresh = if said.explicit { said.mode } else { Refresh::Blocking };
    let query_id = query_id(call, Some(&fields))?;
    let asked = match parsed {
        Parsed::Query(query) => Ok(Asked::new(query, Purpose::Saved, None).sent_as(Source::Node(node))),
        Parsed::OtherKind(kind) => Err(Some(kind)),
        Parsed::Empty => Err(None),
    };
    Ok(Request { asked, refresh, query_id })
}

fn parse(fields: &Fields) -> ApiResult<(Value, Parsed)> {
    let node = match fields.get("query") {
        None => return Err(ApiError::invalid("required", "This field is required.", Some("query"))),
        Some(Value::Null) => {
            return Err(ApiError::invalid("null", "This field may not be null.", Some("query")));
        }
        Some(node) => node,
    };
    Ok((node.clone(), Query::from_node(node).map_err(refusal)?))
}

fn empty(timezone: &str, now: String) -> Value {
    object!({
        "results": [], "timezone": timezone, "is_cached": false, "last_refresh": now, "cache_key": null,
        "hasMore": null, "hogql": null, "query_status": null,
    })
}

fn envelope(shown: &Shown, key: &str, project: ProjectId) -> Value {
    let status = shown.status.as_ref().map(|status| status.shown(project, None, None));
    let shown = shown.calculated.as_ref();
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
        "query_status": status,
    })
}
