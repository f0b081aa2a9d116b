//! `POST P/insights/timing/`: what a client measured of its own waiting, as one line of the log.
//!
//! Must stay true: nothing is stored; the key of the request is not in the line, wherever in the body it stood.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::Format;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, empty};
use serde_json::Value;

use crate::handlers::READ;
use crate::{Insights, limits};

/// Logs the body.
pub async fn note(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    Format::of(&call)?;
    if call.bytes().len() > limits::TIMING_BYTES {
        return Err(ApiError::too_large());
    }
    let key = call.credential().map(|credential| credential.key);
    let measured = line(call.json_fields()?, key.as_deref());
    let (project, user, at) = (access.project.id, access.caller.user().id, timestamp(call.now));
    tracing::info!(project, user, at, measured, "time to see data");
    Ok(empty(StatusCode::OK))
}

/// The body on one line, without `key`.
fn line(mut body: Fields, key: Option<&str>) -> String {
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
        let text = line(body.as_object().unwrap().clone(), Some("phx_1234"));
        let shown = r#"{"type":"a\nb","n":1.5,"current_url":"https://x/?personal_api_key=...","deep":[{"...":"..."}]}"#;
        assert_eq!(text, shown);
        assert_eq!(line(Fields::new(), Some("")), "{}");
    }
}
