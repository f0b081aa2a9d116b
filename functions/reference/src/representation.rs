//! Constant responses with strong entity tags and conditional GET.

use std::io::Read as _;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::accepts_gzip;
use sha2::{Digest, Sha256};

/// A representation of a resource (RFC 9110, 3.2) that does not change while the process runs.
pub struct Representation {
    /// The media type.
    pub media: &'static str,
    /// The response body.
    pub bytes: Bytes,
    /// The strong entity tag, with its quotes.
    pub tag: String,
}

impl Representation {
    /// `bytes` with the media type `media`. The tag depends on both.
    pub fn new(media: &'static str, bytes: impl Into<Bytes>) -> Representation {
        let bytes = bytes.into();
        let digest = Sha256::new().chain_update(media).chain_update([0]).chain_update(&bytes).finalize();
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Representation { media, bytes, tag: format!("\"{tag}\"") }
    }

    /// 200 with the body, or 304 if `If-None-Match` has its tag. `cache_control` and `vary` are the values of these headers.
    pub fn to_response(
        &self,
        headers: &HeaderMap,
        cache_control: &'static str,
        vary: &'static str,
    ) -> Response {
        let mut response = if matches_if_none_match(headers, &self.tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let media = [(header::CONTENT_TYPE, HeaderValue::from_static(self.media))];
            (media, self.bytes.clone()).into_response()
        };
        let response_headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            response_headers.insert(header::ETAG, tag);
        }
        response_headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
        response_headers.insert(header::VARY, HeaderValue::from_static(vary));
        response
    }
}

/// A representation that is stored compressed with gzip, as nearly all clients accept it.
pub struct GzippedRepresentation(Representation);

impl GzippedRepresentation {
    /// `gzipped` are the compressed bytes of a body with the media type `media`.
    pub fn new(media: &'static str, gzipped: &'static [u8]) -> GzippedRepresentation {
        GzippedRepresentation(Representation::new(media, gzipped))
    }

    /// As [`Representation::to_response`], with the encoding that the client accepts; each has its own tag.
    pub fn to_response(
        &self,
        headers: &HeaderMap,
        cache_control: &'static str,
        vary: &'static str,
    ) -> ApiResult<Response> {
        if !accepts_gzip(headers) {
            return Ok(self.uncompressed()?.to_response(headers, cache_control, vary));
        }
        let mut response = self.0.to_response(headers, cache_control, vary);
        if response.status() == StatusCode::OK {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(response)
    }

    /// For the few clients that do not accept gzip; not cached.
    fn uncompressed(&self) -> ApiResult<Representation> {
        let mut bytes = Vec::new();
        GzDecoder::new(&self.0.bytes[..]).read_to_end(&mut bytes).map_err(|e| ApiError::internal(&e))?;
        Ok(Representation::new(self.0.media, bytes))
    }
}

/// Whether `If-None-Match` contains `tag`. A weak tag matches too: the comparison for GET is the weak one (RFC 9110, 13.1.2).
fn matches_if_none_match(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    lists
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}
