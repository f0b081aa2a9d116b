//! The function `calculation`: funnels and trends, query nodes, persons, events, and definitions of events and properties.
//! Its [`Calculator`] is also used by the functions `insights`, `flags` and `worker` and by the command line.
//!
//! * [`calculator`]: runs queries, caches results. [`Calculator`] is the entry point.
//! * [`clickhouse`]: requests to a ClickHouse server, which calculates queries that exceed the memory of the process.
//! * `query_response`: the decision between cache, calculation and background, in [`Calculator::respond`].
//! * [`query_state`], [`jobs`]: the state of background calculations; their start, lookup, cancellation and worker.
//! * the other modules: one for each endpoint, and the parsing and formatting that they share.
//!
//! Must stay true: queries are calculated in one place and results are cached in one place; a result is exact, or the
//! response is an error with the reason.

mod actors;
pub mod calculator;
pub mod clickhouse;
mod csv;
mod errors;
mod event_definitions;
mod events;
mod flag_impact;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
pub mod jobs;
mod parameters;
mod persons;
mod property_definitions;
mod property_values;
mod query_node;
mod query_response;
pub mod query_state;
mod query_status;
mod refresh;
mod request;
mod source;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use pennon_analytics::InsightKind;
use pennon_core::app::App;
use pennon_core::http::Call;
use pennon_core::routes::Routes;

pub use crate::csv::{escape_cell, slug as file_name_slug, text_table};
pub use calculator::parts;
pub use calculator::{CachedResult, CalculationLimits, Calculator, QueryResult};
pub use errors::engine_error;
pub use flag_impact::flag_impact_query;
pub use format::{ResponseFormat, with_csv};
pub use pennon_analytics::refresh::RefreshMode;
pub use query_response::QueryResponse;
pub use refresh::RefreshParam;
pub use request::{QUERY_ID, query_id};
pub use source::QuerySource;

/// State of the handlers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Calculation {
    /// Store, clock, rate limits.
    pub app: App,
    /// Calculates queries.
    pub calculator: Calculator,
}

/// The route table.
pub fn routes() -> Routes<Calculation> {
    const PROJECT: &str = "/api/projects/{project_id}";
    let mut routes = Routes::new()
        .add(Method::POST, &format!("{PROJECT}/feature_flags/{{id}}/impact"), flag_impact::calculate)
        .add(Method::POST, &format!("{PROJECT}/query"), query_node::query)
        .add(Method::GET, &format!("{PROJECT}/query/{{id}}"), query_status::retrieve)
        .add(Method::DELETE, &format!("{PROJECT}/query/{{id}}"), query_status::cancel)
        .add(Method::GET, &format!("{PROJECT}/persons"), persons::list)
        .add(Method::GET, &format!("{PROJECT}/persons/values"), property_values::person_values)
        .add(Method::GET, &format!("{PROJECT}/persons/{{id}}"), persons::retrieve)
        .add(Method::GET, &format!("{PROJECT}/events"), events::list)
        .add(Method::GET, &format!("{PROJECT}/events/values"), property_values::event_values)
        .add(Method::GET, &format!("{PROJECT}/event_definitions"), event_definitions::list)
        .add(Method::GET, &format!("{PROJECT}/event_definitions/by_name"), event_definitions::by_name)
        .add(Method::GET, &format!("{PROJECT}/event_definitions/{{id}}"), event_definitions::retrieve)
        .add(Method::GET, &format!("{PROJECT}/property_definitions"), property_definitions::list)
        .add(Method::GET, &format!("{PROJECT}/property_definitions/{{id}}"), property_definitions::retrieve);
    let methods = [Method::GET, Method::POST];
    for (method, kind) in
        methods.iter().flat_map(|method| InsightKind::ALL.iter().map(move |kind| (method, *kind)))
    {
        let endpoint = &kind.description().endpoint;
        let result = move |State(state): State<Calculation>, call: Call| handlers::insight(state, call, kind);
        // The extension selects the format of the response.
        let endings: &[&str] = if kind.has_result_endpoint() { &["", ".csv", ".json"] } else { &[] };
        for ending in endings {
            routes =
                routes.add(method.clone(), &format!("{PROJECT}/insights/{}{ending}", endpoint.path), result);
        }
        let people = move |State(state): State<Calculation>, call: Call| actors::list(state, call, kind);
        routes = routes.add(method.clone(), &format!("{PROJECT}/persons/{}", endpoint.persons_path), people);
    }
    routes
}

/// The router over `state`, without the edge middleware.
pub fn router(state: &Calculation) -> Router {
    routes().into_router(state.clone(), &state.app)
}
