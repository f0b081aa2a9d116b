//! Answers that never change while a process runs, and their entity tags.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// One form of something: its bytes, what they are, and the tag that nothing else has.
pub struct Form {
    /// The media type.
    pub media: &'static str,
    /// The body.
    pub bytes: Bytes,
    /// The strong entity tag, in its quotes.
    pub tag: String,
}

impl Form {
    /// `bytes` as `media`. The same bytes as another type have another tag.
    pub fn new(media: &'static str, bytes: impl Into<Bytes>) -> Form {
        let bytes = bytes.into();
        let digest = Sha256::new().chain_update(media).chain_update([0]).chain_update(&bytes).finalize();
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Form { media, bytes, tag: format!("\"{tag}\"") }
    }

    /// 200 with the bytes; 304 where the caller has them already. `varies` names the header that chose this form.
    pub fn answer(&self, headers: &HeaderMap, cached: &'static str, varies: &'static str) -> Response {
        let mut response = if has(headers, &self.tag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let media = [(header::CONTENT_TYPE, HeaderValue::from_static(self.media))];
            (media, self.bytes.clone()).into_response()
        };
        let answer = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            answer.insert(header::ETAG, tag);
        }
        answer.insert(header::CACHE_CONTROL, HeaderValue::from_static(cached));
        answer.insert(header::VARY, HeaderValue::from_static(varies));
        response
    }
}

/// Whether `If-None-Match` names `tag`. A weak tag matches too: the comparison for GET is the weak one (RFC 9110, 13.1.2).
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    lists
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}
