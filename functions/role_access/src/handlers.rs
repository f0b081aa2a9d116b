//! The handlers: parse, read, judge, answer.

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
use pennon_core::store::keys::{self, Counter, Kind};
use pennon_engine::flag::calls::KnownCalls;
use pennon_engine::flag::fields::{self, Field};
use pennon_engine::flag::{CallTimes, Flag};
use serde_json::Value;

use crate::payloads;
use crate::refused;
use crate::store::{self, Outcome, RoleAccess};
use crate::viewer::Viewers;

const READ: &str = "feature_flag:read";
const WRITE: Scope = Scope::unlogged("feature_flag:write");

/// Most role accesses that are read from a partition before the key is known to open the project. Four such partitions
/// hold 10,000 with room to spare, and one of them is less than a page of the store.
const EARLY_ROWS_MAX: usize = 3000;

/// Bytes of the texts of one page, each of which has the whole flag. Packed ten times smaller, they would still not go
/// through a gateway.
const TEXTS_BYTES_MAX: usize = 48 * 1024 * 1024;

/// `GET P/feature_flags/{feature_flag_id}/role_access/`: of an unknown flag an empty page.
pub async fn list(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, all) = flag_and_accesses(&app, &call).await?;
    let page = Page::of(&call);
    let Some(flag) = flag else { return page.reply(&call, 0, &[]) };
    let wanted = page.slice(&all);
    let texts = show(&app, &access, &call, &flag, wanted).await?;
    if texts.len() < wanted.len() {
        return Err(page.refusal(&call, all.len(), &texts));
    }
    page.reply(&call, all.len(), &texts)
}

/// `POST P/feature_flags/{feature_flag_id}/role_access/`
pub async fn create(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let shown = |call| retrieve(State(app.clone()), call);
    create_idempotently(&app, call, |call| make(app.clone(), call), shown).await
}

async fn make(app: App, call: Call) -> ApiResult<Response> {
    let (access, flag) = flag_of(&app, &call, WRITE).await?;
    let flag = flag.ok_or_else(flag_not_found)?;
    require_right(&access, &flag)?;
    let body = call.fields()?;
    let named = Field::of(&body, "role_id").required(fields::uuid_key).map_err(refused)?;
    let key = keys::role(access.project.organization, named);
    let role = app
        .store
        .records
        .get(&key)
        .await?
        .ok_or_else(|| refused(fields::does_not_exist("role_id", named)))?;
    let role: Role = role.body()?;
    let id = app.store.records.increment(&keys::counter(Counter::RoleAccess), 1).await?;
    let record = RoleAccess { id: id.unsigned_abs(), role: role.id, added_at: call.now };
    match store::add(
        &app.store.records,
        access.project.id,
        id_of(&flag),
        &record,
        idempotency_write(&call, id)?,
    )
    .await?
    {
        Outcome::Done => {
            let shown = show(&app, &access, &call, &flag, &[record]).await?;
            let text = shown.into_iter().next().ok_or_else(ApiError::not_found)?;
            Ok(json_text(StatusCode::CREATED, text))
        }
        Outcome::Taken => {
            let detail = "The fields role, feature_flag must make a unique set.";
            Err(ApiError::invalid("unique", detail, None))
        }
        Outcome::Gone => Err(flag_not_found()),
    }
}

/// `GET P/feature_flags/{feature_flag_id}/role_access/{id}/`
pub async fn retrieve(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, record) = record_of(&app, &call, READ).await?;
    let (Some(flag), Some(record)) = (flag, record) else { return Err(ApiError::not_found()) };
    let shown = show(&app, &access, &call, &flag, &[record]).await?;
    Ok(json_text(StatusCode::OK, shown.into_iter().next().ok_or_else(ApiError::not_found)?))
}

/// `DELETE P/feature_flags/{feature_flag_id}/role_access/{id}/`
pub async fn destroy(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, flag, record) = record_of(&app, &call, WRITE).await?;
    let flag = flag.ok_or_else(flag_not_found)?;
    let record = record.ok_or_else(ApiError::not_found)?;
    require_right(&access, &flag)?;
    match store::remove(&app.store.records, access.project.id, id_of(&flag), &record).await? {
        Outcome::Done => Ok(empty(StatusCode::NO_CONTENT)),
        _ => Err(ApiError::not_found()),
    }
}

