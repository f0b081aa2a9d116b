//! The member list of a static cohort.
//!
//! Must stay true: a change of a list is atomic: a long list is written as a new generation beside the old one, and the record
//! refers to it in the transaction of the change; a cleanup task for the new parts is scheduled before they are written, so
//! that orphaned parts are deleted. The number of members counts persons, who may be listed by several of their ids.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

use chrono::{DateTime, Duration, Utc};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Write, WriteCondition};
use pennon_eventstore::cohort_lists::{CohortList, INLINE_IDS_MAX, MEMBERS_MAX, PartitionedList};
use pennon_eventstore::{CanonicalPersons, derive_person_id};
use pennon_filters::CancellationToken;
use uuid::Uuid;

use super::list_cleanup::{ListCleanup, cleanup_task};
use super::member_change::MemberChange;
use super::record::CohortRecord;
use crate::Insights;

/// Delay of the cleanup of parts whose change was not committed.
const UNCOMMITTED_CLEANUP_DELAY: Duration = Duration::hours(1);

/// The canonical ids of those of `persons` that exist, merges applied.
pub async fn existing_persons(
    state: &Insights,
    project: ProjectId,
    persons: &BTreeSet<Uuid>,
) -> ApiResult<Vec<Uuid>> {
    let events = state.calculator.events();
    let finals = events.canonical_persons(project).await?;
    let persons: BTreeSet<Uuid> = persons.iter().map(|id| finals.of(*id)).collect();
    let persons: Vec<Uuid> = persons.into_iter().collect();
    let found = events.persons(project, &persons).await?;
    Ok(found.into_iter().filter(|person| !person.distinct_ids.is_empty()).map(|person| person.id).collect())
}

/// The persons whose property `email` is one of these.
pub async fn with_emails(
    state: &Insights,
    project: ProjectId,
    emails: HashSet<String>,
) -> ApiResult<Vec<Uuid>> {
    let people = state.calculator.events().people(project, &BTreeSet::from(["email".to_owned()])).await?;
    let cancellation = CancellationToken::default();
    let _cancel_on_drop = cancellation.cancel_on_drop();
    let found = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        people.each(|id, _, properties| {
            let email = properties.get("email").and_then(serde_json::Value::as_str);
            if email.is_some_and(|email| emails.contains(email)) {
                found.push(id);
            }
            if cancellation.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    });
    found.await.map_err(|error| ApiError::internal(&error))
}

/// Applies a change to the list of `cohort`, and counts its members. Returns the further writes of the change.
pub async fn apply_change(
    state: &Insights,
    project: ProjectId,
    cohort: &mut CohortRecord,
    change: &MemberChange,
    now: DateTime<Utc>,
) -> ApiResult<Vec<Write>> {
    let finals = state.calculator.events().canonical_persons(project).await?;
    match change.removed_person {
        Some(person) if cohort.members.is_none() => {
            remove_person(project, cohort, &finals, person)?;
            count_persons(project, cohort, &finals, now);
            Ok(Vec::new())
        }
        None if cohort.members.is_none() && fits_in_record(cohort, change) => {
            add_members(cohort, change);
            count_persons(project, cohort, &finals, now);
            Ok(Vec::new())
        }
        _ => Box::pin(rewrite_list(state, project, cohort, change, &finals, now)).await,
    }
}

/// Whether the list with the added members is short enough for the record.
fn fits_in_record(cohort: &CohortRecord, change: &MemberChange) -> bool {
    let length = cohort.distinct_ids.len() + cohort.person_ids.len();
    length + change.added_distinct_ids.len() + change.added_persons.len() <= INLINE_IDS_MAX
}

fn add_members(cohort: &mut CohortRecord, change: &MemberChange) {
    let mut known: HashSet<String> = cohort.distinct_ids.iter().cloned().collect();
    for id in &change.added_distinct_ids {
        if known.insert(id.clone()) {
            cohort.distinct_ids.push(id.clone());
        }
    }
    for id in &change.added_persons {
        if !cohort.person_ids.contains(id) {
            cohort.person_ids.push(*id);
        }
    }
}

