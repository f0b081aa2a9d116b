//! Why a capture request is refused, as the SDKs read it: only the status decides what they do with the batch.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A refused request. Nothing of it has been stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: StatusCode,
    /// Class of the error.
    pub kind: &'static str,
    /// The error in one word.
    pub code: &'static str,
    /// The error for people.
    pub detail: String,
    /// The field at fault.
    pub attr: Option<String>,
}

impl Refusal {
    /// 400: a field is missing or wrong.
    pub fn field(code: &'static str, detail: impl Into<String>, attr: impl Into<String>) -> Refusal {
        let attr = Some(attr.into());
        Refusal {
            status: StatusCode::BAD_REQUEST,
            kind: "validation_error",
            code,
            detail: detail.into(),
            attr,
        }
    }

    /// 400: the body is not what it should be.
    pub fn body(detail: impl Into<String>) -> Refusal {
        let (kind, code) = ("invalid_request", "parse_error");
        Refusal { status: StatusCode::BAD_REQUEST, kind, code, detail: detail.into(), attr: None }
    }

    /// 413: more than is taken at once.
    pub fn too_large(detail: impl Into<String>) -> Refusal {
        let (kind, code) = ("invalid_request", "payload_too_large");
        Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, kind, code, detail: detail.into(), attr: None }
    }

    /// 401: no project token came with the request.
    pub fn no_token() -> Refusal {
        Refusal::unauthorized("missing_api_key", "No project token was sent. Put it into the field api_key.")
    }

    /// 401: no project has this token.
    pub fn unknown_token() -> Refusal {
        Refusal::unauthorized(
            "invalid_api_key",
            "The project token is not known. It is shown in the project's settings.",
        )
    }

    /// 401: the events name more than one project; `path` is the first that names another than those before it.
    pub fn several_tokens(path: String) -> Refusal {
        let detail = "The events name different project tokens. Send each project's events by themselves.";
        let attr =
            Some(if path.is_empty() { "api_key".to_owned() } else { format!("{path}.properties.token") });
        Refusal { attr, ..Refusal::unauthorized("invalid_api_key", detail) }
    }

    fn unauthorized(code: &'static str, detail: &str) -> Refusal {
        let (status, kind) = (StatusCode::UNAUTHORIZED, "authentication_error");
        Refusal { status, kind, code, detail: detail.to_owned(), attr: Some("api_key".to_owned()) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"type": self.kind, "code": self.code, "detail": self.detail, "attr": self.attr});
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
