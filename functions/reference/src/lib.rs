//! Serves the OpenAPI document, the API reference, which is a page that shows the document, and the console.
//!
//! Must stay true: this function has no access to tables, buckets or API keys and needs no authentication; its pages load
//! nothing from other hosts, which their content security policies enforce.

mod console;
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
        .add(Method::GET, "/", console::page)
        .add(Method::GET, "/assets/{name}", console::asset)
        .add(Method::GET, "/api/schema", document::schema)
        .add(Method::GET, "/docs", page::page)
}

/// The router, without the middleware of [`pennon_core::http::edge`].
pub fn router() -> Router {
    routes().into_open_router(())
}
