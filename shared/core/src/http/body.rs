//! Request bodies: JSON, and HTML forms where an endpoint takes them.
//!
//! An empty body is an empty object whatever its type. Values of a form are texts; the field parsers coerce them.

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use crate::error::{ApiError, ApiResult};

/// Largest body that is read: a function behind a gateway takes 6 MB, and binary bodies only three quarters of it.
pub const BODY_BYTES_MAX: usize = 6_000_000;
/// Deepest nesting of arrays and objects in a JSON body.
pub const NESTING_MAX: usize = 64;

/// The fields of a request body.
pub type Fields = Map<String, Value>;

/// Which types of body an endpoint reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// JSON only.
    Json,
    /// JSON and the two kinds of HTML form.
    Forms,
}

/// The fields of `body`, as its content type says to read it.
pub fn fields(headers: &HeaderMap, body: &[u8], accepts: Accepts) -> ApiResult<Fields> {
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

/// The object that `body` holds as JSON text.
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

/// The Python name of a JSON value's type, which error texts use.
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

/// The depth of arrays and objects inside each other. The parser stops at 128, so recursion is bounded.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn urlencoded(body: &[u8]) -> Fields {
    super::call::parse_query(&String::from_utf8_lossy(body))
        .into_iter()
        .map(|(name, value)| (name, Value::String(value)))
        .collect()
}

/// The text fields of a multipart body; files are left out.
fn multipart(declared: &str, body: &[u8]) -> ApiResult<Fields> {
    let boundary = declared
        .split(';')
        .filter_map(|part| part.trim().strip_prefix("boundary="))
        .map(|boundary| boundary.trim_matches('"'))
        .find(|boundary| !boundary.is_empty() && boundary.len() <= 70)
        .ok_or_else(|| ApiError::parse("Multipart form parse error - no boundary"))?;
    let text = String::from_utf8_lossy(body);
    let delimiter = format!("--{boundary}");
    let mut fields = Fields::new();
    for part in text.split(&*delimiter).skip(1).take_while(|part| !part.starts_with("--")) {
        let Some((head, value)) = part.split_once("\r\n\r\n") else {
            return Err(ApiError::parse("Multipart form parse error - a part without a head"));
        };
        let disposition =
            head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"));
        let name = disposition.and_then(|line| quoted(line, "name=\""));
        let is_file = disposition.is_some_and(|line| line.contains("filename="));
        if let (Some(name), false) = (name, is_file) {
            let value = value.strip_suffix("\r\n").unwrap_or(value);
            fields.insert(name.to_owned(), Value::String(value.to_owned()));
        }
    }
    Ok(fields)
}

fn quoted<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let from = line.find(start)? + start.len();
    line[from..].split('"').next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(content_type: &str, body: &str) -> Result<Value, Value> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        fields(&headers, body.as_bytes(), Accepts::Forms).map(Value::Object).map_err(|error| error.body())
    }

    #[test]
    fn json_and_both_forms_are_read() {
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
    fn what_is_no_object_is_refused_by_its_python_type() {
        for (body, kind) in
            [("[]", "list"), ("\"a\"", "str"), ("1", "int"), ("1.5", "float"), ("true", "bool")]
        {
            let error = read("application/json", body).unwrap_err();
            assert_eq!(error["detail"], format!("Invalid data. Expected a dictionary, but got {kind}."));
        }
    }

    #[test]
    fn malformed_foreign_and_deep_bodies_are_refused() {
        assert_eq!(read("application/json", "{").unwrap_err()["code"], "parse_error");
        assert_eq!(read("text/plain", "{}").unwrap_err()["code"], "unsupported_media_type");
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(read("application/json", &nested(NESTING_MAX)).is_ok());
        assert_eq!(read("application/json", &nested(NESTING_MAX + 1)).unwrap_err()["code"], "parse_error");
        assert_eq!(read("application/json", &nested(100_000)).unwrap_err()["code"], "parse_error");
    }
}
