//! `GET P/feature_flags/{key}/remote_config`: the payload of a remote configuration flag, by key or id.

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::Item;
use pennon_core::store::keys::{self, ProjectId};
use pennon_flag_rules::{Flag, is_possible_key};
use pennon_role_access::payloads::{has_encrypted, revealed};
use serde_json::Value;

use crate::Flags;
use crate::store::{flag_record_key, record_id};

/// How the path selects a flag.
enum FlagSelector<'a> {
    Id(u64),
    Key(&'a str),
    Invalid,
}

impl FlagSelector<'_> {
    fn of(segment: &str) -> FlagSelector<'_> {
        if segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return segment.parse().map_or(FlagSelector::Invalid, FlagSelector::Id);
        }
        if is_possible_key(segment) { FlagSelector::Key(segment) } else { FlagSelector::Invalid }
    }
}

/// Returns the payload as stored, but decrypted: SDKs decode a JSON text once more. Null when the flag has no payload.
pub async fn remote_config(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let selector = FlagSelector::of(call.param("key"));
    let keys_to_read = |project| match &selector {
        FlagSelector::Id(id) => vec![flag_record_key(project, *id)],
        FlagSelector::Key(key) => vec![keys::flag_key_live(project, key)],
        FlagSelector::Invalid => Vec::new(),
    };
    let (access, items) = state.app.authorize_project_with(&call, crate::READ_SCOPE, keys_to_read).await?;
    let project = access.project.id;
    let item = items.into_iter().flatten().next().ok_or_else(not_found)?;
    let record = match &selector {
        FlagSelector::Key(_) => fetch_key_holder(&state, project, &item).await?,
        _ => item,
    };
    let flag: Flag = record.body()?;
    if flag.deleted || flag.is_remote_configuration != Some(true) {
        return Err(not_found());
    }
    let flag = revealed(&state.app.payload_keys, project, &flag);
    if has_encrypted(&flag) {
        return Err(ApiError::internal(&"a payload cannot be decrypted with the configured keys"));
    }
    Ok(json(flag.filters.get("payloads").and_then(|payloads| payloads.get("true")).unwrap_or(&Value::Null)))
}

/// The record of the flag that holds the key with this claim.
async fn fetch_key_holder(state: &Flags, project: ProjectId, claim: &Item) -> ApiResult<Item> {
    let record = state.app.store.records.get(&flag_record_key(project, record_id(claim.count))).await?;
    record.ok_or_else(not_found)
}

fn not_found() -> ApiError {
    ApiError::not_found().without_body()
}
