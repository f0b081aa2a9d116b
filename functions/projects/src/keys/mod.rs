//! The API keys of the current user: list, create, change and revoke them.
//!
//! Must stay true: only an unlimited key manages keys (scope `*`, all projects, all organizations), so that no key grants
//! itself or others more than it has; a new key does not outlive the key that created it; a secret is in exactly one
//! response, that of its creation.

mod input;
mod response;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::app::App;
use pennon_core::auth::{self, Caller, DeclaredKey, DeclaredKeys, KeyRecord, hash_key, mask_key};
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created, empty, json};
use pennon_core::ids;
use pennon_core::limits::api_keys::KEYS_PER_USER;
use pennon_core::model::Declared;
use pennon_core::retry::ConflictRetries;
use pennon_core::store::{StoreError, keys};

use input::KeyInput;

/// The scope that the management of keys requires.
const ALL_SCOPES: &str = "*";
/// Most attempts of a change that meets concurrent ones.
const ATTEMPTS_MAX: u32 = 10;

/// `GET /api/personal_api_keys/@current/`. Needs no scope.
pub async fn retrieve_current_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = app.caller(&call, |_| Ok(())).await?;
    Ok(json(response::current_key(caller.key())))
}

/// `GET /api/personal_api_keys/`: the keys of the caller's user, newest first.
pub async fn list_keys(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = require_management(&app, &call).await?;
    let list = DeclaredKeys::load(&app.store.records).await?;
    let mut own: Vec<(&str, &DeclaredKey)> = list.of_user(&caller.user().email).collect();
    own.sort_by(|(a_hash, a), (b_hash, b)| (b.created_at, b_hash).cmp(&(a.created_at, a_hash)));
    let stored: Vec<_> = own.iter().map(|(hash, _)| keys::api_key(hash)).collect();
    let items = app.store.records.batch_get(&stored).await?;
    let mut responses = Vec::new();
    for ((hash, _), item) in own.iter().zip(items) {
        // Without a record, the key was revoked since the list was read.
        if let Some(item) = item {
            responses.push(response::listed_key(hash, &KeyRecord::read(&item)?));
        }
    }
    Ok(json(responses))
}

/// `GET /api/personal_api_keys/{id}/`
pub async fn retrieve_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = require_management(&app, &call).await?;
    let list = DeclaredKeys::load(&app.store.records).await?;
    let (hash, _) = find_key(&list, &caller, &call)?;
    let item = app.store.records.get(&keys::api_key(hash)).await?.ok_or_else(ApiError::not_found)?;
    Ok(json(response::listed_key(hash, &KeyRecord::read(&item)?)))
}