async fn flag_of(app: &App, call: &Call, scope: impl Into<Scope>) -> ApiResult<(Access, Option<Flag>)> {
    let id = call.id("feature_flag_id");
    let wanted = |project| id.map(|id| keys::record(project, Kind::Flag, id)).into_iter().collect();
    let (access, items) = app.project_with(call, scope, wanted).await?;
    Ok((access, read(items.into_iter().next().flatten())?))
}

/// The flag that the path names, and its role accesses.
///
/// Where the path names the project by its number, they are read beside the key and not after it, which saves a wait;
/// nothing of them is shown unless the key opens the project and the flag is there.
async fn flag_and_accesses(app: &App, call: &Call) -> ApiResult<(Access, Option<Flag>, Vec<RoleAccess>)> {
    let records = &app.store.records;
    let named = call.id("project_id").zip(call.id("feature_flag_id")).filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some((project, flag)) => store::first(records, project, flag, EARLY_ROWS_MAX).await.transpose(),
            None => None,
        }
    };
    let (found, early) = tokio::join!(flag_of(app, call, READ), early);
    let (access, flag) = found?;
    let Some(flag) = flag else { return Ok((access, None, Vec::new())) };
    let all = match early {
        Some(early) if named == Some((access.project.id, id_of(&flag))) => early?,
        _ => store::list(records, access.project.id, id_of(&flag)).await?,
    };
    Ok((access, Some(flag), all))
}

/// The flag and the role access that the path names, in one round trip.
async fn record_of(
    app: &App,
    call: &Call,
    scope: impl Into<Scope>,
) -> ApiResult<(Access, Option<Flag>, Option<RoleAccess>)> {
    let ids = call.id("feature_flag_id").zip(call.id("id"));
    let wanted = |project| match ids {
        Some((flag, id)) => {
            vec![keys::record(project, Kind::Flag, flag), keys::role_access(project, flag, id)]
        }
        None => call
            .id("feature_flag_id")
            .map(|flag| keys::record(project, Kind::Flag, flag))
            .into_iter()
            .collect(),
    };
    let (access, items) = app.project_with(call, scope, wanted).await?;
    let mut items = items.into_iter();
    let flag = read(items.next().flatten())?;
    Ok((access, flag, read(items.next().flatten())?))
}

fn read<T: serde::de::DeserializeOwned>(item: Option<Item>) -> ApiResult<Option<T>> {
    Ok(item.map(|item| item.body()).transpose()?)
}

/// The records as answers show them, each with its flag and its role, as JSON texts; of many that are long only the
/// first, up to [`TEXTS_BYTES_MAX`].
async fn show(
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
    let wanted: Vec<_> = records.iter().map(|record| keys::role(organization, record.role)).collect();
    let shown = [flag];
    let row = keys::flag_calls(access.project.id);
    let (viewers, roles, calls) = tokio::try_join!(
        Viewers::load(app, access, &shown),
        async { Ok::<_, ApiError>(app.store.records.batch_get(&wanted).await?) },
        async { Ok::<_, ApiError>(app.store.records.get(&row).await?) },
    )?;
    // Without the events that wait for compaction: this function reads no events.
    let known = KnownCalls { stored: read(calls)?.unwrap_or_default(), ..KnownCalls::default() };
    let calls = CallTimes::new(Arc::new(known), call.now);
    let flag = payloads::shown(&app.payload_keys, access.project.id, flag);
    let flag = viewers.text(&flag, call.now, &calls);
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for (record, role) in records.iter().zip(roles) {
        let role = read::<Role>(role)?.map_or(Value::Null, |role| role.to_answer());
        let (id, added_at) = (record.id, timestamp(record.added_at));
        let text = format!(
            r#"{{"id":{id},"feature_flag":{flag},"role":{role},"added_at":"{added_at}","updated_at":"{added_at}"}}"#
        );
        bytes += text.len();
        if bytes > TEXTS_BYTES_MAX && !texts.is_empty() {
            break;
        }
        texts.push(text);
    }
    Ok(texts)
}

fn require_right(access: &Access, flag: &Flag) -> ApiResult<()> {
    if Viewers::of(access).can_change_role_access(flag) {
        return Ok(());
    }
    Err(ApiError::forbidden("You can't edit roles for this feature flag."))
}

fn flag_not_found() -> ApiError {
    ApiError::missing("Feature flag not found.")
}

fn id_of(flag: &Flag) -> u64 {
    flag.id.unsigned_abs()
}
