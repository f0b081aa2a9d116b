//! Success responses: JSON bodies, gzip, and the size limit of API Gateway.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use serde::Serialize;

use crate::error::ApiError;

/// Longer bodies are compressed if the client accepts gzip.
pub const GZIP_ABOVE_BYTES: usize = 4_500_000;
/// Maximum body of a function behind API Gateway: Lambda's limit of 6 MB, minus space for headers.
pub const GATEWAY_BYTES_MAX: usize = 6_000_000;

/// The header of a gzip file without name and time, compressed fast, by an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// Compressors for reuse. Each takes about 300 KB, and creating one takes longer than compressing 25 KB of JSON.
static COMPRESSOR_POOL: Mutex<Vec<Compress>> = Mutex::new(Vec::new());
const COMPRESSOR_POOL_SIZE: usize = 4;

/// 200 with a JSON body.
pub fn json<T: Serialize>(body: T) -> Response {
    Json(body).into_response()
}

/// 201 with a JSON body.
pub fn created<T: Serialize>(body: T) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}

/// `status` with a body that is already JSON text.
pub fn json_text(status: StatusCode, text: impl Into<Vec<u8>>) -> Response {
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (status, json, text.into()).into_response()
}

/// `status` without a body.
pub fn empty(status: StatusCode) -> Response {
    status.into_response()
}

/// 200 with a JSON text, compressed if it is long and the request's `headers` accept gzip; `None` if it exceeds the gateway's
/// limit.
pub fn deliver(headers: &HeaderMap, text: Vec<u8>) -> Option<Response> {
    if text.len() <= GZIP_ABOVE_BYTES {
        return Some(json_text(StatusCode::OK, text));
    }
    let is_gzipped = accepts_gzip(headers);
    let (body, gateway_bytes) = if is_gzipped {
        let compressed = gzip(&text);
        // Lambda returns a binary body as base64.
        let gateway_bytes = base64_length(compressed.len());
        (compressed, gateway_bytes)
    } else {
        let gateway_bytes = escaped_json_length(&text);
        (text, gateway_bytes)
    };
    if gateway_bytes > GATEWAY_BYTES_MAX {
        return None;
    }
    let mut response = json_text(StatusCode::OK, body);
    let response_headers = response.headers_mut();
    response_headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_gzipped {
        response_headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

/// As [`deliver`], for a serializable body; 400 if it exceeds the gateway's limit.
pub fn sized<T: Serialize>(headers: &HeaderMap, body: &T) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(body).map_err(|error| ApiError::internal(&error))?;
    deliver(headers, text).ok_or_else(too_large)
}

fn too_large() -> ApiError {
    let detail = "The response is larger than 6 MB. Request less, or send the header Accept-Encoding: gzip.";
    ApiError::invalid("invalid_input", detail, None)
}

/// 400 for the parameter `limit` of a page that exceeds the gateway's limit. `text(n)` is the page with the first `n` of its
/// `records`; its length must grow with `n`. The message has the largest `limit` that fits, found by binary search.
pub fn too_long(headers: &HeaderMap, records: usize, text: impl Fn(usize) -> Vec<u8>) -> ApiError {
    let (mut fits, mut too_long) = (0, records + 1);
    while fits + 1 < too_long {
        let middle = usize::midpoint(fits, too_long);
        match deliver(headers, text(middle)) {
            Some(_) => fits = middle,
            None => too_long = middle,
        }
    }
    let detail = match fits {
        0 => "The response is too large, even with one record.".to_owned(),
        limit => format!("The response is too large. The largest limit that fits here is {limit}."),
    };
    ApiError::invalid("invalid_input", detail, Some("limit"))
}

/// The response to a read request within the gateway's limit: compressed if it is long and the client accepts gzip, a 400 if
/// it still does not fit. Handlers that know a better message return it themselves.
pub(super) async fn fit_response_limit(accepts_gzip: bool, response: Response) -> Response {
    let size = axum::body::HttpBody::size_hint(response.body()).exact();
    // A byte takes at most six bytes in Lambda's JSON.
    if size.is_some_and(|size| size <= GATEWAY_BYTES_MAX as u64 / 6) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The body is already in memory.
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let is_encoded = parts.headers.contains_key(header::CONTENT_ENCODING);
    let gateway_bytes = if is_encoded { base64_length(bytes.len()) } else { escaped_json_length(&bytes) };
    if gateway_bytes <= GATEWAY_BYTES_MAX && (is_encoded || !accepts_gzip || bytes.len() <= GZIP_ABOVE_BYTES)
    {
        return Response::from_parts(parts, bytes.into());
    }
    if !is_encoded && accepts_gzip {
        let compressed = gzip(&bytes);
        if base64_length(compressed.len()) <= GATEWAY_BYTES_MAX {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            parts.headers.remove(header::CONTENT_LENGTH);
            return Response::from_parts(parts, compressed.into());
        }
    }
    too_large().into_response()
}

/// The length of a binary body in Lambda's response.
fn base64_length(length: usize) -> usize {
    length.div_ceil(3) * 4
}

/// The length of a text body in Lambda's response, where it is an escaped JSON string.
pub fn escaped_json_length(text: &[u8]) -> usize {
    let length = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..32 => 6,
        _ => 1,
    };
    text.iter().map(length).sum()
}

