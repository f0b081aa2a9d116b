//! `GET P/feature_flags/{id}/status/`: whether a flag is in use, and why it is thought so.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, json};
use pennon_engine::flag::Flag;
use serde_json::{Value, json as object};

use crate::Flags;
use crate::calls::with_calls;
use crate::store::flag_at;

/// Judges a flag's use.
pub async fn status(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted = |project| id.map(|id| flag_at(project, id)).into_iter().collect();
    let access = state.app.project_with(&call, crate::READ, wanted);
    let (_, items, calls) = with_calls(&state, &call, access).await?;
    let Some(item) = items.into_iter().flatten().next() else {
        return Ok((StatusCode::NOT_FOUND, axum::Json(unknown())).into_response());
    };
    let mut flag: Flag = item.body()?;
    flag.last_called_at = flag.latest_call(&calls);
    Ok(json(flag.status_response(call.now)))
}

/// The body for a flag that is not there: clients read it as a status, or as an error.
fn unknown() -> Value {
    object!({
        "status": "unknown",
        "reason": "No such flag",
        "type": "invalid_request",
        "code": "not_found",
        "detail": "Not found.",
        "attr": null,
    })
}
