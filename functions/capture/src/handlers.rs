//! The capture routes.
//!
//! Must stay true: a 200 means that every event of the request is stored, or in the capture buffer, except those that PostHog's rules drop
//! (`normalize`); with any other status the caller must assume that none is. A retry is harmless for events with a uuid,
//! which are deduplicated; an event without one gets a new uuid on each request, so a request whose response was lost
//! stores it twice.

use axum::extract::State;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::ApiError;
use pennon_core::http::{Call, SdkBody, json};
use pennon_core::ids::new_uuid;
use pennon_core::request_metrics;
use pennon_eventstore::{EncodedBatch, EventStoreError, parse_timestamp};
use serde_json::Map;

use crate::Capture;
use crate::batch_builder::{Batch, EventOutcome, RequestMetadata};
use crate::decode::{decode, decode_data};
use crate::error::CaptureError;
use crate::event::CaptureFormat;
use crate::normalize::normalize;

/// Plausible client clocks, in milliseconds since the epoch: the years 2000 to 2100.
const CLIENT_CLOCK_MS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// Headers of `/i/v1/analytics/events`: the client's clock when it sends, and the SDK's name and version.
const REQUEST_TIMESTAMP: &str = "posthog-request-timestamp";
const SDK_INFO: &str = "posthog-sdk-info";
const SDK_INFO_BYTES_MAX: usize = 200;

/// `POST /batch`, `/capture`, `/e`, `/i/v0/e`: one or more events.
pub(crate) async fn capture(State(state): State<Capture>, call: Call) -> Response {
    match store_events(&state, call, CaptureFormat::Batch).await {
        Ok(_) => json(serde_json::json!({"status": 1})),
        Err(response) => response,
    }
}

