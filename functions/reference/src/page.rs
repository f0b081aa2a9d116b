//! The HTML page of the API reference and its viewer script: Redoc, vendored by scripts/vendor_viewer.sh.

use std::io::Read as _;
use std::sync::OnceLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, accepts_gzip};

use crate::representation::Representation;

const PAGE: &str = include_str!("../assets/page.html");
const VIEWER: &[u8] = include_bytes!("../assets/redoc.standalone.js.gz");

const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";

/// Scripts are loaded from this host only, and none is inline. The viewer adds inline styles, and starts its search worker from
/// a blob URL.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self' data:; connect-src 'self'; worker-src blob:; child-src blob:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// `GET /docs/`
pub async fn page(call: Call) -> Response {
    // URLs are relative, so that the page works below a gateway's stage prefix.
    let root = if call.url.path.ends_with('/') { "../" } else { "" };
    let text = PAGE.replace("{root}", root).replace("{version}", gzipped_viewer().tag.trim_matches('"'));
    let html = Representation::new("text/html; charset=utf-8", text);
    let mut response = html.to_response(&call.headers, "public, no-cache", "Accept-Encoding");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The viewer as vendored, compressed with gzip. Its tag is part of the URL in the page, so it may be cached forever.
fn gzipped_viewer() -> &'static Representation {
    static GZIPPED: OnceLock<Representation> = OnceLock::new();
    GZIPPED.get_or_init(|| Representation::new(SCRIPT_TYPE, VIEWER))
}

/// `GET /docs/viewer.js`
pub async fn viewer(call: Call) -> ApiResult<Response> {
    let is_gzipped = accepts_gzip(&call.headers);
    let script = if is_gzipped { gzipped_viewer() } else { &uncompressed_viewer()? };
    let mut response = script.to_response(&call.headers, "public, max-age=31536000", "Accept-Encoding");
    let has_body = response.status() == StatusCode::OK;
    let headers = response.headers_mut();
    if is_gzipped && has_body {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// For the few clients that do not accept gzip; not cached.
fn uncompressed_viewer() -> ApiResult<Representation> {
    let mut text = Vec::new();
    GzDecoder::new(VIEWER).read_to_end(&mut text).map_err(|e| ApiError::internal(&e))?;
    Ok(Representation::new(SCRIPT_TYPE, text))
}
