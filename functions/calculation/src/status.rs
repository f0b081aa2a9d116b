//! Calculations in the background by their names: how they go, and their end.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty};
use serde_json::json;

use crate::Calculation;

const READ_QUERIES: &str = "query:read";

/// `GET P/query/{id}/`
pub async fn retrieve(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_QUERIES, |_| []).await?;
    let project = access.project.id;
    let found = state.calculator.find(project, call.param("id"), call.now).await?;
    let found = found.ok_or_else(ApiError::not_found)?;
    let mut shown = found.shown(project);
    let status = match (&found.status.end_time, &found.status.failure) {
        (None, _) => StatusCode::ACCEPTED,
        (Some(_), None) => {
            shown["results"] = json!(state.calculator.result_of(project, &found).await?);
            StatusCode::OK
        }
        (Some(_), Some(failure)) if failure.message.is_some() => StatusCode::BAD_REQUEST,
        (Some(_), Some(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Ok((status, axum::Json(json!({"query_status": shown}))).into_response())
}

/// `DELETE P/query/{id}/`
pub async fn cancel(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_QUERIES, |_| []).await?;
    state.calculator.cancel(access.project.id, call.param("id")).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
