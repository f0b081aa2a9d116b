//! Saved insights: lists, writes, and their numbers.
//!
//! Must stay true: a write is one transaction of the record, its summary row, its short id and its activity entry; a
//! lost race is read and judged again; whatever an insight cannot do yet is refused before anything is written.
//!
//! The function also answers the calculation routes: a gateway may hand it a request with a trailing slash that belongs
//! to them.

mod cancel;
mod changes;
mod dashboards;
pub mod generated;
mod handlers;
mod input;
mod limits;
mod list;
mod listing;
mod numbers;
mod overrides;
mod placement;
mod record;
mod row;
pub mod saved;
mod shown;
mod store;
mod tiles;
mod writes;

use axum::Router;
use axum::http::Method;
use pennon_calculation::{Calculation, Calculator};
use pennon_core::app::App;
use pennon_core::http::Routes;

/// What the handlers are given. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Insights {
    /// The store and the clock.
    pub app: App,
    /// What calculates.
    pub calculator: Calculator,
}

/// The route table.
pub fn routes() -> Routes<Insights> {
    const LIST: &str = "/api/projects/{project_id}/insights";
    const ONE: &str = "/api/projects/{project_id}/insights/{id}";
    Routes::new()
        .add(Method::GET, LIST, list::list)
        .add(Method::POST, LIST, writes::create)
        .add(Method::POST, &format!("{LIST}/cancel"), cancel::cancel)
        .add(Method::GET, ONE, handlers::retrieve)
        .add(Method::PATCH, ONE, writes::update)
        .add(Method::DELETE, ONE, handlers::destroy)
}

/// The insights' own routes over `state`, without the edge.
pub fn router(state: &Insights) -> Router {
    routes().into_router(state.clone(), &state.app)
}

/// Everything that the function answers.
pub fn function_router(state: &Insights) -> Router {
    let calculation = Calculation { app: state.app.clone(), calculator: state.calculator.clone() };
    router(state).merge(pennon_calculation::router(&calculation))
}
