//! `P/query/{id}/`: status, result and cancellation of a background calculation.

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
    let lookup = state.calculator.get_query(project, call.param("id"), call.now).await?;
    let lookup = lookup.ok_or_else(ApiError::not_found)?;
    let mut query_status = lookup.to_json(project);
    let status = match (&lookup.status.end_time, &lookup.status.failure) {
        (None, _) => StatusCode::ACCEPTED,
        (Some(_), None) => {
            query_status["results"] = json!(state.calculator.get_query_result(project, &lookup).await?);
            StatusCode::OK
        }
        (Some(_), Some(failure)) if failure.message.is_some() => StatusCode::BAD_REQUEST,
        (Some(_), Some(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Ok((status, axum::Json(json!({"query_status": query_status}))).into_response())
}

/// `DELETE P/query/{id}/`
pub async fn cancel(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_QUERIES, |_| []).await?;
    state.calculator.cancel(access.project.id, call.param("id")).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
