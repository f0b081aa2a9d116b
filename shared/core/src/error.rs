//! Error responses: a status and the body `{type, code, detail, attr}`.
//!
//! Constructors are named by meaning; the texts are those of the HTTP contract. Causes go to the log, never into a body.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::store::StoreError;

const AUTHENTICATION_ERROR: &str = "authentication_error";
const INVALID_REQUEST: &str = "invalid_request";
const SERVER_ERROR: &str = "server_error";
const THROTTLED_ERROR: &str = "throttled_error";
const VALIDATION_ERROR: &str = "validation_error";
/// The values of `type` in error bodies.
pub const ERROR_TYPES: [&str; 5] =
    [AUTHENTICATION_ERROR, INVALID_REQUEST, SERVER_ERROR, THROTTLED_ERROR, VALIDATION_ERROR];

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: String,
    detail: String,
    attr: Option<String>,
    /// Boxed, to keep `Result<T, ApiError>` small.
    header: Option<Box<(HeaderName, String)>>,
    empty: bool,
    /// The request is valid and exceeds a limit of this process.
    over_limit: bool,
}

/// The result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &str, detail: impl Into<String>) -> ApiError {
        ApiError {
            status,
            kind,
            code: code.to_owned(),
            detail: detail.into(),
            attr: None,
            header: None,
            empty: false,
            over_limit: false,
        }
    }

    fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> ApiError {
        self.header = Some(Box::new((name, value.into())));
        self
    }

    /// 401: the request has no API key.
    pub fn not_authenticated() -> ApiError {
        ApiError::unauthorized("not_authenticated", "Authentication credentials were not provided.")
    }

    /// 401: the API key found in `source` is unknown, expired or inactive.
    pub fn bad_key(source: &str) -> ApiError {
        ApiError::unauthorized(
            "authentication_failed",
            format!("Personal API key found in request {source} is invalid."),
        )
    }

    /// 401: no project has the token of the query string.
    pub fn bad_token() -> ApiError {
        ApiError::unauthorized("authentication_failed", "Incorrect authentication credentials.")
    }

    /// 401: the sharing token is not valid for this request.
    pub fn invalid_sharing_token(detail: &str) -> ApiError {
        ApiError::unauthorized("authentication_failed", detail)
    }

    fn unauthorized(code: &str, detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, AUTHENTICATION_ERROR, code, detail)
            .with_header(header::WWW_AUTHENTICATE, "Bearer")
    }

    /// 403 with `detail`. Its type is `authentication_error`, which clients match on.
    pub fn forbidden(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, AUTHENTICATION_ERROR, "permission_denied", detail)
    }

    /// 404: the record does not exist in this project.
    pub fn not_found() -> ApiError {
        ApiError::missing("Not found.")
    }

    /// 404: the project does not exist.
    pub fn project_not_found() -> ApiError {
        ApiError::missing("Project not found.")
    }

    /// 404: no route matches the path.
    pub fn no_route() -> ApiError {
        ApiError::missing("Endpoint not found.")
    }

    /// 404 with `detail`.
    pub fn missing(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, INVALID_REQUEST, "not_found", detail)
    }

    /// 405: the path does not support the method; `allow` is the value of the header `Allow`.
    pub fn method_not_allowed(method: &str, allow: &str) -> ApiError {
        let detail = format!("Method \"{method}\" not allowed.");
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, INVALID_REQUEST, "method_not_allowed", detail)
            .with_header(header::ALLOW, allow)
    }

    /// The same status and headers, without a body.
    #[must_use]
    pub fn without_body(mut self) -> ApiError {
        self.empty = true;
        self
    }

    /// 400: the body, or a value inside it, cannot be parsed.
    pub fn parse(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, "parse_error", detail)
    }

    /// 400: the field `attr`, or without one the whole request, is invalid.
    pub fn invalid(code: &str, detail: impl Into<String>, attr: Option<&str>) -> ApiError {
        let mut error = ApiError::new(StatusCode::BAD_REQUEST, VALIDATION_ERROR, code, detail);
        error.attr = attr.map(str::to_owned);
        error
    }

    /// 400: a valid request needs more memory or reads more rows than this process may. `detail` has the limit.
    pub fn over_limit(detail: impl Into<String>) -> ApiError {
        ApiError { over_limit: true, ..ApiError::invalid("invalid_input", detail, None) }
    }

    /// 409: a concurrent request changed the same fields.
    pub fn conflict(detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, SERVER_ERROR, "conflict", detail)
    }

    /// 408: the body did not arrive in time.
    pub fn request_timeout() -> ApiError {
        let detail = "The request body arrived too slowly. Send the request again.";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, INVALID_REQUEST, "request_timeout", detail)
    }

    /// 413: the body is larger than the limit.
    pub fn too_large() -> ApiError {
        let detail = "Request body is too large.";
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID_REQUEST, "payload_too_large", detail)
    }

    /// 415: the endpoint does not support the body's media type.
    pub fn media_type(media_type: &str) -> ApiError {
        let detail = format!("Unsupported media type \"{media_type}\" in request.");
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, "unsupported_media_type", detail)
    }

    /// 422: the value of `attr` contradicts the rest of the request.
    pub fn unprocessable(detail: impl Into<String>, attr: &str) -> ApiError {
        let mut error =
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, VALIDATION_ERROR, "invalid_input", detail);
        error.attr = Some(attr.to_owned());
        error
    }

    /// 429: the API key exceeded its rate limit; retry after `seconds`.
    pub fn throttled(seconds: u64) -> ApiError {
        let unit = if seconds == 1 { "second" } else { "seconds" };
        let detail = format!("Request was throttled. Expected available in {seconds} {unit}.");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, THROTTLED_ERROR, "throttled", detail)
            .with_header(header::RETRY_AFTER, seconds.to_string())
    }

    /// 503: retry after `seconds`.
    pub fn busy(seconds: u32) -> ApiError {
        ApiError::busy_because(seconds, "The service is busy. Try again later.")
    }

    /// 503 with `detail`: the same request will succeed after `seconds`.
    pub fn busy_because(seconds: u32, detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, SERVER_ERROR, "service_unavailable", detail)
            .with_header(header::RETRY_AFTER, seconds.to_string())
    }

    /// 503 with `code` and `detail`: a retry will not succeed soon.
    pub fn unavailable(code: &str, detail: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, SERVER_ERROR, code, detail)
            .with_header(header::RETRY_AFTER, "60")
    }

    /// 500: an unexpected error. `cause` is logged here, once, and never sent.
    pub fn internal(cause: &dyn std::fmt::Display) -> ApiError {
        tracing::error!(cause = %cause, "a request failed");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, "error", "A server error occurred.")
    }

    /// The same error with one more sentence in its message.
    #[must_use]
    pub fn with_sentence(mut self, sentence: &str) -> ApiError {
        self.detail = format!("{} {sentence}", self.detail);
        self
    }

    /// Whether it is the error of [`ApiError::over_limit`].
    pub fn is_over_limit(&self) -> bool {
        self.over_limit
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The message for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The response body.
    pub fn body(&self) -> Value {
        json!({"type": self.kind, "code": self.code, "detail": self.detail, "attr": self.attr})
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict | StoreError::Busy(_) => {
                tracing::warn!(cause = %error, "the store is busy");
                ApiError::busy(1)
            }
            StoreError::Unavailable(cause) => {
                tracing::warn!(%cause, "the store cannot be written");
                ApiError::unavailable("storage_unavailable", cause)
            }
            StoreError::TooLarge => {
                ApiError::invalid("invalid_input", "The record is too large to be stored.", None)
            }
            StoreError::Condition { .. } | StoreError::Corrupt(_) | StoreError::Failed(_) => {
                ApiError::internal(&error)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = if self.empty {
            self.status.into_response()
        } else {
            (self.status, Json(self.body())).into_response()
        };
        if let Some((name, value)) = self.header.as_deref()
            && let Ok(value) = HeaderValue::from_str(value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
