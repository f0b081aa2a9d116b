//! Bodies of cases in the wire forms of SDKs.

use std::io::Write as _;

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::TestApp;

const FORM: &str = "application/x-www-form-urlencoded";

/// The value with each `{"$repeat": [text, n]}` written out.
pub(super) fn repeated(value: &Value) -> Value {
    if let (Some([Value::String(text), times]), Some(1)) =
        (value["$repeat"].as_array().map(Vec::as_slice), value.as_object().map(serde_json::Map::len))
    {
        return text.repeat(times.as_u64().and_then(|times| times.try_into().ok()).unwrap_or(0)).into();
    }
    match value {
        Value::Array(items) => items.iter().map(repeated).collect(),
        Value::Object(fields) => {
            json!(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), repeated(value)))
                    .collect::<serde_json::Map<_, _>>()
            )
        }
        other => other.clone(),
    }
}

/// A request with this body as an SDK encodes it.
pub(super) fn request(
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
    encoding: &str,
) -> Result<Request<Body>, String> {
    let text = body.to_string();
    let gzip = || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
        encoder.finish().map_err(|error| error.to_string())
    };
    let form = |data: &str| format!("data={}", escaped(data)).into_bytes();
    let (bytes, kind) = match encoding {
        "gzip" => (gzip()?, "application/json"),
        "altered_gzip" => (String::from_utf8_lossy(&gzip()?).into_owned().into_bytes(), "application/json"),
        "base64" => (base64(text.as_bytes()).into_bytes(), "application/json"),
        "form" => (form(&base64(text.as_bytes())), FORM),
        "form_json" => (form(&text), FORM),
        other => return Err(format!("unknown encoding {other}")),
    };
    let mut request = TestApp::request(key, method, path, Value::Null);
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    *request.body_mut() = Body::from(bytes);
    Ok(request)
}

fn escaped(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}

/// By RFC 4648, written out so that no code of the product is tested with itself.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_usize, |bits, byte| (bits << 8) | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn texts_are_repeated_if_a_body_requests_it() {
        let body = json!({"a": [{"$repeat": ["ab", 3]}], "b": {"$repeat": 1, "c": 2}});
        assert_eq!(repeated(&body), json!({"a": ["ababab"], "b": {"$repeat": 1, "c": 2}}));
    }
}
