//! The capture routes.
//!
//! Must stay true: a 200 means that every event of the request is stored and counted; any other status means that none
//! is known to be. Sending the request again is harmless for events that carry a uuid, by which they are known; one
//! without gets a new one each time, so a request of which only the answer was lost counts it twice.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pennon_core::error::ApiError;
use pennon_core::http::{Call, json};
use pennon_core::ids::new_uuid;
use pennon_eventstore::EventStoreError;
use serde_json::Map;
use uuid::Uuid;

use crate::Capture;
use crate::decode::{Sent, decode};
use crate::normalize::{Batch, Received, normalize};
use crate::refusal::Refusal;

/// Plausible client clocks, in milliseconds since the epoch: the years 2000 to 2100.
const CLOCKS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// `POST /batch`, `/capture`, `/e`, `/i/v0/e`: one event or many.
pub(crate) async fn capture(State(state): State<Capture>, call: Call) -> Response {
    match accept(&state, call).await {
        Ok(_) => json(serde_json::json!({"status": 1})),
        Err(answer) => answer,
    }
}

/// `POST /i/v1/analytics/events`: a batch whose answer names every event.
pub(crate) async fn analytics_events(State(state): State<Capture>, call: Call) -> Response {
    match accept(&state, call).await {
        Ok(uuids) => {
            let result = |uuid: &Uuid| (uuid.to_string(), serde_json::json!({"result": "ok"}));
            json(serde_json::json!({"results": uuids.iter().map(result).collect::<Map<_, _>>()}))
        }
        Err(answer) => answer,
    }
}

/// A route that a browser library asks for and goes on without.
pub(crate) async fn not_served() -> ApiError {
    ApiError::no_route()
}

/// Stores the events of a request. Returns their uuids.
async fn accept(state: &Capture, call: Call) -> Result<Vec<Uuid>, Response> {
    let now = call.now;
    let outside_token = outside_token(&call);
    let store = state.app.store.clone();
    let turn = state.turns.acquire().await.map_err(|e| ApiError::internal(&e).into_response())?;
    let read = tokio::task::spawn_blocking(move || read(&call)).await;
    drop(turn);
    let (batch, form_token) =
        read.map_err(|e| ApiError::internal(&e).into_response())?.map_err(Refusal::into_response)?;
    let token =
        batch.token.or(form_token).or(outside_token).ok_or_else(|| Refusal::no_token().into_response())?;
    let project =
        state.tokens.project(&store, &token).await.map_err(|e| ApiError::from(e).into_response())?;
    let project = project.ok_or_else(|| Refusal::unknown_token().into_response())?;
    state.events.append(project, &batch.events, now.timestamp_micros()).await.map_err(refused)?;
    Ok(batch.events.iter().map(|event| event.uuid).collect())
}

/// Decodes and normalises: work for a thread that may be busy for a while.
fn read(call: &Call) -> Result<(Batch, Option<String>), Refusal> {
    let text = |name| call.headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let sent = Sent {
        content_type: text(header::CONTENT_TYPE),
        content_encoding: text(header::CONTENT_ENCODING),
        compression: call.query_value("compression"),
        body: call.bytes(),
    };
    let payload = decode(&sent)?;
    // The browser library tells its clock in a parameter that also keeps caches away.
    let sent_at = call.query_value("_").and_then(|text| text.parse::<i64>().ok());
    let received = Received {
        now: call.now.timestamp_micros(),
        sent_at: sent_at
            .filter(|milliseconds| CLOCKS.contains(milliseconds))
            .map(|milliseconds| milliseconds * 1000),
    };
    let batch = normalize(payload.value, received, &mut new_uuid)?;
    Ok((batch, payload.form_token))
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
