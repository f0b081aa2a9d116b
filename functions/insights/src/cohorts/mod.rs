//! The endpoints of cohorts: named sets of persons, defined by rules (dynamic) or by a list (static).
//!
//! Must stay true: stored rules can be calculated: the engine validates them with everything that they refer to, and the write
//! is conditional on the versions of all of that; each write increments the version of the project, which invalidates flag
//! caches; a cohort that an active flag uses is not deleted, and gets no criteria on events.

pub(crate) mod csv;
mod feed_size;
mod flag_references;
pub(crate) mod input;
mod list;
mod list_cleanup;
mod member_change;
mod members;
mod record;
mod response;
mod store;
mod write;

pub use feed_size::require_feed_fits;
pub use list_cleanup::run_list_cleanup;
pub use record::CohortRecord;

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, created, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::retry::ConflictRetries;
use pennon_core::store::Item;
use serde_json::json as object;

use crate::resource::{self, list as lists};
use crate::{Insights, limits};
use input::CohortInput;
use list::CohortListFilter;
use member_change::MemberChange;

const READ: &str = "cohort:read";
const WRITE: &str = "cohort:write";

/// `GET P/cohorts/`: the newest first.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let filter = CohortListFilter::parse(&call)?;
    let page = lists::fetch_page::<CohortRecord>(
        &state,
        &call,
        READ,
        |rows| {
            filter.apply(rows);
            Ok(())
        },
        |left, right| (right.created_at, right.id).cmp(&(left.created_at, left.id)),
    );
    let page = Box::pin(page).await?;
    let results: Vec<String> =
        page.records.iter().map(|cohort| response::cohort_json(cohort).to_string()).collect();
    page.page.reply(&call, page.count, &results)
}

/// `GET P/cohorts/{id}/`: a deleted one too.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (_, item) = resource::get_record::<CohortRecord>(&state, &call, READ).await?;
    let (cohort, _) = resource::require_record::<CohortRecord>(item)?;
    Ok(json(response::cohort_json(&cohort)))
}

/// `POST P/cohorts/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let respond = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| try_create(state.clone(), call), respond).await
}

async fn try_create(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = CohortInput::parse(&call.fields()?, None)?;
    let mut members = MemberChange::parse(&state, &call, &access, &input).await?;
    let id = resource::reserve_id::<CohortRecord>(&state.app.store.records).await?;
    members.idempotency_write = idempotency_write(&call, id)?;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let now = access.write_time(call.now);
        let blank = CohortRecord::create(id, &input, access.caller.user(), now);
        let written = Box::pin(members.write_cohort(&state, &access, None, blank, now)).await?;
        if let Some(cohort) = written {
            return Ok(created(response::cohort_json(&cohort)));
        }
        retries.back_off().await?;
    }
}

/// `PATCH P/cohorts/{id}/`, and `PUT`: fields that are not sent are kept; members that are sent are added.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::get_record::<CohortRecord>(&state, &call, WRITE).await?;
    let (mut before, mut item) = resource::require_record::<CohortRecord>(item)?;
    let input = CohortInput::parse(&call.fields()?, Some(before.is_static))?;
    let members = MemberChange::parse(&state, &call, &access, &input).await?;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let after = before.apply(&input)?;
        let read = Some((&before, &item));
        let now = access.write_time(call.now);
        if let Some(cohort) = Box::pin(members.write_cohort(&state, &access, read, after, now)).await? {
            return Ok(json(response::cohort_json(&cohort)));
        }
        retries.back_off().await?;
        (before, item) = resource::require_record(state.app.store.records.get(&item.key).await?)?;
    }
}

/// `DELETE P/cohorts/{id}/`: 405; clients set `deleted` instead.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy::<CohortRecord>(&state, &call, WRITE).await
}

/// `PATCH P/cohorts/{id}/add_persons_to_static_cohort/`
pub async fn add_persons(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::get_record::<CohortRecord>(&state, &call, WRITE).await?;
    let (before, item) = resource::require_record::<CohortRecord>(item)?;
    before.require_static("Can only add users to static cohorts")?;
    let persons = input::person_ids(&call.fields()?)?;
    let persons = members::existing_persons(&state, access.project.id, &persons).await?;
    if persons.is_empty() {
        let detail = "No valid users to add to cohort";
        return Err(ApiError::invalid("invalid_input", detail, Some("person_ids")));
    }
    let members = MemberChange {
        added_persons: persons,
        activity: Some("persons_added_manually"),
        ..MemberChange::default()
    };
    change_members(&state, &call, &access, &members, (before, item)).await
}

/// `PATCH P/cohorts/{id}/remove_person_from_static_cohort/`
pub async fn remove_person(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::get_record::<CohortRecord>(&state, &call, WRITE).await?;
    let (before, item) = resource::require_record::<CohortRecord>(item)?;
    before.require_static("Can only remove users from static cohorts")?;
    let person = input::person_id(&call.fields()?)?;
    let persons = members::existing_persons(&state, access.project.id, &BTreeSet::from([person])).await?;
    let Some(person) = persons.first().copied() else {
        return Err(ApiError::missing("Person with this UUID does not exist in the cohort's team"));
    };
    let members = MemberChange {
        removed_person: Some(person),
        activity: Some("person_removed_manually"),
        ..MemberChange::default()
    };
    change_members(&state, &call, &access, &members, (before, item)).await
}

/// Changes the member list of a cohort, and no other field.
async fn change_members(
    state: &Insights,
    call: &Call,
    access: &Access,
    members: &MemberChange,
    (mut before, mut item): (CohortRecord, Item),
) -> ApiResult<Response> {
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let read = Some((&before, &item));
        let now = access.write_time(call.now);
        if Box::pin(members.write_cohort(state, access, read, before.clone(), now)).await?.is_some() {
            return Ok(json(object!({"success": true})));
        }
        retries.back_off().await?;
        (before, item) = resource::require_record(state.app.store.records.get(&item.key).await?)?;
    }
}
