//! Handlers of the role access endpoints.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::{Access, Scope};
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, empty, json_text};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::model::Role;
use pennon_core::store::Item;
use pennon_core::store::keys::{self, Counter, RecordKind};
use pennon_filters::body::fields::{self, BodyField};
use pennon_flag_rules::calls::FlagCalls;
use pennon_flag_rules::{CallTimes, Flag};
use serde_json::Value;

use crate::payloads;
use crate::permissions::FlagPermissions;
use crate::store::{self, RoleAccess, RoleAccessWriteOutcome};
use crate::validation_error;

const READ_SCOPE: &str = "feature_flag:read";
const WRITE_SCOPE: Scope = Scope::unlogged("feature_flag:write");

/// Most role accesses that are prefetched per partition, before authorization is known. The four partitions of a flag
/// hold 10,000 with a margin, and one of them is smaller than a page of the store.
const PREFETCH_ROWS_MAX: usize = 3000;

/// Bytes of one page before compression; each entry contains the whole flag. Even compressed ten times smaller, a
/// larger page would not pass a gateway.
const PAGE_BYTES_MAX: usize = 48 * 1024 * 1024;

/// `GET P/feature_flags/{feature_flag_id}/role_access/`: lists role accesses; an empty page for an unknown flag.
pub async fn list(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, all) = authorize_and_list(&app, &call).await?;
    let page = Page::of(&call);
    let Some(flag) = flag else { return page.reply(&call, 0, &[]) };
    let page_rows = page.slice(&all);
    let texts = render_all(&app, &access, &call, &flag, page_rows).await?;
    if texts.len() < page_rows.len() {
        return Err(page.refusal(&call, all.len(), &texts));
    }
    page.reply(&call, all.len(), &texts)
}

/// `POST P/feature_flags/{feature_flag_id}/role_access/`: gives a role access to the flag.
pub async fn create(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let retrieve_again = |call| retrieve(State(app.clone()), call);
    create_idempotently(&app, call, |call| create_role_access(app.clone(), call), retrieve_again).await
}

async fn create_role_access(app: App, call: Call) -> ApiResult<Response> {
    let (access, flag) = authorize_and_read_flag(&app, &call, WRITE_SCOPE).await?;
    let flag = flag.ok_or_else(flag_not_found)?;
    require_permission(&access, &flag)?;
    let body = call.fields()?;
    let role_id = BodyField::of(&body, "role_id").required(fields::uuid_key).map_err(validation_error)?;
    let key = keys::role(access.project.organization, role_id);
    let role = app
        .store
        .records
        .get(&key)
        .await?
        .ok_or_else(|| validation_error(fields::does_not_exist("role_id", role_id)))?;
    let role: Role = role.body()?;
    let id = app.store.records.increment(&keys::counter(Counter::RoleAccess), 1).await?;
    let record = RoleAccess { id: id.unsigned_abs(), role: role.id, added_at: call.now };
    match store::add(
        &app.store.records,
        access.project.id,
        flag_id(&flag),
        &record,
        idempotency_write(&call, id)?,
    )
    .await?
    {
        RoleAccessWriteOutcome::Written => {
            let shown = render_all(&app, &access, &call, &flag, &[record]).await?;
            let text = shown.into_iter().next().ok_or_else(ApiError::not_found)?;
            Ok(json_text(StatusCode::CREATED, text))
        }
        RoleAccessWriteOutcome::AlreadyExists => {
            let detail = "The fields role, feature_flag must make a unique set.";
            Err(ApiError::invalid("unique", detail, None))
        }
        RoleAccessWriteOutcome::NotFound => Err(flag_not_found()),
    }
}

/// `GET P/feature_flags/{feature_flag_id}/role_access/{id}/`: one role access.
pub async fn retrieve(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, record) = authorize_and_read_record(&app, &call, READ_SCOPE).await?;
    let (Some(flag), Some(record)) = (flag, record) else { return Err(ApiError::not_found()) };
    let shown = render_all(&app, &access, &call, &flag, &[record]).await?;
    Ok(json_text(StatusCode::OK, shown.into_iter().next().ok_or_else(ApiError::not_found)?))
}

/// `DELETE P/feature_flags/{feature_flag_id}/role_access/{id}/`: removes the access of a role.
pub async fn destroy(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, record) = authorize_and_read_record(&app, &call, WRITE_SCOPE).await?;
    let flag = flag.ok_or_else(flag_not_found)?;
    let record = record.ok_or_else(ApiError::not_found)?;
    require_permission(&access, &flag)?;
    match store::remove(&app.store.records, access.project.id, flag_id(&flag), &record).await? {
        RoleAccessWriteOutcome::Written => Ok(empty(StatusCode::NO_CONTENT)),
        _ => Err(ApiError::not_found()),
    }
}

