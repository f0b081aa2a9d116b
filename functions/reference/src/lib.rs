//! The API's own description: the OpenAPI document and a page that shows it.
//!
//! Must stay true: nothing here knows a table, a bucket or a key, so that everybody may ask; the page loads nothing from
//! other hosts, which its content security policy says to the browser.

mod document;
mod page;
mod tagged;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::Method;
use pennon_core::http::Routes;

pub use document::{json, yaml};

/// The route table.
pub fn routes() -> Routes<()> {
    Routes::open()
        .add(Method::GET, "/api/schema", document::schema)
        .add(Method::GET, "/docs", page::page)
        .add(Method::GET, "/docs/viewer.js", page::viewer)
}

/// The routes, without the edge.
pub fn router() -> Router {
    routes().into_open_router(())
}
