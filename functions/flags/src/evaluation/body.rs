//! Decodes request bodies: the wire formats of SDKs.
//!
//! Must stay true: a body above the limits is not read to its end; JSON as written by Python and browsers is accepted:
//! `NaN` and infinities become null, invalid UTF-8 is replaced.

use std::borrow::Cow;

use axum::http::header;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{BodyRules, Call, Fields, SdkBody, SdkBodyError};
use pennon_core::limits::evaluation::{BODY_BYTES_MAX, INFLATED_BYTES_MAX};
use serde_json::Value;

const RULES: BodyRules = BodyRules {
    inflated_bytes_max: INFLATED_BYTES_MAX,
    refuses_other_encodings: false,
    takes_bare_base64: true,
};

/// Parses the fields of the body. 413 when it is too large, 400 when it is not a JSON object.
pub fn parse_fields(call: &Call) -> ApiResult<Fields> {
    if call.bytes().len() > BODY_BYTES_MAX {
        return Err(ApiError::too_large());
    }
    let text = |name: header::HeaderName| call.headers.get(name).and_then(|value| value.to_str().ok());
    let sent = SdkBody {
        content_type: text(header::CONTENT_TYPE),
        content_encoding: text(header::CONTENT_ENCODING),
        compression: call.query_value("compression"),
        body: call.bytes(),
    };
    let payload = RULES.decode(&sent).map_err(|error| match error {
        SdkBodyError::Unreadable(detail) => ApiError::parse(detail),
        SdkBodyError::NoData => ApiError::parse("The form has no field data."),
        SdkBodyError::TooLarge(_) => ApiError::too_large(),
    })?;
    match parse_json(&payload.json)? {
        Value::Object(fields) => Ok(fields),
        _ => {
            let detail = "Invalid data. The body must be a JSON object.";
            Err(ApiError::invalid("invalid_input", detail, None))
        }
    }
}

/// Parses JSON.
fn parse_json(bytes: &[u8]) -> ApiResult<Value> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let read = serde_json::from_str(text).or_else(|error| match replace_specials(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => serde_json::from_str(&text),
    });
    read.map_err(|error| ApiError::parse(format!("JSON parse error - {error}")))
}

/// The text with `null` in place of numbers that JSON does not support.
fn replace_specials(text: &str) -> Cow<'_, str> {
    const SPECIALS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let mut replaced = String::new();
    let (mut kept, mut at, mut in_text) = (0, 0, false);
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'-' | b'I' | b'N' if !in_text => {
                let special = SPECIALS.iter().find(|special| text[at..].starts_with(**special));
                if let Some(special) = special {
                    replaced.push_str(&text[kept..at]);
                    replaced.push_str("null");
                    at += special.len();
                    kept = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    replaced.push_str(&text[kept..]);
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json as object;

    #[test]
    fn numbers_that_json_does_not_have_are_null() {
        let text = r#"{"a": NaN, "b": [Infinity, -Infinity, -1], "c": "NaN \" -Infinity", "d\\": NaN}"#;
        let expected = object!({"a": null, "b": [null, null, -1], "c": "NaN \" -Infinity", "d\\": null});
        assert_eq!(parse_json(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn marks_and_invalid_utf_8_are_read() {
        assert_eq!(parse_json(b"\xef\xbb\xbf {\"a\": \"\xff\"} ").unwrap(), object!({"a": "\u{fffd}"}));
        assert!(parse_json(b"{\"a\": Nan}").is_err());
        assert!(parse_json("[".repeat(200_000).as_bytes()).is_err());
    }
}