async fn authorize_and_read_flag(
    app: &App,
    call: &Call,
    scope: impl Into<Scope>,
) -> ApiResult<(Access, Option<Flag>)> {
    let id = call.id("feature_flag_id");
    let keys_to_read =
        |project| id.map(|id| keys::record(project, RecordKind::Flag, id)).into_iter().collect();
    let (access, items) = app.authorize_project_with(call, scope, keys_to_read).await?;
    Ok((access, decode(items.into_iter().next().flatten())?))
}

/// Authorizes the request and reads the flag in the path with its role accesses.
///
/// When the path has the numeric project id, they are read in parallel with the API key, which saves a round trip; they
/// are not used unless the key has access to the project and the flag exists.
async fn authorize_and_list(app: &App, call: &Call) -> ApiResult<(Access, Option<Flag>, Vec<RoleAccess>)> {
    let records = &app.store.records;
    let path_ids =
        call.id("project_id").zip(call.id("feature_flag_id")).filter(|_| call.credential().is_some());
    let prefetched = async {
        match path_ids {
            Some((project, flag)) => {
                store::list_up_to(records, project, flag, PREFETCH_ROWS_MAX).await.transpose()
            }
            None => None,
        }
    };
    let (found, prefetched) = tokio::join!(authorize_and_read_flag(app, call, READ_SCOPE), prefetched);
    let (access, flag) = found?;
    let Some(flag) = flag else { return Ok((access, None, Vec::new())) };
    let all = match prefetched {
        Some(prefetched) if path_ids == Some((access.project.id, flag_id(&flag))) => prefetched?,
        _ => store::list(records, access.project.id, flag_id(&flag)).await?,
    };
    Ok((access, Some(flag), all))
}

/// Authorizes the request and reads the flag and the role access in the path, in one round trip.
async fn authorize_and_read_record(
    app: &App,
    call: &Call,
    scope: impl Into<Scope>,
) -> ApiResult<(Access, Option<Flag>, Option<RoleAccess>)> {
    let ids = call.id("feature_flag_id").zip(call.id("id"));
    let keys_to_read = |project| match ids {
        Some((flag, id)) => {
            vec![keys::record(project, RecordKind::Flag, flag), keys::role_access(project, flag, id)]
        }
        None => call
            .id("feature_flag_id")
            .map(|flag| keys::record(project, RecordKind::Flag, flag))
            .into_iter()
            .collect(),
    };
    let (access, items) = app.authorize_project_with(call, scope, keys_to_read).await?;
    let mut items = items.into_iter();
    let flag = decode(items.next().flatten())?;
    Ok((access, flag, decode(items.next().flatten())?))
}

fn decode<T: serde::de::DeserializeOwned>(item: Option<Item>) -> ApiResult<Option<T>> {
    Ok(item.map(|item| item.body()).transpose()?)
}

/// The role accesses as JSON texts, each with its flag and its role; truncated when they exceed [`PAGE_BYTES_MAX`].
async fn render_all(
    app: &App,
    access: &Access,
    call: &Call,
    flag: &Flag,
    records: &[RoleAccess],
) -> ApiResult<Vec<String>> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let organization = access.project.organization;
    let role_keys: Vec<_> = records.iter().map(|record| keys::role(organization, record.role)).collect();
    let shown = [flag];
    let calls_key = keys::flag_calls(access.project.id);
    let (permissions, roles, calls) = tokio::try_join!(
        FlagPermissions::load_with_cohort_names(app, access, &shown),
        async { Ok::<_, ApiError>(app.store.records.batch_get(&role_keys).await?) },
        async { Ok::<_, ApiError>(app.store.records.get(&calls_key).await?) },
    )?;
    // Without the events that are not compacted yet: this function does not read events.
    let known_calls = FlagCalls { stored: decode(calls)?.unwrap_or_default(), ..FlagCalls::default() };
    let calls = CallTimes::new(Arc::new(known_calls), call.now);
    let flag = payloads::masked(&app.payload_keys, access.project.id, flag);
    let flag = permissions.render(&flag, call.now, &calls);
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for (record, role) in records.iter().zip(roles) {
        let role = decode::<Role>(role)?.map_or(Value::Null, |role| role.to_response());
        let (id, added_at) = (record.id, timestamp(record.added_at));
        let text = format!(
            r#"{{"id":{id},"feature_flag":{flag},"role":{role},"added_at":"{added_at}","updated_at":"{added_at}"}}"#
        );
        bytes += text.len();
        if bytes > PAGE_BYTES_MAX && !texts.is_empty() {
            break;
        }
        texts.push(text);
    }
    Ok(texts)
}

fn require_permission(access: &Access, flag: &Flag) -> ApiResult<()> {
    if FlagPermissions::from_access(access).can_change_role_access(flag) {
        return Ok(());
    }
    Err(ApiError::forbidden("You can't edit roles for this feature flag."))
}

fn flag_not_found() -> ApiError {
    ApiError::missing("Feature flag not found.")
}

fn flag_id(flag: &Flag) -> u64 {
    flag.id.unsigned_abs()
}