/// `POST /api/personal_api_keys/`: creates a key; the response has its secret.
pub async fn create_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = require_management(&app, &call).await?;
    let input = KeyInput::parse(&call.fields()?, true)?;
    validate(&app, &caller, &input, call.now).await?;
    let secret = ids::new_api_key();
    let hash = hash_key(&secret);
    let mut retries = ConflictRetries::new(ATTEMPTS_MAX);
    loop {
        let list = DeclaredKeys::load(&app.store.records).await?;
        if list.of_user(&caller.user().email).count() >= KEYS_PER_USER {
            let detail =
                format!("A user has at most {KEYS_PER_USER} keys. Delete one that is not used any more.");
            return Err(ApiError::invalid("max_keys", detail, None));
        }
        let declared = input.new_declaration(&caller, mask_key(&secret), call.now);
        require_new_label(&list, &declared, &hash)?;
        let record = key_record(&caller, &declared);
        match list.insert(&app.store.records, &hash, &declared, &record).await {
            Ok(()) => {
                tracing::info!(user = record.user.id, key = record.mask, "an API key was created");
                return Ok(created(response::created_key(&hash, &record, &secret)));
            }
            Err(StoreError::Condition { .. }) => retries.back_off().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// `PATCH /api/personal_api_keys/{id}/`: changes label, scopes, limits or expiry.
pub async fn update_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = require_management(&app, &call).await?;
    let input = KeyInput::parse(&call.fields()?, false)?;
    validate(&app, &caller, &input, call.now).await?;
    let mut retries = ConflictRetries::new(ATTEMPTS_MAX);
    loop {
        let list = DeclaredKeys::load(&app.store.records).await?;
        let (hash, before) = find_key(&list, &caller, &call)?;
        let item = app.store.records.get(&keys::api_key(hash)).await?.ok_or_else(ApiError::not_found)?;
        let declared = Declared {
            spec: input.apply(before.spec.clone()),
            updated_at: never_before(call.now, before.updated_at),
            ..before.clone()
        };
        require_new_label(&list, &declared, hash)?;
        let record = key_record(&caller, &declared);
        match list.replace(&app.store.records, hash, &declared, (&item, &record)).await {
            Ok(()) => {
                tracing::info!(user = record.user.id, key = record.mask, "an API key was changed");
                let last_used_at = KeyRecord::read(&item)?.last_used_at;
                return Ok(json(response::listed_key(hash, &KeyRecord { last_used_at, ..record })));
            }
            Err(StoreError::Condition { .. }) => retries.back_off().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// `DELETE /api/personal_api_keys/{id}/`: revokes a key, possibly the caller's own.
pub async fn delete_key(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let caller = require_management(&app, &call).await?;
    let list = DeclaredKeys::load(&app.store.records).await?;
    let (hash, declared) = find_key(&list, &caller, &call)?;
    auth::delete_key(&app.store.records, hash).await?;
    tracing::info!(user = caller.user().id, key = declared.mask, "an API key was revoked");
    Ok(empty(StatusCode::NO_CONTENT))
}

/// The caller, if its key may manage keys; 403 otherwise.
async fn require_management(app: &App, call: &Call) -> ApiResult<Caller> {
    app.caller(call, |caller| {
        caller.require_unbound()?;
        if !caller.key().organizations.is_empty() {
            let detail = "API keys with scoped organizations cannot manage API keys.";
            return Err(ApiError::forbidden(detail));
        }
        caller.require(ALL_SCOPES)
    })
    .await
}

/// 400 if the key would exceed what the caller may access. The projects are read only if the key is limited to some.
async fn validate(app: &App, caller: &Caller, input: &KeyInput, now: DateTime<Utc>) -> ApiResult<()> {
    let reachable = match input.is_limited_to_projects() {
        true => app.reachable_projects(caller).await?,
        false => Vec::new(),
    };
    input.validate(caller, &reachable, now)
}

/// The key in the path: 404 if the caller's user has no such key.
fn find_key<'a>(
    list: &'a DeclaredKeys,
    caller: &Caller,
    call: &Call,
) -> ApiResult<(&'a str, &'a DeclaredKey)> {
    let email = &caller.user().email;
    list.of_user(email)
        .find(|(hash, _)| response::key_id(hash) == call.param("id"))
        .ok_or_else(ApiError::not_found)
}

/// Label and user identify a key in workspace files, so that no two keys of a user may have the same label.
fn require_new_label(list: &DeclaredKeys, declared: &DeclaredKey, hash: &str) -> ApiResult<()> {
    let spec = &declared.spec;
    let mut others = list.of_user(&spec.user).filter(|(other, _)| *other != hash);
    if others.any(|(_, other)| other.spec.label == spec.label) {
        return Err(ApiError::invalid("unique", "You already have a key with this label.", Some("label")));
    }
    Ok(())
}

/// The record of a key of the caller's user.
fn key_record(caller: &Caller, declared: &DeclaredKey) -> KeyRecord {
    let spec = &declared.spec;
    KeyRecord {
        label: spec.label.clone(),
        mask: declared.mask.clone(),
        scopes: spec.scopes.clone(),
        projects: spec.projects.clone(),
        organizations: spec.organizations.clone(),
        created_at: declared.created_at,
        expires_at: spec.expires_at,
        last_used_at: None,
        ..caller.key().clone()
    }
}
