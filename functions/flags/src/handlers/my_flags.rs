//! `GET P/feature_flags/my_flags/`: all flags with their values for the user who owns the API key.

use std::cmp::Reverse;

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, GATEWAY_BYTES_MAX, deliver};
use pennon_core::payload_keys::PayloadKeys;
use pennon_flag_rules::definitions::FlagDefinitions;
use pennon_role_access::payloads;

use crate::Flags;
use crate::persons::flag_values::{FlagValues, authorize, evaluate_flags, flag_of, parse_groups_parameter};

/// Largest response that is built, in bytes before compression.
const TEXT_BYTES_MAX: usize = 32_000_000;

/// Returns the flags, newest first.
pub async fn my_flags(State(flags): State<Flags>, call: Call) -> ApiResult<Response> {
    let authorized = authorize(&flags, &call).await?;
    let groups = parse_groups_parameter(&call)?;
    let project = authorized.access.project.id;
    let distinct_id = authorized.access.caller.user().distinct_id.clone();
    let values = evaluate_flags(&flags, &call, authorized, &distinct_id, &groups).await?;
    let keys = flags.app.payload_keys.clone();
    let headers = call.headers.clone();
    let response = tokio::task::spawn_blocking(move || {
        flags_json(&keys, project, values).and_then(|text| deliver(&headers, text.into_bytes()))
    });
    response.await.map_err(|e| ApiError::internal(&e))?.ok_or_else(|| {
        let detail = format!(
            "The project's flags are larger than a response can be: at most {GATEWAY_BYTES_MAX} bytes, compressed for \
             callers who send the header Accept-Encoding: gzip, and {TEXT_BYTES_MAX} as text."
        );
        ApiError::invalid("invalid_input", detail, None)
    })
}

/// The response body; `None` when it is too large.
fn flags_json(keys: &PayloadKeys, project: u64, mut values: FlagValues) -> Option<String> {
    values.sort_by_key(|value| Reverse((flag_of(value).created_at, flag_of(value).id)));
    let definitions = FlagDefinitions::new(project, values.iter().map(flag_of));
    let mut text = "[".to_owned();
    for value in &values {
        if text.len() > 1 {
            text.push(',');
        }
        let mut left = TEXT_BYTES_MAX.saturating_sub(text.len());
        let flag = payloads::masked(keys, project, flag_of(value));
        let minimal = serde_json::to_string(&definitions.minimal(&flag, &mut left).ok()?).ok()?;
        let value = serde_json::to_string(&value.1.value).ok()?;
        text.push_str(&format!("{{\"feature_flag\":{minimal},\"value\":{value}}}"));
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
    }
    text.push(']');
    Some(text)
}