fn remove_person(
    project: ProjectId,
    cohort: &mut CohortRecord,
    finals: &CanonicalPersons,
    person: Uuid,
) -> ApiResult<()> {
    let length = cohort.distinct_ids.len() + cohort.person_ids.len();
    cohort.distinct_ids.retain(|id| finals.of(derive_person_id(project, id)) != person);
    cohort.person_ids.retain(|id| finals.of(*id) != person);
    if cohort.distinct_ids.len() + cohort.person_ids.len() < length { Ok(()) } else { Err(not_a_member()) }
}

fn not_a_member() -> ApiError {
    ApiError::missing("Person is not part of the cohort")
}

/// Counts the persons of a list in the record.
fn count_persons(
    project: ProjectId,
    cohort: &mut CohortRecord,
    finals: &CanonicalPersons,
    now: DateTime<Utc>,
) {
    let listed = cohort
        .distinct_ids
        .iter()
        .map(|id| derive_person_id(project, id))
        .chain(cohort.person_ids.iter().copied());
    let persons: HashSet<Uuid> = listed.map(|id| finals.of(id)).collect();
    set_count(cohort, persons.len(), now);
}

fn set_count(cohort: &mut CohortRecord, persons: usize, now: DateTime<Utc>) {
    cohort.count = Some(persons as u64);
    cohort.last_calculation = Some(now);
    cohort.errors_calculating = 0;
}

/// Writes a long list as a new generation.
async fn rewrite_list(
    state: &Insights,
    project: ProjectId,
    cohort: &mut CohortRecord,
    change: &MemberChange,
    finals: &CanonicalPersons,
    now: DateTime<Utc>,
) -> ApiResult<Vec<Write>> {
    let records = &state.app.store.records;
    let cohort_list: CohortList = cohort.cohort_list(project);
    let mut members: BTreeSet<Uuid> =
        cohort_list.members(records, project, cohort.id).await?.into_iter().collect();
    match change.removed_person {
        Some(person) => {
            let length = members.len();
            members.retain(|member| finals.of(*member) != person);
            if members.len() == length {
                return Err(not_a_member());
            }
        }
        None => {
            members.extend(change.added_distinct_ids.iter().map(|id| derive_person_id(project, id)));
            members.extend(&change.added_persons);
        }
    }
    if members.len() > MEMBERS_MAX {
        let detail =
            format!("The list would have {} members; at most {MEMBERS_MAX} are kept.", members.len());
        return Err(ApiError::invalid("invalid_input", detail, None));
    }
    let packed = PartitionedList::of(members.len(), new_generation());
    // Scheduled before the parts are written, so that they are deleted wherever this process crashes.
    let cleanup = cleanup_task(project, cohort.id, packed, now + UNCOMMITTED_CLEANUP_DELAY)?;
    let cancel_cleanup = Write::Delete(cleanup.key.clone(), WriteCondition::None);
    records.put(cleanup, WriteCondition::None).await?;
    CohortList::store_parts(records, project, cohort.id, packed, &members).await?;
    let persons: HashSet<Uuid> = members.iter().map(|member| finals.of(*member)).collect();
    set_count(cohort, persons.len(), now);
    let mut writes = vec![cancel_cleanup];
    if let Some(old) = cohort.members.replace(packed) {
        writes.push(ListCleanup::schedule_replaced(project, cohort.id, old, now)?);
    }
    (cohort.distinct_ids, cohort.person_ids) = (Vec::new(), Vec::new());
    Ok(writes)
}

/// A generation that no other list of the cohort has; never 0, that of the first.
fn new_generation() -> u64 {
    let (_, low) = ids::new_uuid().as_u64_pair();
    (low >> 2).max(1)
}
