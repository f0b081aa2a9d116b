//! What came back.

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

/// A response, read whole.
#[derive(Debug, Clone)]
pub struct TestResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as text.
    pub text: String,
    /// Its body as it came.
    pub bytes: Vec<u8>,
}

impl TestResponse {
    /// The body as JSON; null when it is empty.
    pub fn json(&self) -> Value {
        if self.text.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text))
    }

    /// The body, after checking the status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }

    /// Checks that it is the error with this status, type, code, detail and attribute.
    #[track_caller]
    pub fn expect_error(&self, status: u16, kind: &str, code: &str, detail: &str, attr: Option<&str>) {
        let body = self.expect(status);
        assert_eq!(body, json!({"type": kind, "code": code, "detail": detail, "attr": attr}));
    }

    /// Checks that it is a 400 of type `validation_error`.
    #[track_caller]
    pub fn expect_invalid(&self, code: &str, detail: &str, attr: Option<&str>) {
        self.expect_error(400, "validation_error", code, detail, attr);
    }

    /// Checks that it is a 400 with this code about this field.
    #[track_caller]
    pub fn expect_field_error(&self, code: &str, field: &str) {
        let body = self.expect(400);
        assert_eq!((&body["code"], &body["attr"]), (&json!(code), &json!(field)), "{body}");
    }

    /// A header's value; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A text for a URL, in which every byte is encoded.
pub fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
