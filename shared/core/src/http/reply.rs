//! Answers of handlers that succeeded.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// 200 with a JSON body.
pub fn json<T: Serialize>(body: T) -> Response {
    Json(body).into_response()
}

/// 201 with a JSON body.
pub fn created<T: Serialize>(body: T) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}

/// `status` without a body.
pub fn empty(status: StatusCode) -> Response {
    status.into_response()
}
