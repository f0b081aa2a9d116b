//! Serves the API reference: the OpenAPI document and an HTML viewer.
//!
//! Must stay true: this function has no access to tables, buckets or API keys and needs no authentication; the page loads
//! nothing from other hosts, which its content security policy enforces.

mod document;
mod page;
mod representation;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::Method;
use pennon_core::routes::Routes;

/// The route table.
pub fn routes() -> Routes<()> {
    Routes::open()
        .add(Method::GET, "/api/schema", document::schema)
        .add(Method::GET, "/docs", page::page)
        .add(Method::GET, "/docs/viewer.js", page::viewer)
}

/// The router, without the middleware of [`pennon_core::http::edge`].
pub fn router() -> Router {
    routes().into_open_router(())
}
