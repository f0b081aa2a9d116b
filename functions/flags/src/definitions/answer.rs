//! Answers to a poll.

use std::io::Read as _;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use serde_json::json;

use super::memory::Form;

/// Largest compressed document: a gateway takes 6 MB, and a binary answer only in base64.
pub const GZIP_BYTES_MAX: usize = 4_500_000;
/// Largest text of a document that is made at all.
pub const TEXT_BYTES_MAX: usize = 64_000_000;
/// Largest text that a gateway takes, quotes and backslashes counted twice, as the function's answer writes them.
const PLAIN_BYTES_MAX: usize = 6_000_000;

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
             them with the header Accept-Encoding: gzip, which takes {GZIP_BYTES_MAX} bytes compressed."
        );
        ApiError::invalid("invalid_input", detail, None)
    };
    if form.length > PLAIN_BYTES_MAX {
        return Err(too_large());
    }
    let mut text = Vec::with_capacity(form.length);
    GzDecoder::new(&gzip[..])
        .take(PLAIN_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| ApiError::internal(&e))?;
    let doubled = text.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    if text.len() + doubled > PLAIN_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

/// Whether the caller reads gzip: it is named, or everything is, and not with a weight of nothing.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let values: Vec<&str> = values.collect();
    let weight = |wanted: &str| {
        let mut codings = values.iter().flat_map(|value| value.split(','));
        codings.find_map(|coding| {
            let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = parameters.trim().strip_prefix("q=").map_or(Some(1.0), |q| q.trim().parse().ok());
            name.trim().eq_ignore_ascii_case(wanted).then(|| weight.unwrap_or(0.0_f32))
        })
    };
    weight("gzip").or_else(|| weight("*")).is_some_and(|weight| weight > 0.0)
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
    let detail = format!(
        "The definitions of this project's flags are larger than an answer can be: at most {GZIP_BYTES_MAX} bytes \
         compressed and {TEXT_BYTES_MAX} as text. Long lists of values and payloads take most of it."
    );
    ApiError::invalid("invalid_input", detail, None)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_ask_for_it() {
        let accepts = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            accepts_gzip(&headers)
        };
        for value in ["gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.8", "*", "identity, *;q=0.1"] {
            assert!(accepts(value), "{value}");
        }
        for value in ["", "identity", "br", "gzip;q=0", "gzip; q=0.0, *", "x-gzip-not"] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
