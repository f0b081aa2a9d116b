//! Cohorts over HTTP: named sets of persons, by rules or by a list.
//!
//! Must stay true: what is stored can be asked about: the engine that calculates judges rules first, with everything that
//! they refer to, and the write asks that all of that is as it was; each change raises the version of its project, by
//! which flags know of it; a cohort that an active flag uses is not deleted, and does not come to look at events.

mod change;
mod csv;
mod input;
mod list;
mod members;
mod record;
mod room;
mod shown;
mod uses;

pub use members::sweep;
pub use record::CohortRecord;
pub use room::require_feed_room;

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::store::{Item, back_off_after_conflict};
use serde_json::json as object;

use crate::resource::{self, list as lists};
use crate::{Insights, limits};
use change::Wanted;
use input::CohortInput;
use list::Listed;

const READ: &str = "cohort:read";
const WRITE: &str = "cohort:write";

/// `GET P/cohorts/`: the newest first.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let wanted = Listed::of(&call)?;
    let found = lists::page_of::<CohortRecord>(
        &state,
        &call,
        READ,
        |rows| {
            wanted.filter(rows);
            Ok(())
        },
        |left, right| (right.created_at, right.id).cmp(&(left.created_at, left.id)),
    );
    let found = Box::pin(found).await?;
    let results: Vec<String> = found.records.iter().map(|cohort| shown::full(cohort).to_string()).collect();
    found.page.reply(&call, found.count, &results)
}

/// `GET P/cohorts/{id}/`: a deleted one too.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (_, item) = resource::find::<CohortRecord>(&state, &call, READ).await?;
    let (cohort, _) = resource::read::<CohortRecord>(item)?;
    Ok(json(shown::full(&cohort)))
}

/// `POST P/cohorts/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let shown = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| make(state.clone(), call), shown).await
}

async fn make(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = CohortInput::parse(&call.fields()?, None)?;
    let mut wanted = Wanted::read(&state, &call, &access, &input).await?;
    let id = resource::reserve::<CohortRecord>(&state.app.store.records).await?;
    wanted.noted = idempotency_write(&call, id)?;
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let now = access.write_time(call.now);
        let blank = CohortRecord::create(id, &input, access.caller.user(), now);
        let done = Box::pin(wanted.write(&state, &access, None, blank, now)).await?;
        if let Some(cohort) = done {
            return Ok(created(shown::full(&cohort)));
        }
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `PATCH P/cohorts/{id}/`, and `PUT`: a field that is not sent stays as it is; members that are sent are added.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::find::<CohortRecord>(&state, &call, WRITE).await?;
    let (mut before, mut item) = resource::read::<CohortRecord>(item)?;
    let input = CohortInput::parse(&call.fields()?, Some(&before))?;
    let wanted = Wanted::read(&state, &call, &access, &input).await?;
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let after = before.apply(&input)?;
        let was = Some((&before, &item));
        let now = access.write_time(call.now);
        if let Some(cohort) = Box::pin(wanted.write(&state, &access, was, after, now)).await? {
            return Ok(json(shown::full(&cohort)));
        }
        (before, item) = resource::read(state.app.store.records.get(&item.key).await?)?;
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `DELETE P/cohorts/{id}/`: not served; `deleted` of a change takes its place.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy(&state, &call, WRITE).await
}

/// `PATCH P/cohorts/{id}/add_persons_to_static_cohort/`
pub async fn add_persons(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::find::<CohortRecord>(&state, &call, WRITE).await?;
    let (before, item) = resource::read::<CohortRecord>(item)?;
    before.require_static("Can only add users to static cohorts")?;
    let persons = input::person_ids(&call.fields()?)?;
    let known = members::known(&state, access.project.id, &persons).await?;
    if known.is_empty() {
        let detail = "No valid users to add to cohort";
        return Err(ApiError::invalid("invalid_input", detail, Some("person_ids")));
    }
    let wanted = Wanted { persons: known, word: Some("persons_added_manually"), ..Wanted::default() };
    change_list(&state, &call, &access, &wanted, (before, item)).await
}

/// `PATCH P/cohorts/{id}/remove_person_from_static_cohort/`
pub async fn remove_person(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::find::<CohortRecord>(&state, &call, WRITE).await?;
    let (before, item) = resource::read::<CohortRecord>(item)?;
    before.require_static("Can only remove users from static cohorts")?;
    let person = input::person_id(&call.fields()?)?;
    let known = members::known(&state, access.project.id, &BTreeSet::from([person])).await?;
    let Some(person) = known.first().copied() else {
        return Err(ApiError::missing("Person with this UUID does not exist in the cohort's team"));
    };
    let wanted = Wanted { gone: Some(person), word: Some("person_removed_manually"), ..Wanted::default() };
    change_list(&state, &call, &access, &wanted, (before, item)).await
}

/// Changes the list of the cohort that was read, and nothing else of it.
async fn change_list(
    state: &Insights,
    call: &Call,
    access: &Access,
    wanted: &Wanted,
    (mut before, mut item): (CohortRecord, Item),
) -> ApiResult<Response> {
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let was = Some((&before, &item));
        let now = access.write_time(call.now);
        if Box::pin(wanted.write(state, access, was, before.clone(), now)).await?.is_some() {
            return Ok(json(object!({"success": true})));
        }
        (before, item) = resource::read(state.app.store.records.get(&item.key).await?)?;
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}
