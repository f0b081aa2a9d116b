//! Error responses of the capture routes. SDKs read only the status to decide whether they send the batch again.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error response. Nothing of the request was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureError {
    /// HTTP status.
    pub status: StatusCode,
    /// The error type, `type` in the body.
    pub kind: &'static str,
    /// The error code.
    pub code: &'static str,
    /// The message for people.
    pub detail: String,
    /// The path of the invalid field, such as `batch[1].uuid`.
    pub attr: Option<String>,
}

impl CaptureError {
    /// 400: a field is missing or invalid.
    pub fn invalid_field(
        code: &'static str,
        detail: impl Into<String>,
        attr: impl Into<String>,
    ) -> CaptureError {
        let attr = Some(attr.into());
        CaptureError {
            status: StatusCode::BAD_REQUEST,
            kind: "validation_error",
            code,
            detail: detail.into(),
            attr,
        }
    }

    /// 400: the body cannot be parsed.
    pub fn invalid_body(detail: impl Into<String>) -> CaptureError {
        let (kind, code) = ("invalid_request", "parse_error");
        CaptureError { status: StatusCode::BAD_REQUEST, kind, code, detail: detail.into(), attr: None }
    }

    /// 413: the request exceeds a size limit.
    pub fn too_large(detail: impl Into<String>) -> CaptureError {
        let (kind, code) = ("invalid_request", "payload_too_large");
        CaptureError { status: StatusCode::PAYLOAD_TOO_LARGE, kind, code, detail: detail.into(), attr: None }
    }

    /// 401: the request has no project token.
    pub fn missing_token() -> CaptureError {
        CaptureError::unauthorized(
            "missing_api_key",
            "No project token was sent. Put it into the field api_key.",
        )
    }

    /// 401: no project has this token.
    pub fn unknown_token() -> CaptureError {
        CaptureError::unauthorized(
            "invalid_api_key",
            "The project token is not known. It is shown in the project's settings.",
        )
    }

    /// 401: the events name more than one project; `path` is the first event whose token differs from the earlier ones.
    pub fn conflicting_tokens(path: String) -> CaptureError {
        let detail = "The events name different project tokens. Send each project's events by themselves.";
        let attr =
            Some(if path.is_empty() { "api_key".to_owned() } else { format!("{path}.properties.token") });
        CaptureError { attr, ..CaptureError::unauthorized("invalid_api_key", detail) }
    }

    fn unauthorized(code: &'static str, detail: &str) -> CaptureError {
        let (status, kind) = (StatusCode::UNAUTHORIZED, "authentication_error");
        CaptureError { status, kind, code, detail: detail.to_owned(), attr: Some("api_key".to_owned()) }
    }
}

impl IntoResponse for CaptureError {
    fn into_response(self) -> Response {
        let body = json!({"type": self.kind, "code": self.code, "detail": self.detail, "attr": self.attr});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
