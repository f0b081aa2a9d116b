//! Cancellation of background calculations.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::{QUERY_ID, ResponseFormat};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty};
use serde_json::Value;

use crate::Insights;
use crate::insight::READ;

/// `POST P/insights/cancel/`: 200 whether or not the calculation exists, and also without an id.
pub async fn cancel(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    ResponseFormat::of(&call)?;
    let fields = call.json_fields()?;
    match fields.get(QUERY_ID) {
        Some(Value::String(id)) if !id.is_empty() => {
            state.calculator.cancel(access.project.id, id).await?;
        }
        Some(Value::Null | Value::String(_)) | None => {}
        Some(_) => return Err(ApiError::invalid("invalid_input", "Not a valid string.", Some(QUERY_ID))),
    }
    Ok(empty(StatusCode::OK))
}
