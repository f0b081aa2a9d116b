//! Actions over HTTP: named sets of events.
//!
//! Must stay true: what is stored can be asked about: the engine that calculates judges it first, with everything that
//! it refers to; of live actions that were named over HTTP no two have one name.

mod input;
mod names;
mod record;
mod shown;

pub use record::Action;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_calculation::calculator::{Reached, context};
use pennon_calculation::refusal;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::store::{Item, StoreError, back_off_after_conflict};

use crate::resource::{self, Judged, list};
use crate::{Insights, limits};
use input::ActionInput;

const READ: &str = "action:read";
const WRITE: &str = "action:write";

/// `GET P/actions/`: the newest first.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let found = list::page_of::<Action>(
        &state,
        &call,
        READ,
        |_| Ok(()),
        |left, right| right.created_at.cmp(&left.created_at).then_with(|| left.name.cmp(&right.name)),
    );
    let found = Box::pin(found).await?;
    let shown = |action: &Action| shown::full(action, &found.access).to_string();
    let results: Vec<String> = found.records.iter().map(shown).collect();
    found.page.reply(&call, found.count, &results)
}

/// `GET P/actions/{id}/`: a deleted one too.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::find::<Action>(&state, &call, READ).await?;
    let (action, _) = resource::read::<Action>(item)?;
    Ok(json(shown::full(&action, &access)))
}

/// `POST P/actions/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let shown = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| make(state.clone(), call), shown).await
}

async fn make(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = ActionInput::parse(&call.fields()?)?;
    let now = access.write_time(call.now);
    let mut action = Action::create(0, &input, access.caller.user(), now);
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        if Box::pin(try_write(&state, &call, &access, now, None, &mut action)).await? {
            return Ok(created(shown::full(&action, &access)));
        }
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `PATCH P/actions/{id}/`, and `PUT`: a field that is not sent stays as it is.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut found) = resource::find::<Action>(&state, &call, WRITE).await?;
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let (before, item) = resource::read::<Action>(found)?;
        let input = ActionInput::parse(&call.fields()?)?;
        let now = access.write_time(call.now);
        let mut after = before.apply(&input, now);
        let was = Some((&before, &item));
        if Box::pin(try_write(&state, &call, &access, now, was, &mut after)).await? {
            return Ok(json(shown::full(&after, &access)));
        }
        found = state.app.store.records.get(&item.key).await?;
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `DELETE P/actions/{id}/`: not served; `deleted` of a change takes its place.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy(&state, &call, WRITE).await
}

/// Judges the change that leaves `after`, and writes it. False when something that the judgement rests on has changed
/// since it was read. A new action gets its number here.
async fn try_write(
    state: &Insights,
    call: &Call,
    access: &Access,
    now: DateTime<Utc>,
    before: Option<(&Action, &Item)>,
    after: &mut Action,
) -> ApiResult<bool> {
    let (records, project) = (&state.app.store.records, access.project.id);
    let old = before.map(|(before, _)| before);
    let changes = old.is_none_or(|old| old.steps != after.steps || (old.deleted && !after.deleted));
    if changes && !after.deleted {
        check(state, call, access, after).await?;
    }
    let names = names::judge(records, project, old, after).await?;
    if old.is_none() && after.id == 0 {
        after.id = resource::reserve::<Action>(records).await?;
    }
    let mut writes = Judged { access, now, before, after }.writes()?;
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

/// Refuses an action that no calculation could ask about.
async fn check(state: &Insights, call: &Call, access: &Access, action: &Action) -> ApiResult<()> {
    let definition = action.definition();
    let mentions = definition.mentions();
    let reached = Reached::from(&state.app.store.records, access.project.id, &mentions).await?;
    let mut definitions = reached.definitions;
    definitions.actions.insert(action.id, definition.clone());
    let (project, now) = (context(&access.project, definitions)?, call.now);
    // Compiling many patterns takes a while.
    let judged = tokio::task::spawn_blocking(move || definition.check(&project, now)).await;
    judged.map_err(|error| ApiError::internal(&error))?.map_err(refusal)
}