/// Compresses `text` with gzip.
pub fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len() / 8 + GZIP_HEADER.len() + 64);
    packed.extend_from_slice(&GZIP_HEADER);
    let mut compressor = compressor_pool().pop().unwrap_or_else(|| Compress::new(Compression::fast(), false));
    loop {
        let rest = usize::try_from(compressor.total_in()).ok().and_then(|consumed| text.get(consumed..));
        match compressor.compress_vec(rest.unwrap_or_default(), &mut packed, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => break,
            Ok(_) => packed.reserve(packed.capacity()),
            // Compression only fails if the compressor is misused.
            Err(_) => return Vec::new(),
        }
    }
    compressor.reset();
    let mut pool = compressor_pool();
    if pool.len() < COMPRESSOR_POOL_SIZE {
        pool.push(compressor);
    }
    drop(pool);
    let mut checksum = Crc::new();
    checksum.update(text);
    packed.extend_from_slice(&checksum.sum().to_le_bytes());
    packed.extend_from_slice(&checksum.amount().to_le_bytes());
    packed
}

fn compressor_pool() -> MutexGuard<'static, Vec<Compress>> {
    COMPRESSOR_POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `Accept-Encoding` accepts gzip: by name or by `*`, with a weight above zero.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let (mut named, mut any) = (None, None);
    for coding in lists.flat_map(|list| list.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_accepted =
            weight.is_none_or(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0));
        match name.as_str() {
            "gzip" | "x-gzip" => named = Some(is_accepted),
            "*" => any = Some(is_accepted),
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use super::*;

    fn accept_encoding(value: Option<&str>) -> HeaderMap {
        let value = value.map(|value| (header::ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap()));
        value.into_iter().collect()
    }

    /// Text that does not compress below three quarters, in quotes.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            b'0' + u8::try_from((state >> 33) % 43).unwrap()
        };
        (0..length).map(|_| next()).collect()
    }

    async fn body(response: Response) -> Vec<u8> {
        axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
    }

    #[test]
    fn gzip_round_trips_with_reused_compressors() {
        for length in [0, 1, 100, 1 << 16, 3_000_000, 5] {
            for text in [noise(length), vec![b'a'; length]] {
                let packed = gzip(&text);
                let mut read = Vec::new();
                flate2::read::GzDecoder::new(&*packed).read_to_end(&mut read).unwrap();
                assert!(read == text, "{length} bytes");
                assert_eq!(packed, gzip(&text), "a reused compressor gives the same output");
            }
        }
    }

    #[test]
    fn gzip_is_taken_by_name_or_by_star_unless_its_weight_is_zero() {
        for yes in ["gzip", "GZIP", "deflate, gzip;q=0.5", "br, *", "*;q=0.1", "identity;q=0, x-gzip"] {
            assert!(accepts_gzip(&accept_encoding(Some(yes))), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "*, gzip;q=0.0", "*;q=0", "gzip;q=much"] {
            assert!(!accepts_gzip(&accept_encoding(Some(no))), "{no}");
        }
        assert!(!accepts_gzip(&accept_encoding(None)));
    }

    #[tokio::test]
    async fn only_long_bodies_are_compressed_and_only_if_accepted() {
        let short = deliver(&accept_encoding(Some("gzip")), vec![b'1'; GZIP_ABOVE_BYTES]).unwrap();
        assert!(!short.headers().contains_key(header::CONTENT_ENCODING));
        let long = vec![b'1'; GZIP_ABOVE_BYTES + 1];
        let packed = deliver(&accept_encoding(Some("gzip")), long.clone()).unwrap();
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::VARY], "Accept-Encoding");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "application/json");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(body(packed).await.as_slice()).read_to_end(&mut text).unwrap();
        assert_eq!(text, long);
        let plain = deliver(&accept_encoding(None), long.clone()).unwrap();
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(body(plain).await, long);
    }

    #[tokio::test]
    async fn every_read_response_fits_the_gateway_limit_or_is_a_400() {
        let table = |text: Vec<u8>| {
            ([(header::CONTENT_TYPE, HeaderValue::from_static("text/csv"))], text).into_response()
        };
        let long = vec![b'1'; GATEWAY_BYTES_MAX];
        let plain = fit_response_limit(false, table(long.clone())).await;
        assert_eq!((plain.status(), body(plain).await.len()), (StatusCode::OK, GATEWAY_BYTES_MAX));
        let packed = fit_response_limit(true, table(long.clone())).await;
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "text/csv");
        assert!(body(packed).await.len() < 100_000);
        assert_eq!(fit_response_limit(false, table([&long[..], b"1"].concat())).await.status(), 400);
        // A line break takes two bytes in Lambda's JSON, other control characters six.
        let (lines, zeros) = (vec![b'\n'; 3_000_001], vec![0; 1_000_001]);
        assert_eq!(fit_response_limit(false, table(lines.clone())).await.status(), 400);
        assert_eq!(fit_response_limit(false, table(lines[1..].to_vec())).await.status(), 200);
        assert_eq!(fit_response_limit(false, table(zeros.clone())).await.status(), 400);
        assert_eq!(fit_response_limit(false, table(zeros[1..].to_vec())).await.status(), 200);
        let mut done = json_text(StatusCode::OK, noise(4_500_001));
        done.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(
            fit_response_limit(true, done).await.status(),
            400,
            "already compressed, and too long as base64"
        );
    }

    #[test]
    fn bodies_fit_up_to_the_gateway_limit() {
        assert!(deliver(&accept_encoding(None), vec![b'1'; GATEWAY_BYTES_MAX]).is_some());
        assert!(deliver(&accept_encoding(None), vec![b'1'; GATEWAY_BYTES_MAX + 1]).is_none());
        // A quote takes two bytes in Lambda's JSON.
        assert!(deliver(&accept_encoding(None), vec![b'"'; GATEWAY_BYTES_MAX / 2 + 1_600_000]).is_none());
        // Noise of about 5.5 bits per byte: compresses to about 70%, and base64 adds a third.
        let through = noise(5_800_000);
        assert!(gzip(&through).len().div_ceil(3) * 4 < GATEWAY_BYTES_MAX);
        assert!(deliver(&accept_encoding(Some("gzip")), through).is_some());
        let beyond = noise(7_500_000);
        assert!(gzip(&beyond).len().div_ceil(3) * 4 > GATEWAY_BYTES_MAX);
        assert!(deliver(&accept_encoding(Some("gzip")), beyond).is_none());
    }
}
