//! Parses request bodies: JSON, and HTML forms if the endpoint accepts them.
//!
//! An empty body is an empty object, whatever its content type. Form values are strings; the field parsers coerce them.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use futures::FutureExt as _;
use serde_json::{Map, Value};

use crate::error::{ApiError, ApiResult};

/// Maximum body size: Lambda accepts 6 MB, of binary bodies three quarters of that because of base64.
pub const BODY_BYTES_MAX: usize = 6_000_000;
/// Maximum nesting of arrays and objects in a JSON body.
pub const NESTING_MAX: usize = 64;

/// The fields of a request body.
pub type Fields = Map<String, Value>;

/// The media types that an endpoint accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// JSON only.
    Json,
    /// JSON and the two kinds of HTML form.
    Forms,
}

/// Parses the fields of `body` by its content type.
pub fn fields(headers: &HeaderMap, body: &Bytes, accepts: Accepts) -> ApiResult<Fields> {
    if body.is_empty() {
        return Ok(Fields::new());
    }
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = declared.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match (media_type.as_str(), accepts) {
        ("application/json", _) => json_object(body),
        ("application/x-www-form-urlencoded", Accepts::Forms) => Ok(urlencoded(body)),
        ("multipart/form-data", Accepts::Forms) => multipart(declared, body),
        _ => Err(ApiError::media_type(declared)),
    }
}

/// Parses a JSON object.
pub fn json_object(body: &[u8]) -> ApiResult<Fields> {
    let text = std::str::from_utf8(body)
        .map_err(|e| ApiError::parse(format!("JSON parse error - the body is not UTF-8: {e}")))?;
    let value = serde_json::from_str::<Value>(text)
        .map_err(|error| ApiError::parse(format!("JSON parse error - {error}")))?;
    if nesting(&value) > NESTING_MAX {
        let detail = format!("JSON parse error - nested deeper than {NESTING_MAX} levels");
        return Err(ApiError::parse(detail));
    }
    match value {
        Value::Object(fields) => Ok(fields),
        other => {
            let detail = format!("Invalid data. Expected a dictionary, but got {}.", python_type(&other));
            Err(ApiError::invalid("invalid_input", detail, None))
        }
    }
}

/// The Python name of a JSON value's type, for error messages.
fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// The nesting depth of arrays and objects. The parser stops at 128, so recursion is bounded.
pub fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn urlencoded(body: &[u8]) -> Fields {
    super::query_string::parse_query(&String::from_utf8_lossy(body))
        .into_iter()
        .map(|(name, value)| (name, Value::String(value)))
        .collect()
}

/// The text fields of a multipart body, without files.
fn multipart(declared: &str, body: &Bytes) -> ApiResult<Fields> {
    let parts = parse_parts(declared, body)?.into_iter().filter(|part| !part.is_file);
    let value = |content: &[u8]| Value::String(String::from_utf8_lossy(content).into_owned());
    Ok(parts.map(|part| (part.name, value(&part.content))).collect())
}

/// The content of the file called `name` in a multipart body; `None` for other content types or without the file.
pub fn file(headers: &HeaderMap, body: &Bytes, name: &str) -> ApiResult<Option<Bytes>> {
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = declared.split(';').next().unwrap_or("").trim();
    if body.is_empty() || !media_type.eq_ignore_ascii_case("multipart/form-data") {
        return Ok(None);
    }
    let part = parse_parts(declared, body)?.into_iter().find(|part| part.is_file && part.name == name);
    Ok(part.map(|part| part.content))
}

/// A part of a multipart body.
struct Part {
    name: String,
    is_file: bool,
    content: Bytes,
}

/// The named parts of a multipart body.
fn parse_parts(declared: &str, body: &Bytes) -> ApiResult<Vec<Part>> {
    // The parser is asynchronous, and never waits because the body is in memory.
    let parts = read_parts(declared, body.clone()).now_or_never();
    parts
        .unwrap_or(Err(multer::Error::IncompleteStream))
        .map_err(|error| ApiError::parse(format!("Multipart form parse error - {error}")))
}

