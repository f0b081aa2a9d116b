//! Cancelling calculations in the background.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::{Format, QUERY_ID};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty};
use serde_json::Value;

use crate::Insights;
use crate::handlers::READ;

/// `POST P/insights/cancel/`: answered alike whether or not there is such a calculation.
pub async fn cancel(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    Format::of(&call)?;
    let fields = call.json_fields()?;
    let id = match fields.get(QUERY_ID) {
        Some(Value::String(id)) if !id.is_empty() => id.as_str(),
        Some(Value::Null | Value::String(_)) | None => {
            return Err(ApiError::invalid("invalid_input", "Field is required.", Some(QUERY_ID)));
        }
        Some(_) => return Err(ApiError::invalid("invalid_input", "Not a valid string.", Some(QUERY_ID))),
    };
    state.calculator.cancel(access.project.id, id).await?;
    Ok(empty(StatusCode::OK))
}
