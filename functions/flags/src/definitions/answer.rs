//! Answers to a poll.

use std::io::Read as _;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, accepts_gzip, as_json_text};
use pennon_core::model::FEED_BYTES_MAX;
use serde_json::json;

use super::memory::Form;
use crate::store::RECORDS_KIB_MAX;

/// Largest text of a document that is made at all.
pub const TEXT_BYTES_MAX: usize = 64_000_000;

const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, must-revalidate");

/// 304: the caller has this document.
pub fn not_modified(form: &Form) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    tag(response.headers_mut(), form);
    response
}

/// 200 with the document, compressed if the caller reads that.
pub fn document(call: &Call, form: &Form, gzip: &Bytes) -> ApiResult<Response> {
    let packed = accepts_gzip(&call.headers);
    let body = if packed { Body::from(gzip.clone()) } else { Body::from(plain(form, gzip)?) };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    tag(headers, form);
    Ok(response)
}

fn tag(headers: &mut HeaderMap, form: &Form) {
    if let Ok(tag) = HeaderValue::from_str(&form.tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

fn plain(form: &Form, gzip: &Bytes) -> ApiResult<Vec<u8>> {
    let too_large = || {
        let detail = format!(
            "The definitions of this project's flags are larger than an answer without compression can be. Ask for \
             them with the header Accept-Encoding: gzip, which takes {FEED_BYTES_MAX} bytes compressed."
        );
        ApiError::invalid("invalid_input", detail, None)
    };
    if form.length > GATEWAY_BYTES_MAX {
        return Err(too_large());
    }
    let mut text = Vec::with_capacity(form.length);
    GzDecoder::new(&gzip[..])
        .take(GATEWAY_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| ApiError::internal(&e))?;
    if as_json_text(&text) > GATEWAY_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

/// 402: SDKs drop their definitions until the quota is renewed.
pub fn quota_exhausted() -> Response {
    let body = json!({
        "type": "quota_limited",
        "detail": "You have exceeded your feature flag request quota",
        "code": "payment_required",
    });
    (StatusCode::PAYMENT_REQUIRED, axum::Json(body)).into_response()
}

/// 400: never a shortened document, which SDKs would take for the whole. They keep the definitions that they have.
pub fn too_large() -> ApiError {
    let detail =
        format!("The definitions of this project's flags are larger than an answer can be: {}", limits());
    ApiError::invalid("invalid_input", detail, None)
}

/// 400: with the change, no SDK could be given the definitions.
pub fn would_be_too_large() -> ApiError {
    let detail = format!(
        "With this change the definitions of this project's flags would be larger than an answer can be: {}",
        limits()
    );
    ApiError::invalid("invalid_input", detail, Some("filters"))
}

fn limits() -> String {
    format!(
        "at most {FEED_BYTES_MAX} bytes compressed and {TEXT_BYTES_MAX} as text, from records of {RECORDS_KIB_MAX} KiB. \
         Long lists of values and payloads take most of it."
    )
}

/// A failure in the shape that SDKs know from this endpoint; other errors have the common one.
pub fn failed(error: ApiError) -> Response {
    if error.status() != StatusCode::INTERNAL_SERVER_ERROR {
        return error.into_response();
    }
    let body = json!({
        "type": "server_error", "code": "unexpected_error", "detail": "An unexpected error occurred",
    });
    (error.status(), axum::Json(body)).into_response()
}
