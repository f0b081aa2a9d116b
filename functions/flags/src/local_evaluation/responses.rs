//! Responses to a poll.

use std::io::Read as _;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, accepts_gzip, escaped_json_length};
use pennon_core::model::FEED_BYTES_MAX;
use serde_json::json;

use super::cache::FeedDocument;
use crate::store::RECORDS_KIB_MAX;

/// Largest document that is built, in bytes before compression.
pub const TEXT_BYTES_MAX: usize = 64_000_000;

const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, must-revalidate");

/// 304: the client has this document.
pub fn not_modified(document: &FeedDocument) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    set_etag(response.headers_mut(), document);
    response
}

/// 200 with the document, gzip-compressed if the client accepts that.
pub fn document_response(call: &Call, document: &FeedDocument, gzip: &Bytes) -> ApiResult<Response> {
    let is_gzip = accepts_gzip(&call.headers);
    let body = if is_gzip { Body::from(gzip.clone()) } else { Body::from(decompress(document, gzip)?) };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if is_gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    set_etag(headers, document);
    Ok(response)
}

fn set_etag(headers: &mut HeaderMap, document: &FeedDocument) {
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

fn decompress(document: &FeedDocument, gzip: &Bytes) -> ApiResult<Vec<u8>> {
    let too_large = || {
        let detail = format!(
            "The definitions of this project's flags are larger than a response without compression can be. Send \
             the header Accept-Encoding: gzip; compressed, they take at most {FEED_BYTES_MAX} bytes compressed."
        );
        ApiError::invalid("invalid_input", detail, None)
    };
    if document.text_bytes > GATEWAY_BYTES_MAX {
        return Err(too_large());
    }
    let mut text = Vec::with_capacity(document.text_bytes);
    GzDecoder::new(&gzip[..])
        .take(GATEWAY_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| ApiError::internal(&e))?;
    if escaped_json_length(&text) > GATEWAY_BYTES_MAX { Err(too_large()) } else { Ok(text) }
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

/// 400 instead of a truncated document, which SDKs would take for complete. They keep the definitions that they have.
pub fn too_large() -> ApiError {
    let detail =
        format!("The definitions of this project's flags are larger than a response can be: {}", limits());
    ApiError::invalid("invalid_input", detail, None)
}

/// 400: with this change the definitions could not be served to any SDK.
pub fn would_be_too_large() -> ApiError {
    let detail = format!(
        "With this change the definitions of this project's flags would be larger than a response can be: {}",
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

/// A 500 in the shape that SDKs expect from this endpoint; other errors have the common shape.
pub fn error_response(error: ApiError) -> Response {
    if error.status() != StatusCode::INTERNAL_SERVER_ERROR {
        return error.into_response();
    }
    let body = json!({
        "type": "server_error", "code": "unexpected_error", "detail": "An unexpected error occurred",
    });
    (error.status(), axum::Json(body)).into_response()
}
