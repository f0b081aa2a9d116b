//! Role access: which roles may edit a flag.
//!
//! Must stay true: a role has access to a flag at most once, enforced by its uniqueness row; a record belongs to the
//! flag of its partition.

mod handlers;
pub mod payloads;
pub mod permissions;
mod store;

pub use store::RoleAccess;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::error::ApiError;
use pennon_core::routes::Routes;
use pennon_filters::body::FieldError;

const LIST: &str = "/api/projects/{project_id}/feature_flags/{feature_flag_id}/role_access";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{feature_flag_id}/role_access/{id}";

/// The route table.
pub fn routes() -> Routes<App> {
    Routes::new()
        .add(Method::GET, LIST, handlers::list)
        .add(Method::POST, LIST, handlers::create)
        .add(Method::GET, ONE, handlers::retrieve)
        .add(Method::DELETE, ONE, handlers::destroy)
}

/// The routes over `app`, without the edge middleware.
pub fn router(app: &App) -> Router {
    routes().into_router(app.clone(), app)
}

/// The 400 response for an invalid field.
pub fn validation_error(error: FieldError) -> ApiError {
    ApiError::invalid(error.code, error.detail, error.attr.as_deref())
}