async fn read_parts(declared: &str, body: Bytes) -> multer::Result<Vec<Part>> {
    let boundary = multer::parse_boundary(declared)?;
    let body = futures::stream::iter([Ok::<Bytes, Infallible>(body)]);
    let mut multipart = multer::Multipart::new(body, boundary);
    let mut parts = Vec::new();
    while let Some(field) = multipart.next_field().await? {
        let (name, is_file) = (field.name().map(str::to_owned), field.file_name().is_some());
        let content = field.bytes().await?;
        parts.extend(name.map(|name| Part { name, is_file, content }));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(content_type: &str, body: &str) -> Result<Value, Value> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        fields(&headers, &Bytes::copy_from_slice(body.as_bytes()), Accepts::Forms)
            .map(Value::Object)
            .map_err(|error| error.body())
    }

    #[test]
    fn json_and_both_form_types_are_parsed() {
        assert_eq!(read("application/json; charset=utf-8", r#"{"a": 1}"#), Ok(json!({"a": 1})));
        assert_eq!(
            read("application/x-www-form-urlencoded", "a=1&b=x+y%21"),
            Ok(json!({"a": "1", "b": "x y!"}))
        );
        let body = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n";
        assert_eq!(read("multipart/form-data; boundary=B", body), Ok(json!({"a": "1"})));
        assert_eq!(read("text/plain", ""), Ok(json!({})));
    }

    #[test]
    fn a_file_is_returned_unchanged_and_is_not_a_field() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "multipart/form-data; boundary=\"B\"".parse().unwrap());
        let mut body =
            b"preamble\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1--B\r\n2\r\n".to_vec();
        body.extend(
            b"--B\r\nContent-Disposition: form-data; filename=\"x.csv\"; name=\"csv\"\r\n\r\n\xff\r\nb\r\n",
        );
        body.extend(b"--B\r\nContent-Disposition: form-data; name=\"c\"\r\n\r\n\r\n--B--\r\n--B\r\nafter");
        let body = Bytes::from(body);
        assert_eq!(file(&headers, &body, "csv").unwrap().as_deref(), Some(&b"\xff\r\nb"[..]));
        assert_eq!(file(&headers, &body, "a").unwrap(), None);
        let text = fields(&headers, &body, Accepts::Forms).unwrap();
        assert_eq!(Value::Object(text), json!({"a": "1--B\r\n2", "c": ""}));
        assert_eq!(file(&headers, &Bytes::new(), "csv").unwrap(), None);
        assert!(file(&headers, &Bytes::from_static(b"--B\r\nno head"), "csv").is_err());
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        assert_eq!(file(&headers, &body, "csv").unwrap(), None);
        headers.insert(CONTENT_TYPE, "multipart/form-data".parse().unwrap());
        assert!(file(&headers, &body, "csv").is_err());
    }

    #[test]
    fn a_body_that_is_not_an_object_is_rejected_with_its_python_type() {
        for (body, kind) in
            [("[]", "list"), ("\"a\"", "str"), ("1", "int"), ("1.5", "float"), ("true", "bool")]
        {
            let error = read("application/json", body).unwrap_err();
            assert_eq!(error["detail"], format!("Invalid data. Expected a dictionary, but got {kind}."));
        }
    }

    #[test]
    fn malformed_unsupported_and_deep_bodies_are_rejected() {
        assert_eq!(read("application/json", "{").unwrap_err()["code"], "parse_error");
        assert_eq!(read("text/plain", "{}").unwrap_err()["code"], "unsupported_media_type");
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(read("application/json", &nested(NESTING_MAX)).is_ok());
        assert_eq!(read("application/json", &nested(NESTING_MAX + 1)).unwrap_err()["code"], "parse_error");
        assert_eq!(read("application/json", &nested(100_000)).unwrap_err()["code"], "parse_error");
    }
}
