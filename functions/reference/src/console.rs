//! The console: its page at `/`, and the scripts and styles of all pages below `/assets`, as committed in `web/dist`.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::http::{HeaderValue, header};
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

use crate::representation::{GzippedRepresentation, Representation};

// `PAGE`, the HTML text; `ASSETS`, the name of each asset and its bytes, compressed with gzip.
include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The names of assets contain the digest of their bytes, so that they may be cached forever.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Scripts, styles and requests are those of this host only, and none is inline: nothing of an event or a flag can become
/// markup that runs. Forms are handled by the script.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`
pub async fn page(call: Call) -> Response {
    static REPRESENTATION: OnceLock<Representation> = OnceLock::new();
    let html = REPRESENTATION.get_or_init(|| Representation::new("text/html; charset=utf-8", PAGE));
    page_response(&call, html)
}

/// A page with the headers of all pages that load `/assets`.
pub fn page_response(call: &Call, html: &Representation) -> Response {
    let mut response = html.to_response(&call.headers, "public, no-cache", "Accept-Encoding");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    response
}

/// `GET /assets/{name}`
pub async fn asset(call: Call) -> ApiResult<Response> {
    let asset = assets().get(call.param("name")).ok_or_else(ApiError::not_found)?;
    let mut response = asset.to_response(&call.headers, IMMUTABLE, "Accept-Encoding")?;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The assets by name.
fn assets() -> &'static HashMap<&'static str, GzippedRepresentation> {
    static ASSETS_BY_NAME: OnceLock<HashMap<&'static str, GzippedRepresentation>> = OnceLock::new();
    ASSETS_BY_NAME.get_or_init(|| {
        let asset = |(name, bytes): &(&'static str, &'static [u8])| {
            (*name, GzippedRepresentation::new(media_type(name), bytes))
        };
        ASSETS.iter().map(asset).collect()
    })
}

/// By the extension; the unit tests compare it with the files of `web/dist`.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
