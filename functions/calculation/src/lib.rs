//! Funnels and trends on demand, query nodes, lists of events and of the names in them, and the [`Calculator`] that every function with numbers uses.
//!
//! Must stay true: there is one place where a question is calculated and one where results are kept; an answer is
//! exact or it is a refusal that says why.

pub mod calculator;
mod csv;
mod errors;
mod event_definitions;
mod events;
mod format;
mod handlers;
pub mod jobs;
mod nodes;
mod parameters;
mod people;
mod persons;
mod property_definitions;
mod property_values;
mod refresh;
mod request;
mod source;
mod status;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::http::Routes;

pub use crate::csv::escape_formula;
pub use calculator::{Calculated, Calculator, Limits, Stored};
pub use errors::refusal;
pub use format::{Format, formed};
pub use pennon_engine::query::Refresh;
pub use refresh::Said;
pub use request::{QUERY_ID, query_id};
pub use source::Source;

/// What the handlers are given. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Calculation {
    /// The store and the clock.
    pub app: App,
    /// What calculates.
    pub calculator: Calculator,
}

/// The route table.
pub fn routes() -> Routes<Calculation> {
    const PROJECT: &str = "/api/projects/{project_id}";
    let mut routes = Routes::new()
        .add(Method::POST, &format!("{PROJECT}/query"), nodes::query)
        .add(Method::GET, &format!("{PROJECT}/query/{{id}}"), status::retrieve)
        .add(Method::DELETE, &format!("{PROJECT}/query/{{id}}"), status::cancel)
        .add(Method::GET, &format!("{PROJECT}/persons"), persons::list)
        .add(Method::GET, &format!("{PROJECT}/persons/values"), property_values::of_persons)
        .add(Method::GET, &format!("{PROJECT}/persons/{{id}}"), persons::retrieve)
        .add(Method::GET, &format!("{PROJECT}/events"), events::list)
        .add(Method::GET, &format!("{PROJECT}/events/values"), property_values::of_events)
        .add(Method::GET, &format!("{PROJECT}/event_definitions"), event_definitions::list)
        .add(Method::GET, &format!("{PROJECT}/event_definitions/by_name"), event_definitions::by_name)
        .add(Method::GET, &format!("{PROJECT}/event_definitions/{{id}}"), event_definitions::retrieve)
        .add(Method::GET, &format!("{PROJECT}/property_definitions"), property_definitions::list)
        .add(Method::GET, &format!("{PROJECT}/property_definitions/{{id}}"), property_definitions::retrieve);
    for method in [Method::GET, Method::POST] {
        // An ending names the form of the answer.
        for ending in ["", ".csv", ".json"] {
            let path = |name: &str| format!("{PROJECT}/insights/{name}{ending}");
            routes = routes
                .add(method.clone(), &path("funnel"), handlers::funnel)
                .add(method.clone(), &path("funnel/correlation"), handlers::correlation)
                .add(method.clone(), &path("trend"), handlers::trend);
        }
        let path = |name: &str| format!("{PROJECT}/persons/{name}");
        routes = routes
            .add(method.clone(), &path("funnel"), people::funnel)
            .add(method.clone(), &path("funnel/correlation"), people::correlation)
            .add(method.clone(), &path("trends"), people::trends);
    }
    routes
}

/// The routes over `state`, without the edge.
pub fn router(state: &Calculation) -> Router {
    routes().into_router(state.clone(), &state.app)
}
