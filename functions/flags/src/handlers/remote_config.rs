//! `GET P/feature_flags/{key}/remote_config`: the payload of a remote configuration, by the flag's key or number.

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::Item;
use pennon_core::store::keys::{self, ProjectId};
use pennon_engine::flag::{Flag, is_possible_key};
use pennon_role_access::payloads::{has_sealed, revealed};
use serde_json::Value;

use crate::Flags;
use crate::store::{flag_at, number};

/// How the path names a flag.
enum Named<'a> {
    Id(u64),
    Key(&'a str),
    Nothing,
}

impl Named<'_> {
    fn of(segment: &str) -> Named<'_> {
        if segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return segment.parse().map_or(Named::Nothing, Named::Id);
        }
        if is_possible_key(segment) { Named::Key(segment) } else { Named::Nothing }
    }
}

/// The payload as it is stored, decrypted: SDKs decode a text once more. Null when the flag has none.
pub async fn remote_config(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let named = Named::of(call.param("key"));
    let wanted = |project| match &named {
        Named::Id(id) => vec![flag_at(project, *id)],
        Named::Key(key) => vec![keys::flag_key_live(project, key)],
        Named::Nothing => Vec::new(),
    };
    let (access, items) = state.app.project_with(&call, crate::READ, wanted).await?;
    let project = access.project.id;
    let found = items.into_iter().flatten().next().ok_or_else(missing)?;
    let record = match &named {
        Named::Key(_) => held_by(&state, project, &found).await?,
        _ => found,
    };
    let flag: Flag = record.body()?;
    if flag.deleted || flag.is_remote_configuration != Some(true) {
        return Err(missing());
    }
    let flag = revealed(&state.app.payload_keys, project, &flag);
    if has_sealed(&flag) {
        return Err(ApiError::internal(&"a payload cannot be decrypted with the keys at hand"));
    }
    Ok(json(flag.filters.get("payloads").and_then(|payloads| payloads.get("true")).unwrap_or(&Value::Null)))
}

/// The record of the flag whose claim on its key is `claim`.
async fn held_by(state: &Flags, project: ProjectId, claim: &Item) -> ApiResult<Item> {
    let record = state.app.store.records.get(&flag_at(project, number(claim.count))).await?;
    record.ok_or_else(missing)
}

fn missing() -> ApiError {
    ApiError::not_found().without_body()
}
