//! Events in, in the wire format of the SDKs.
//!
//! Limits: 6 MB a request as sent, 20 MB inflated, 20,000 events, 1,000 of them that merge persons, 900 KiB an event, 64
//! levels of nesting; what is above is a 413 (nesting: a 400). A request is stored whole or not at all, but for `/i/v1/analytics/events`, whose answer says
//! of each event whether it is stored.

mod body;
pub mod decode;
mod event;
mod handlers;
pub mod normalize;
pub mod refusal;
mod times;
mod turns;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::http::Routes;
use pennon_eventstore::EventStore;

/// What the capture routes need. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Capture {
    app: App,
    events: EventStore,
    /// Turns at decoding. A small body may stand for a large value, so that only so many are there at once.
    turns: turns::Turns,
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

/// The routes over `app` and `events`, without the edge.
pub fn router(app: &App, events: &EventStore) -> Router {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let state = Capture { app: app.clone(), events: events.clone(), turns: turns::Turns::new(cores) };
    routes().into_router(state, app)
}
