//! The capture routes.
//!
//! Must stay true: a 200 means that every event of the request is stored and counted, but for those that the vendor's
//! rules drop (`normalize`); any other status means that none is known to be. Sending the request again is harmless for
//! events that carry a uuid, by which they are known; one without gets a new one each time, so a request of which only
//! the answer was lost counts it twice.

use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::ApiError;
use pennon_core::http::{Call, json};
use pennon_core::ids::new_uuid;
use pennon_core::request_metrics;
use pennon_eventstore::{EventStoreError, Sealed, parse_timestamp};
use serde_json::Map;

use crate::Capture;
use crate::decode::{Sent, decode, decode_data};
use crate::normalize::{Batch, Form, Outcome, Received, normalize};
use crate::refusal::Refusal;

/// Plausible client clocks, in milliseconds since the epoch: the years 2000 to 2100.
const CLOCKS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// Headers of the newer form: the client's clock when it sends, and what it is.
const REQUEST_TIMESTAMP: &str = "posthog-request-timestamp";
const SDK_INFO: &str = "posthog-sdk-info";
const SDK_INFO_BYTES_MAX: usize = 200;

/// `POST /batch`, `/capture`, `/e`, `/i/v0/e`: one event or many.
pub(crate) async fn capture(State(state): State<Capture>, call: Call) -> Response {
    match accept(&state, call, Form::Batch).await {
        Ok(_) => json(serde_json::json!({"status": 1})),
        Err(answer) => answer,
    }
}

/// `GET /e?data=`: events in the query string, as a browser library of 2023 sends them where it is told to. Nothing is
/// stored for HEAD, which has the same route.
pub(crate) async fn capture_from_query(State(state): State<Capture>, call: Call) -> Response {
    let mut response = match call.method == Method::HEAD {
        true => json(serde_json::json!({"status": 1})),
        false => capture(State(state), call).await,
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `POST /i/v1/analytics/events`: a batch whose answer names every event.
pub(crate) async fn analytics_events(State(state): State<Capture>, call: Call) -> Response {
    match accept(&state, call, Form::Analytics).await {
        Ok(outcomes) => {
            let result = |(uuid, dropped): &Outcome| {
                let result = match dropped {
                    None => serde_json::json!({"result": "ok"}),
                    Some(why) => serde_json::json!({"result": "drop", "details": why}),
                };
                (uuid.to_string(), result)
            };
            json(serde_json::json!({"results": outcomes.iter().map(result).collect::<Map<_, _>>()}))
        }
        Err(answer) => answer,
    }
}

/// Stores the events of a request. Says what became of each.
// The error is the answer, made at most once a request.
#[allow(clippy::result_large_err)]
async fn accept(state: &Capture, call: Call, form: Form) -> Result<Vec<Outcome>, Response> {
    let now = call.now;
    let outside_token = outside_token(&call);
    // Only the newer form has its token in one place, which is at hand before the body is looked at.
    let early = match (form, &outside_token) {
        (Form::Analytics, Some(token)) => Some(project_of(state, token).await?),
        _ => None,
    };
    let read = state.turns.take(move || read(&call, form)).await;
    let read = read.map_err(IntoResponse::into_response)??;
    let project = match early {
        Some(project) => project,
        None => {
            let token = read.token.or(outside_token);
            let token = token.ok_or_else(|| Refusal::no_token().into_response())?;
            project_of(state, &token).await?
        }
    };
    if let Some(batch) = read.batch {
        state.events.append_sealed(project, batch, now.timestamp_micros()).await.map_err(refused)?;
    }
    Ok(read.outcomes)
}

/// A request as far as it can be answered without the store.
struct Read {
    /// The token of the body.
    token: Option<String>,
    /// None where every event is dropped.
    batch: Option<Sealed>,
    outcomes: Vec<Outcome>,
}

async fn project_of(state: &Capture, token: &str) -> Result<u64, Response> {
    let project = state.app.tokens.project(&state.app.store, token).await;
    let project = project.map_err(|e| ApiError::from(e).into_response())?;
    let project = project.ok_or_else(|| Refusal::unknown_token().into_response())?;
    request_metrics::record(|metrics| metrics.set_project(project));
    Ok(project)
}

/// Decodes, normalises and packs: work for a thread that may be busy for a while.
#[allow(clippy::result_large_err)]
fn read(call: &Call, form: Form) -> Result<Read, Response> {
    let text = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
    let sent = Sent {
        content_type: text(header::CONTENT_TYPE.as_str()),
        content_encoding: text(header::CONTENT_ENCODING.as_str()),
        compression: call.query_value("compression"),
        body: call.bytes(),
    };
    let payload = match call.method == Method::GET {
        true => {
            let data = call.query_value("data").filter(|data| !data.is_empty());
            let missing = || Refusal::field("required", "The query string has no data.", "data");
            data.ok_or_else(missing).and_then(|data| decode_data(data, sent.compression.unwrap_or("")))
        }
        false => decode(&sent),
    };
    let payload = payload.map_err(Refusal::into_response)?;
    // The browser library tells its clock in a parameter that also keeps caches away, the newer form in a header.
    let by_query = || call.query_value("_")?.parse::<i64>().ok().filter(|at| CLOCKS.contains(at));
    let sent_at = match form {
        Form::Batch => by_query().map(|milliseconds| milliseconds * 1000),
        Form::Analytics => text(REQUEST_TIMESTAMP).and_then(parse_timestamp),
    };
    let library = text(SDK_INFO).filter(|info| info.len() <= SDK_INFO_BYTES_MAX);
    let library = library.and_then(|info| info.split_once('/'));
    let received = Received {
        now: call.now.timestamp_micros(),
        sent_at,
        library: library.map(|(name, version)| (name.to_owned(), version.to_owned())),
    };
    let Batch { token, captured, outcomes } =
        normalize(&payload.json, form, &received, &mut new_uuid).map_err(Refusal::into_response)?;
    let batch = match captured.events.is_empty() {
        true => None,
        false => Some(captured.sealed().map_err(refused)?),
    };
    Ok(Read { token: token.or(payload.form_token), batch, outcomes })
}

/// The token of the query string, else of the header.
fn outside_token(call: &Call) -> Option<String> {
    let query =
        ["token", "api_key"].iter().find_map(|name| call.query_value(name)).filter(|token| !token.is_empty());
    let header = || {
        let value = call.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        Some(value.strip_prefix("Bearer ")?.trim().to_owned()).filter(|token| !token.is_empty())
    };
    query.map(str::to_owned).or_else(header)
}

fn refused(error: EventStoreError) -> Response {
    match error {
        EventStoreError::TooLarge(detail) => Refusal::too_large(detail).into_response(),
        other => ApiError::from(other).into_response(),
    }
}