/// `GET /e?data=`: events in the query string, an option of the browser SDK in 2023. HEAD, which has the same route, stores
/// nothing.
pub(crate) async fn capture_from_query(State(state): State<Capture>, call: Call) -> Response {
    let mut response = match call.method == Method::HEAD {
        true => json(serde_json::json!({"status": 1})),
        false => capture(State(state), call).await,
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `POST /i/v1/analytics/events`: a batch whose response has a result for every event.
pub(crate) async fn analytics_events(State(state): State<Capture>, call: Call) -> Response {
    match store_events(&state, call, CaptureFormat::Analytics).await {
        Ok(outcomes) => {
            let result = |(uuid, drop_reason): &EventOutcome| {
                let result = match drop_reason {
                    None => serde_json::json!({"result": "ok"}),
                    Some(reason) => serde_json::json!({"result": "drop", "details": reason}),
                };
                (uuid.to_string(), result)
            };
            json(serde_json::json!({"results": outcomes.iter().map(result).collect::<Map<_, _>>()}))
        }
        Err(response) => response,
    }
}

/// Stores the events of a request and returns the outcome of each.
// The error is the response, built at most once per request.
#[allow(clippy::result_large_err)]
async fn store_events(
    state: &Capture,
    call: Call,
    format: CaptureFormat,
) -> Result<Vec<EventOutcome>, Response> {
    let now = call.now;
    let url_or_header_token = url_or_header_token(&call);
    // Only the analytics format never has its token in the body, so its token is checked before the body is decoded.
    let project_of_header = match (format, &url_or_header_token) {
        (CaptureFormat::Analytics, Some(token)) => Some(resolve_project(state, token).await?),
        _ => None,
    };
    let decoded = state.decode_limiter.run_blocking(move || decode_request(&call, format)).await;
    let decoded = decoded.map_err(IntoResponse::into_response)??;
    let project = match project_of_header {
        Some(project) => project,
        None => {
            let token = decoded.token.or(url_or_header_token);
            let token = token.ok_or_else(|| CaptureError::missing_token().into_response())?;
            resolve_project(state, &token).await?
        }
    };
    if let Some(batch) = decoded.batch {
        append(state, project, batch, now.timestamp_micros()).await.map_err(error_response)?;
    }
    Ok(decoded.outcomes)
}

/// Sends the batch to the capture buffer, if there is one that takes it, or stores it. Either is durable.
async fn append(state: &Capture, project: u64, batch: EncodedBatch, now: i64) -> Result<(), EventStoreError> {
    if let Some(buffer) = &state.buffer
        && buffer.send(&state.events, project, &batch, now).await?
    {
        return Ok(());
    }
    state.events.append_encoded(project, batch, now).await
}

/// A request that was decoded and validated, without access to the store.
struct DecodedRequest {
    /// The token of the body.
    token: Option<String>,
    /// `None` if every event is dropped.
    batch: Option<EncodedBatch>,
    outcomes: Vec<EventOutcome>,
}

/// The project of `token`; 401 if there is none.
async fn resolve_project(state: &Capture, token: &str) -> Result<u64, Response> {
    let project = state.app.tokens.project(&state.app.store, token).await;
    let project = project.map_err(|e| ApiError::from(e).into_response())?;
    let project = project.ok_or_else(|| CaptureError::unknown_token().into_response())?;
    request_metrics::record(|metrics| metrics.set_project(project));
    Ok(project)
}

/// Decodes, normalizes and encodes the events. CPU work for a blocking thread.
#[allow(clippy::result_large_err)]
fn decode_request(call: &Call, format: CaptureFormat) -> Result<DecodedRequest, Response> {
    let header_text = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
    let body = SdkBody {
        content_type: header_text(header::CONTENT_TYPE.as_str()),
        content_encoding: header_text(header::CONTENT_ENCODING.as_str()),
        compression: call.query_value("compression"),
        body: call.bytes(),
    };
    let payload = match call.method == Method::GET {
        true => {
            let data = call.query_value("data").filter(|data| !data.is_empty());
            let missing = || CaptureError::invalid_field("required", "The query string has no data.", "data");
            data.ok_or_else(missing).and_then(|data| decode_data(data, body.compression.unwrap_or("")))
        }
        false => decode(&body),
    };
    let payload = payload.map_err(CaptureError::into_response)?;
    // The browser SDK sends its clock in the cache-busting parameter `_`; the analytics format has a header for it.
    let query_clock = || call.query_value("_")?.parse::<i64>().ok().filter(|at| CLIENT_CLOCK_MS.contains(at));
    let sent_at = match format {
        CaptureFormat::Batch => query_clock().map(|milliseconds| milliseconds * 1000),
        CaptureFormat::Analytics => header_text(REQUEST_TIMESTAMP).and_then(parse_timestamp),
    };
    let library = header_text(SDK_INFO).filter(|info| info.len() <= SDK_INFO_BYTES_MAX);
    let library = library.and_then(|info| info.split_once('/'));
    let metadata = RequestMetadata {
        now: call.now.timestamp_micros(),
        sent_at,
        library: library.map(|(name, version)| (name.to_owned(), version.to_owned())),
    };
    let Batch { token, captured, outcomes } =
        normalize(&payload.json, format, &metadata, &mut new_uuid).map_err(CaptureError::into_response)?;
    let batch = match captured.events.is_empty() {
        true => None,
        false => Some(captured.encode().map_err(error_response)?),
    };
    Ok(DecodedRequest { token: token.or(payload.form_token), batch, outcomes })
}

/// The token of the query string, else of the header `Authorization`.
fn url_or_header_token(call: &Call) -> Option<String> {
    let query =
        ["token", "api_key"].iter().find_map(|name| call.query_value(name)).filter(|token| !token.is_empty());
    let header = || {
        let value = call.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        Some(value.strip_prefix("Bearer ")?.trim().to_owned()).filter(|token| !token.is_empty())
    };
    query.map(str::to_owned).or_else(header)
}

fn error_response(error: EventStoreError) -> Response {
    match error {
        EventStoreError::TooLarge(detail) => CaptureError::too_large(detail).into_response(),
        other => ApiError::from(other).into_response(),
    }
}
