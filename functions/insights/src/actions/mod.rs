//! The endpoints of actions: named sets of events.
//!
//! Must stay true: a stored action can be calculated: the engine validates it with everything that it refers to; names of
//! actions that are not deleted are unique, as far as they were set over HTTP.

pub(crate) mod input;
mod names;
mod record;
mod response;

pub use record::ActionRecord;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{TransitiveDefinitions, context};
use pennon_calculation::engine_error;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::retry::ConflictRetries;
use pennon_core::store::{Item, StoreError};

use crate::resource::{self, RecordWrite, list};
use crate::{Insights, limits};
use input::ActionInput;

const READ: &str = "action:read";
const WRITE: &str = "action:write";

/// `GET P/actions/`: the newest first.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let page = list::fetch_page::<ActionRecord>(
        &state,
        &call,
        READ,
        |_| Ok(()),
        |left, right| right.created_at.cmp(&left.created_at).then_with(|| left.name.cmp(&right.name)),
    );
    let page = Box::pin(page).await?;
    let to_json = |action: &ActionRecord| response::action_json(action, &page.access).to_string();
    let results: Vec<String> = page.records.iter().map(to_json).collect();
    page.page.reply(&call, page.count, &results)
}

/// `GET P/actions/{id}/`: a deleted one too.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::get_record::<ActionRecord>(&state, &call, READ).await?;
    let (action, _) = resource::require_record::<ActionRecord>(item)?;
    Ok(json(response::action_json(&action, &access)))
}

/// `POST P/actions/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let respond = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| try_create(state.clone(), call), respond).await
}

async fn try_create(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = ActionInput::parse(&call.fields()?)?;
    let now = access.write_time(call.now);
    let mut action = ActionRecord::create(0, &input, access.caller.user(), now);
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        if Box::pin(try_write(&state, &call, &access, now, None, &mut action)).await? {
            return Ok(created(response::action_json(&action, &access)));
        }
        retries.back_off().await?;
    }
}

/// `PATCH P/actions/{id}/`, and `PUT`: fields that are not sent are kept.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut current) = resource::get_record::<ActionRecord>(&state, &call, WRITE).await?;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let (before, item) = resource::require_record::<ActionRecord>(current)?;
        let input = ActionInput::parse(&call.fields()?)?;
        let now = access.write_time(call.now);
        let mut after = before.apply(&input, now);
        let read = Some((&before, &item));
        if Box::pin(try_write(&state, &call, &access, now, read, &mut after)).await? {
            return Ok(json(response::action_json(&after, &access)));
        }
        retries.back_off().await?;
        current = state.app.store.records.get(&item.key).await?;
    }
}

/// `DELETE P/actions/{id}/`: 405; clients set `deleted` instead.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy::<ActionRecord>(&state, &call, WRITE).await
}

/// Validates and writes the change to `after`. False if something that the validation depends on was changed concurrently. A
/// new action gets its id here.
async fn try_write(
    state: &Insights,
    call: &Call,
    access: &Access,
    now: DateTime<Utc>,
    before: Option<(&ActionRecord, &Item)>,
    after: &mut ActionRecord,
) -> ApiResult<bool> {
    let (records, project) = (&state.app.store.records, access.project.id);
    let old = before.map(|(before, _)| before);
    let needs_validation = old.is_none_or(|old| old.steps != after.steps || (old.deleted && !after.deleted));
    if needs_validation && !after.deleted {
        validate_definition(state, call, access, after).await?;
    }
    let names = names::claim_name(records, project, old, after).await?;
    if old.is_none() && after.id == 0 {
        after.id = resource::reserve_id::<ActionRecord>(records).await?;
    }
    let mut writes = RecordWrite { access, now, before, after, linked_changes: Vec::new() }.writes()?;
    writes.extend(names.writes(after.id));
    if old.is_none() {
        writes.extend(idempotency_write(call, after.id)?);
    }
    match records.transact(writes).await {
        Ok(()) => Ok(true),
        Err(StoreError::Condition { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// 400 for an action that the engine cannot calculate.
async fn validate_definition(
    state: &Insights,
    call: &Call,
    access: &Access,
    action: &ActionRecord,
) -> ApiResult<()> {
    let definition = action.definition();
    let referenced = definition.direct_references();
    let reached =
        TransitiveDefinitions::fetch(&state.app.store.records, access.project.id, &referenced).await?;
    let mut definitions = reached.definitions;
    definitions.actions.insert(action.id, definition.clone());
    let (project, now) = (context(&access.project, definitions)?, call.now);
    // Off the runtime's threads: compiling many patterns takes a while.
    let validated = tokio::task::spawn_blocking(move || definition.check(&project, now)).await;
    validated.map_err(|error| ApiError::internal(&error))?.map_err(engine_error)
}
