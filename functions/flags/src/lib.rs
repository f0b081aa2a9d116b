//! Feature flags: list, create, retrieve, update; deletion is soft and a kind of update.
//!
//! The function also answers the role access routes: a gateway may hand it a request with a trailing slash that belongs
//! to them.

mod handlers;
mod mentioned;
mod store;
mod user;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::http::Routes;

const LIST: &str = "/api/projects/{project_id}/feature_flags";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{id}";

/// The scope that reading asks for.
pub const READ: &str = "feature_flag:read";
/// The scope that writing asks for.
pub const WRITE: &str = "feature_flag:write";

/// The route table of the flags themselves.
pub fn routes() -> Routes<App> {
    Routes::new()
        .add(Method::GET, LIST, handlers::list)
        .add(Method::POST, LIST, handlers::create)
        .add(Method::GET, ONE, handlers::retrieve)
        .add(Method::PATCH, ONE, handlers::update)
        .add(Method::PUT, ONE, handlers::replace)
        .add(Method::DELETE, ONE, handlers::destroy)
}

/// The route by which SDKs ask for one person's values, for callers without a key.
pub fn open_routes() -> Routes<App> {
    Routes::open().add(Method::POST, "/flags", handlers::evaluate)
}

/// The flags' own routes over `app`, without the edge.
pub fn router(app: &App) -> Router {
    routes().into_router(app.clone(), app).merge(open_routes().into_router(app.clone(), app))
}

/// Everything that the function answers.
pub fn function_router(app: &App) -> Router {
    router(app).merge(pennon_role_access::router(app))
}
