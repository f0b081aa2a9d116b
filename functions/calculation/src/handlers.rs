//! Funnels and trends asked for directly.
//!
//! Must stay true: a key is judged before a question is; a stored result comes in the round trip that finds key and
//! project.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json, link};
use pennon_engine::{CalcError, Parsed};
use serde_json::{Value, json as object};

use crate::Calculation;
use crate::calculator::{Asked, Purpose, Question};
use crate::errors::refusal;
use crate::format::require_json;
use crate::refresh::Refresh;
use crate::request::{self, Endpoint, Request};

const READ_INSIGHTS: &str = "insight:read";
/// How many series fill a page where the request does not say.
const SERIES_OF_A_PAGE: usize = 25;

/// `GET` and `POST P/insights/funnel/`
pub async fn funnel(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    Ok(json(answer(&state, &call, Endpoint::Funnel).await?))
}

/// `GET` and `POST P/insights/trend/`
pub async fn trend(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let mut answer = answer(&state, &call, Endpoint::Trend).await?;
    let series = answer["result"].as_array().map_or(0, Vec::len);
    answer["next"] = object!(next(&call, series));
    Ok(json(answer))
}

/// `GET` and `POST P/insights/funnel/correlation/`
pub async fn correlation(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    state.app.project(&call, READ_INSIGHTS, |_| []).await?;
    require_json(&call)?;
    match request::read(&call, Endpoint::Funnel)?.parsed {
        Parsed::Empty => Ok(json(object!({
            "result": {"events": [], "skewed": false},
            "last_refresh": timestamp(call.now),
            "is_cached": false,
        }))),
        _ => Err(refusal(CalcError::unsupported("funnel_correlation_type", "correlation"))),
    }
}

async fn answer(state: &Calculation, call: &Call, endpoint: Endpoint) -> ApiResult<Value> {
    let read = request::read(call, endpoint);
    let asked = read.as_ref().ok().and_then(asked);
    let (access, found) = state
        .app
        .project_with(call, READ_INSIGHTS, |id| asked.iter().flat_map(|asked| asked.keys(id)).collect())
        .await?;
    require_json(call)?;
    let request = read?;
    let project = &access.project;
    let asked = match (&request.parsed, asked) {
        (Parsed::OtherKind(kind), _) => return Err(refusal(CalcError::unsupported("insight", kind))),
        (_, Some(asked)) => asked,
        _ if call.method == Method::POST => {
            return Err(ApiError::invalid("required", "This field is required.", Some("events")));
        }
        _ => return Ok(envelope(object!([]), &project.timezone, timestamp(call.now), false)),
    };
    let deadline = state.calculator.deadline();
    let read = state.calculator.read_after(project, &asked, found).await?;
    let stored = read.stored.into_iter().next().flatten().filter(|stored| !stored.is_empty());
    let question = Question {
        project,
        asked: &asked,
        stored: stored.as_ref(),
        known: &read.known,
        now: call.now,
        deadline,
    };
    // These endpoints always answer with a result: what is not fresh is calculated.
    let refresh = if request.refresh.mode.is_forced() { Refresh::ForceBlocking } else { Refresh::Blocking };
    let shown = state.calculator.answer(&question, refresh).await?;
    let shown = shown.ok_or_else(|| ApiError::internal(&"a calculation gave no result"))?;
    Ok(envelope(shown.result, &shown.timezone, timestamp(shown.last_refresh), shown.is_cached))
}

fn envelope(result: Value, timezone: &str, last_refresh: String, is_cached: bool) -> Value {
    object!({"result": result, "timezone": timezone, "last_refresh": last_refresh, "is_cached": is_cached})
}

/// The question of a request.
fn asked(request: &Request) -> Option<Asked> {
    let Parsed::Query(query) = &request.parsed else { return None };
    let asked = Asked::new(query.clone(), Purpose::Request, request.invalidation_key.as_deref());
    Some(Asked { passes_over_stored: request.refresh.mode.is_forced(), ..asked })
}

/// The link to the next page of a trend's series, when this one is full.
fn next(call: &Call, series: usize) -> Option<String> {
    let number = |name| call.query_value(name).and_then(|text: &str| text.trim().parse::<usize>().ok());
    let limit = number("breakdown_limit").filter(|limit| *limit > 0).unwrap_or(SERIES_OF_A_PAGE);
    let offset = number("offset").unwrap_or(0).saturating_add(limit);
    // An answer has all series whatever the offset, so whoever follows the links comes to an end.
    (series >= offset).then(|| link(call, &[("offset", Some(offset.to_string()))]))
}
