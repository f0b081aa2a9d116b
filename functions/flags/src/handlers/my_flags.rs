//! `GET P/feature_flags/my_flags/`: all flags with their values for the owner of the key.

use std::cmp::Reverse;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::payload_keys::PayloadKeys;
use pennon_engine::flag::definitions::Definitions;
use pennon_role_access::payloads;

use crate::Flags;
use crate::persons::one::{Values, flag_of, groups_parameter, open, values};

/// Largest answer as text: a gateway takes 6 MB, in which quotes count twice.
const BYTES_MAX: usize = 4_500_000;

/// Shows the flags, newest first.
pub async fn my_flags(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let opened = open(&flags, &call).await?;
    let groups = groups_parameter(&call)?;
    let project = opened.access.project.id;
    let distinct_id = opened.access.caller.user().distinct_id.clone();
    let values = values(&flags, &call, opened, &distinct_id, &groups).await?;
    let keys = flags.app.payload_keys.clone();
    let shown = tokio::task::spawn_blocking(move || shown(&keys, project, values));
    let text = shown.await.map_err(|e| ApiError::internal(&e))?.ok_or_else(|| {
        let detail =
            format!("The project's flags take more than the {BYTES_MAX} bytes of the largest answer.");
        ApiError::invalid("invalid_input", detail, None)
    })?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response())
}

/// The answer; none when it is too large.
fn shown(keys: &PayloadKeys, project: u64, mut values: Values) -> Option<String> {
    values.sort_by_key(|value| Reverse((flag_of(value).created_at, flag_of(value).id)));
    let definitions = Definitions::new(project, values.iter().map(flag_of));
    let mut text = "[".to_owned();
    for value in &values {
        if text.len() > 1 {
            text.push(',');
        }
        let mut left = BYTES_MAX.saturating_sub(text.len());
        let flag = payloads::shown(keys, project, flag_of(value));
        let minimal = serde_json::to_string(&definitions.minimal(&flag, &mut left).ok()?).ok()?;
        let value = serde_json::to_string(&value.1.value).ok()?;
        text.push_str(&format!("{{\"feature_flag\":{minimal},\"value\":{value}}}"));
        if text.len() > BYTES_MAX {
            return None;
        }
    }
    text.push(']');
    Some(text)
}
