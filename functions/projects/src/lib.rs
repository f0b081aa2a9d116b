//! Read access to projects, organizations, members, roles and the current user; the API keys of the current user.

mod handlers;
mod keys;
mod members;
mod responses;

use axum::Router;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::routes::Routes;

/// The route table.
pub fn routes() -> Routes<App> {
    Routes::new()
        .add(Method::GET, "/api/projects", handlers::list_projects)
        .add(Method::GET, "/api/projects/{project_id}", handlers::retrieve_project)
        .add(Method::GET, "/api/users/@me", handlers::retrieve_user)
        .add(Method::GET, "/api/personal_api_keys", keys::list_keys)
        .add(Method::POST, "/api/personal_api_keys", keys::create_key)
        .add(Method::GET, "/api/personal_api_keys/@current", keys::retrieve_current_key)
        .add(Method::GET, "/api/personal_api_keys/{id}", keys::retrieve_key)
        .add(Method::PATCH, "/api/personal_api_keys/{id}", keys::update_key)
        .add(Method::DELETE, "/api/personal_api_keys/{id}", keys::delete_key)
        .add(Method::GET, "/api/organizations", handlers::list_organizations)
        .add(Method::GET, "/api/organizations/{organization_id}", handlers::retrieve_organization)
        .add(
            Method::GET,
            "/api/organizations/{organization_id}/projects",
            handlers::list_organization_projects,
        )
        .add(
            Method::GET,
            "/api/organizations/{organization_id}/projects/{id}",
            handlers::retrieve_organization_project,
        )
        .add(Method::GET, "/api/organizations/{organization_id}/members", members::list_members)
        .add(Method::GET, "/api/organizations/{organization_id}/roles", members::list_roles)
}

/// The router over `app`, without the middleware of [`pennon_core::http::edge`].
pub fn router(app: &App) -> Router {
    routes().into_router(app.clone(), app)
}
