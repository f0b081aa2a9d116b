//! `POST P/insights/timing/`: writes timings that a client measured to the log.
//!
//! Must stay true: nothing is stored; the API key of the request is removed from the log line, wherever it is in the body.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::ResponseFormat;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, empty};
use serde_json::Value;

use crate::insight::READ;
use crate::{Insights, limits};

/// Logs the body.
pub async fn record(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    ResponseFormat::of(&call)?;
    if call.bytes().len() > limits::TIMING_BYTES {
        return Err(ApiError::too_large());
    }
    let key = call.credential().map(|credential| credential.key);
    let measured = log_line(call.json_fields()?, key.as_deref());
    let (project, user, at) = (access.project.id, access.caller.user().id, timestamp(call.now));
    tracing::info!(project, user, at, measured, "time to see data");
    Ok(empty(StatusCode::OK))
}

/// The body on one line, without `key`.
fn log_line(mut body: Fields, key: Option<&str>) -> String {
    body.shift_remove("personal_api_key");
    let text = Value::Object(body).to_string();
    match key.filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "..."),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_one_line_without_the_key_of_the_request() {
        let body = json!({"type": "a\nb", "n": 1.50, "personal_api_key": "phx_other",
            "current_url": "https://x/?personal_api_key=phx_1234", "deep": [{"phx_1234": "phx_1234"}]});
        let text = log_line(body.as_object().unwrap().clone(), Some("phx_1234"));
        let shown = r#"{"type":"a\nb","n":1.5,"current_url":"https://x/?personal_api_key=...","deep":[{"...":"..."}]}"#;
        assert_eq!(text, shown);
        assert_eq!(log_line(Fields::new(), Some("")), "{}");
    }
}
