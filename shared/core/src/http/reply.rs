//! Answers of handlers that succeeded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use serde::Serialize;

use crate::error::ApiError;

/// Answers longer than this are packed where the client takes that.
pub const PACK_ABOVE_BYTES: usize = 4_500_000;
/// Longest answer that a function behind a gateway can give, as its platform counts it: 6 MB, less room for headers.
pub const GATEWAY_BYTES_MAX: usize = 6_000_000;

/// The header of a gzip file without name and time, compressed fast, by an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// Compressors that wait for their next text. Each has about 300 KB, and making one takes longer than 25 KB of JSON do.
static KEPT_COMPRESSORS: Mutex<Vec<Compress>> = Mutex::new(Vec::new());
const COMPRESSORS_KEPT: usize = 4;

/// 200 with a JSON body.
pub fn json<T: Serialize>(body: T) -> Response {
    Json(body).into_response()
}

/// 201 with a JSON body.
pub fn created<T: Serialize>(body: T) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}

/// `status` with a body that is JSON text already.
pub fn json_text(status: StatusCode, text: impl Into<Vec<u8>>) -> Response {
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (status, json, text.into()).into_response()
}

/// `status` without a body.
pub fn empty(status: StatusCode) -> Response {
    status.into_response()
}

/// 200 with a JSON text, packed where it is long and the request's `headers` accept that; none when a gateway would not
/// let it through.
pub fn deliver(headers: &HeaderMap, text: Vec<u8>) -> Option<Response> {
    if text.len() <= PACK_ABOVE_BYTES {
        return Some(json_text(StatusCode::OK, text));
    }
    let is_packed = accepts_gzip(headers);
    let (body, counted) = if is_packed {
        let packed = gzip(&text);
        // A binary body travels as base64.
        let counted = as_base64(packed.len());
        (packed, counted)
    } else {
        let counted = as_json_text(&text);
        (text, counted)
    };
    if counted > GATEWAY_BYTES_MAX {
        return None;
    }
    let mut response = json_text(StatusCode::OK, body);
    let answer = response.headers_mut();
    answer.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

/// [`deliver`]s a JSON body; 400 where it is too large for any answer.
pub fn sized<T: Serialize>(headers: &HeaderMap, body: &T) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(body).map_err(|error| ApiError::internal(&error))?;
    deliver(headers, text).ok_or_else(too_large)
}

fn too_large() -> ApiError {
    let detail = "The answer is too large. Ask for less, or let it be packed (Accept-Encoding: gzip).";
    ApiError::invalid("invalid_input", detail, None)
}

/// 400 on `limit`: the page is too long, of which `records` are here. `text` is the page of the first so many of them; of
/// two pages with one start the longer one has the longer text. Names the largest limit whose page goes through.
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
        0 => "The answer is too large, even with one record.".to_owned(),
        most => format!("The answer is too large. The largest limit that fits here is {most}."),
    };
    ApiError::invalid("invalid_input", detail, Some("limit"))
}

/// `answer` to a request that reads, where a gateway lets it through; packed where it is long and the client `packs`; else
/// a 400. Handlers that know what to ask less of say so themselves; this is for all others.
pub(super) async fn let_through(packs: bool, answer: Response) -> Response {
    let size = axum::body::HttpBody::size_hint(answer.body()).exact();
    // No character takes more than six bytes of the gateway's text.
    if size.is_some_and(|size| size <= GATEWAY_BYTES_MAX as u64 / 6) {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    // The body is in memory already.
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let is_packed = parts.headers.contains_key(header::CONTENT_ENCODING);
    let counted = if is_packed { as_base64(bytes.len()) } else { as_json_text(&bytes) };
    if counted <= GATEWAY_BYTES_MAX && (is_packed || !packs || bytes.len() <= PACK_ABOVE_BYTES) {
        return Response::from_parts(parts, bytes.into());
    }
    if !is_packed && packs {
        let packed = gzip(&bytes);
        if as_base64(packed.len()) <= GATEWAY_BYTES_MAX {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            parts.headers.remove(header::CONTENT_LENGTH);
            return Response::from_parts(parts, packed.into());
        }
    }
    too_large().into_response()
}

/// The length of a binary body on its way to the gateway.
fn as_base64(length: usize) -> usize {
    length.div_ceil(3) * 4
}

/// The length of a text body on its way to the gateway, where it is a JSON text itself.
pub fn as_json_text(text: &[u8]) -> usize {
    let length = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..32 => 6,
        _ => 1,
    };
    text.iter().map(length).sum()
}

/// `text` as a gzip file.
pub fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(text.len() / 8 + GZIP_HEADER.len() + 64);
    packed.extend_from_slice(&GZIP_HEADER);
    let mut compressor =
        kept_compressors().pop().unwrap_or_else(|| Compress::new(Compression::fast(), false));
    loop {
        let rest = usize::try_from(compressor.total_in()).ok().and_then(|taken| text.get(taken..));
        match compressor.compress_vec(rest.unwrap_or_default(), &mut packed, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => break,
            Ok(_) => packed.reserve(packed.capacity()),
            // Only a compressor that is misused fails.
            Err(_) => return Vec::new(),
        }
    }
    compressor.reset();
    let mut kept = kept_compressors();
    if kept.len() < COMPRESSORS_KEPT {
        kept.push(compressor);
    }
    drop(kept);
    let mut checksum = Crc::new();
    checksum.update(text);
    packed.extend_from_slice(&checksum.sum().to_le_bytes());
    packed.extend_from_slice(&checksum.amount().to_le_bytes());
    packed
}

