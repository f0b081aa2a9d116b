//! The page that shows the document, and the viewer that it loads: Redoc, as scripts/vendor_viewer.sh fetched it.

use std::io::Read as _;
use std::sync::OnceLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, accepts_gzip};

use crate::tagged::Form;

const PAGE: &str = include_str!("../assets/page.html");
const VIEWER: &[u8] = include_bytes!("../assets/redoc.standalone.js.gz");

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Scripts come from this host alone and none stands in the page. The viewer writes its styles into the page, and searches in
/// a worker that it makes of a text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
    font-src 'self' data:; connect-src 'self'; worker-src blob:; child-src blob:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// `GET /docs/`
pub async fn page(call: Call) -> Response {
    // Relative to the page, so that it works below a gateway's stage.
    let root = if call.url.path.ends_with('/') { "../" } else { "" };
    let text = PAGE.replace("{root}", root).replace("{version}", packed().tag.trim_matches('"'));
    let form = Form::new("text/html; charset=utf-8", text);
    let mut response = form.answer(&call.headers, "public, no-cache", "Accept-Encoding");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The viewer as it lies here. Its tag is in the address that the page loads, so it may be kept for as long as anybody likes.
fn packed() -> &'static Form {
    static PACKED: OnceLock<Form> = OnceLock::new();
    PACKED.get_or_init(|| Form::new(SCRIPT, VIEWER))
}

/// `GET /docs/viewer.js`
pub async fn viewer(call: Call) -> ApiResult<Response> {
    let is_packed = accepts_gzip(&call.headers);
    let form = if is_packed { packed() } else { &unpacked()? };
    let mut response = form.answer(&call.headers, "public, max-age=31536000", "Accept-Encoding");
    let is_sent = response.status() == StatusCode::OK;
    let headers = response.headers_mut();
    if is_packed && is_sent {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// For those few who take no gzip; not kept.
fn unpacked() -> ApiResult<Form> {
    let mut text = Vec::new();
    GzDecoder::new(VIEWER).read_to_end(&mut text).map_err(|e| ApiError::internal(&e))?;
    Ok(Form::new(SCRIPT, text))
}
