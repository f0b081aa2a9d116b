//! `GET P/feature_flags/{id}/status/`: whether a flag is active or stale, with the reason.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, json};
use pennon_flag_rules::Flag;
use serde_json::{Value, json as object};

use crate::Flags;
use crate::call_times::authorize_with_call_times;
use crate::store::flag_record_key;

/// Returns the status of a flag.
pub async fn status(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let keys_to_read = |project| id.map(|id| flag_record_key(project, id)).into_iter().collect();
    let access = state.app.authorize_project_with(&call, crate::READ_SCOPE, keys_to_read);
    let (_, items, calls) = authorize_with_call_times(&state, &call, access).await?;
    let Some(item) = items.into_iter().flatten().next() else {
        return Ok((StatusCode::NOT_FOUND, axum::Json(not_found_body())).into_response());
    };
    let mut flag: Flag = item.body()?;
    flag.last_called_at = flag.latest_call(&calls);
    Ok(json(flag.status_response(call.now)))
}

/// The body for an unknown flag: clients read it as a status or as an error.
fn not_found_body() -> Value {
    object!({
        "status": "unknown",
        "reason": "No such flag",
        "type": "invalid_request",
        "code": "not_found",
        "detail": "Not found.",
        "attr": null,
    })
}