fn kept_compressors() -> MutexGuard<'static, Vec<Compress>> {
    KEPT_COMPRESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a request with these headers takes a gzip body: by name or by `*`, with a weight above zero.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let (mut named, mut any) = (None, None);
    for coding in lists.flat_map(|list| list.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let wanted =
            weight.is_none_or(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0));
        match name.as_str() {
            "gzip" | "x-gzip" => named = Some(wanted),
            "*" => any = Some(wanted),
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

    fn asking(value: Option<&str>) -> HeaderMap {
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
    fn a_gzip_file_is_read_back_whatever_was_packed_before() {
        for length in [0, 1, 100, 1 << 16, 3_000_000, 5] {
            for text in [noise(length), vec![b'a'; length]] {
                let packed = gzip(&text);
                let mut read = Vec::new();
                flate2::read::GzDecoder::new(&*packed).read_to_end(&mut read).unwrap();
                assert!(read == text, "{length} bytes");
                assert_eq!(packed, gzip(&text), "a compressor that was used before packs the same");
            }
        }
    }

    #[test]
    fn gzip_is_taken_by_name_or_by_star_unless_its_weight_is_zero() {
        for yes in ["gzip", "GZIP", "deflate, gzip;q=0.5", "br, *", "*;q=0.1", "identity;q=0, x-gzip"] {
            assert!(accepts_gzip(&asking(Some(yes))), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "*, gzip;q=0.0", "*;q=0", "gzip;q=much"] {
            assert!(!accepts_gzip(&asking(Some(no))), "{no}");
        }
        assert!(!accepts_gzip(&asking(None)));
    }

    #[tokio::test]
    async fn only_long_answers_are_packed_and_only_for_those_who_take_it() {
        let short = deliver(&asking(Some("gzip")), vec![b'1'; PACK_ABOVE_BYTES]).unwrap();
        assert!(!short.headers().contains_key(header::CONTENT_ENCODING));
        let long = vec![b'1'; PACK_ABOVE_BYTES + 1];
        let packed = deliver(&asking(Some("gzip")), long.clone()).unwrap();
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::VARY], "Accept-Encoding");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "application/json");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(body(packed).await.as_slice()).read_to_end(&mut text).unwrap();
        assert_eq!(text, long);
        let plain = deliver(&asking(None), long.clone()).unwrap();
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(body(plain).await, long);
    }

    #[tokio::test]
    async fn whatever_is_read_goes_through_or_is_refused() {
        let table = |text: Vec<u8>| {
            ([(header::CONTENT_TYPE, HeaderValue::from_static("text/csv"))], text).into_response()
        };
        let long = vec![b'1'; GATEWAY_BYTES_MAX];
        let plain = let_through(false, table(long.clone())).await;
        assert_eq!((plain.status(), body(plain).await.len()), (StatusCode::OK, GATEWAY_BYTES_MAX));
        let packed = let_through(true, table(long.clone())).await;
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "text/csv");
        assert!(body(packed).await.len() < 100_000);
        assert_eq!(let_through(false, table([&long[..], b"1"].concat())).await.status(), 400);
        // A line break takes two bytes of the gateway's own text, other control characters six.
        let (lines, zeros) = (vec![b'\n'; 3_000_001], vec![0; 1_000_001]);
        assert_eq!(let_through(false, table(lines.clone())).await.status(), 400);
        assert_eq!(let_through(false, table(lines[1..].to_vec())).await.status(), 200);
        assert_eq!(let_through(false, table(zeros.clone())).await.status(), 400);
        assert_eq!(let_through(false, table(zeros[1..].to_vec())).await.status(), 200);
        let mut done = json_text(StatusCode::OK, noise(4_500_001));
        done.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(let_through(true, done).await.status(), 400, "packed already, and too long as base64");
    }

    #[test]
    fn an_answer_goes_through_up_to_what_the_gateway_counts_and_not_beyond() {
        assert!(deliver(&asking(None), vec![b'1'; GATEWAY_BYTES_MAX]).is_some());
        assert!(deliver(&asking(None), vec![b'1'; GATEWAY_BYTES_MAX + 1]).is_none());
        // A quote takes two bytes of the gateway's own text.
        assert!(deliver(&asking(None), vec![b'"'; GATEWAY_BYTES_MAX / 2 + 1_600_000]).is_none());
        // Noise of some 5.5 bits a byte: packed to about 70%, and a third more as base64.
        let through = noise(5_800_000);
        assert!(gzip(&through).len().div_ceil(3) * 4 < GATEWAY_BYTES_MAX);
        assert!(deliver(&asking(Some("gzip")), through).is_some());
        let beyond = noise(7_500_000);
        assert!(gzip(&beyond).len().div_ceil(3) * 4 > GATEWAY_BYTES_MAX);
        assert!(deliver(&asking(Some("gzip")), beyond).is_none());
    }
}
