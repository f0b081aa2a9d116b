//! Funnels and trends on demand, query nodes, and the [`Calculator`] that every function with numbers uses.
//!
//! Must stay true: there is one place where a question is calculated and one where results are kept; an answer is
//! exact or it is a refusal that says why.

pub mod calculator;
mod errors;
mod format;
mod handlers;
mod nodes;
mod refresh;
mod request;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::http::Routes;

pub use calculator::{Calculated, Calculator, Limits, Stored};
pub use errors::refusal;
pub use format::require_json;
pub use refresh::Refresh;

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
    const FUNNEL: &str = "/api/projects/{project_id}/insights/funnel";
    const CORRELATION: &str = "/api/projects/{project_id}/insights/funnel/correlation";
    const TREND: &str = "/api/projects/{project_id}/insights/trend";
    Routes::new()
        .add(Method::GET, FUNNEL, handlers::funnel)
        .add(Method::POST, FUNNEL, handlers::funnel)
        .add(Method::GET, CORRELATION, handlers::correlation)
        .add(Method::POST, CORRELATION, handlers::correlation)
        .add(Method::GET, TREND, handlers::trend)
        .add(Method::POST, TREND, handlers::trend)
        .add(Method::POST, "/api/projects/{project_id}/query", nodes::query)
}

/// The routes over `state`, without the edge.
pub fn router(state: &Calculation) -> Router {
    routes().into_router(state.clone(), &state.app)
}
