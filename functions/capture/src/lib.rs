//! Event ingestion, in the wire formats of PostHog's SDKs.
//!
//! Limits: 6 MB per request as sent, 20 MB after decompression, 20,000 events, 1,000 events that merge persons, 900 KiB per
//! event, 64 levels of nesting. Above a limit the response is 413 (nesting: 400). A request is stored completely or not at
//! all, except by `/i/v1/analytics/events`, whose response has a result for each event.

mod batch_builder;
mod body;
mod buffer;
mod decode;
mod decode_limiter;
mod error;
mod event;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod normalize;
mod timestamps;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::routes::Routes;
use pennon_eventstore::EventStore;

pub use buffer::{CaptureBuffer, store_messages};
use decode_limiter::DecodeLimiter;

/// The state of the capture routes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Capture {
    app: App,
    events: EventStore,
    /// Of a deployment with a capture buffer.
    buffer: Option<CaptureBuffer>,
    decode_limiter: DecodeLimiter,
}

/// The route table.
pub fn routes() -> Routes<Capture> {
    Routes::sdk()
        .add(Method::POST, "/batch", handlers::capture)
        .add(Method::POST, "/capture", handlers::capture)
        .add(Method::POST, "/e", handlers::capture)
        .add(Method::GET, "/e", handlers::capture_from_query)
        .add(Method::POST, "/i/v0/e", handlers::capture)
        .add(Method::POST, "/i/v1/analytics/events", handlers::analytics_events)
}

/// The router over `app` and `events`, without the middleware of [`pennon_core::http::edge`].
pub fn router(app: &App, events: &EventStore) -> Router {
    buffered_router(app, events, None)
}

/// As [`router`], for events that wait in `buffer` until [`store_messages`] stores them.
pub fn buffered_router(app: &App, events: &EventStore, buffer: Option<CaptureBuffer>) -> Router {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let decode_limiter = DecodeLimiter::new(cores);
    let state = Capture { app: app.clone(), events: events.clone(), buffer, decode_limiter };
    routes().into_router(state, app)
}
