//! The page of the API reference at `/docs`, as committed in `web/dist`. Its script fetches the OpenAPI document from `/api/schema`.

use std::sync::OnceLock;

use axum::response::Response;
use pennon_core::http::Call;

use crate::console::page_response;
use crate::representation::Representation;

/// The HTML text. `{root}` stands for the relative URL of the root.
const PAGE: &str = include_str!("../../../web/dist/reference.html");

/// `GET /docs`, with and without a slash
pub async fn page(call: Call) -> Response {
    static REPRESENTATIONS: [OnceLock<Representation>; 2] = [const { OnceLock::new() }; 2];
    // URLs are relative, so that the page works below a gateway's stage prefix.
    let has_slash = call.url.path.ends_with('/');
    let root = if has_slash { "../" } else { "" };
    let html = REPRESENTATIONS[usize::from(has_slash)]
        .get_or_init(|| Representation::new("text/html; charset=utf-8", PAGE.replace("{root}", root)));
    page_response(&call, html)
}
