//! The list of a static cohort: who comes onto it, who goes, and how many persons it has.
//!
//! Must stay true: a change of a list is seen whole or not at all: a long one is written anew beside the old one, and the
//! record names it in the transaction of the change; what no record names is noted before it is written, and swept. The
//! number of members is that of persons, who may be on the list by several of their ids.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

use chrono::{DateTime, Duration, Utc};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, StoreError, Table, Write};
use pennon_engine::CancellationToken;
use pennon_eventstore::members::{LISTED_MAX, MEMBERS_MAX, Packed, Roster};
use pennon_eventstore::{FinalPersons, derived};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::CohortRecord;
use super::change::Wanted;
use crate::{Insights, resource};

/// From when parts are swept that were written for a change which never came to its end.
const UNFINISHED_AFTER: Duration = Duration::hours(1);
/// From when the parts of a list are swept whose place another one has taken: readers may still be at it.
const REPLACED_AFTER: Duration = Duration::minutes(10);

/// What is noted of a list that is, or will be, nobody's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    members: Packed,
}

impl Note {
    /// The note that the parts of a list go, from a while after `now` on.
    pub fn replaced(
        project: ProjectId,
        cohort: u64,
        members: Packed,
        now: DateTime<Utc>,
    ) -> Result<Write, StoreError> {
        Ok(Write::Put(note(project, cohort, members, now + REPLACED_AFTER)?, Guard::None))
    }
}

fn note(project: ProjectId, cohort: u64, members: Packed, at: DateTime<Utc>) -> Result<Item, StoreError> {
    Item::new(keys::cohort_members_task(at, project, cohort, members.generation()), &Note { members })
}

/// Sweeps the parts that the note in `item` is about, unless the cohort has come to name them, and the note.
pub async fn sweep(records: &Table, project: ProjectId, cohort: u64, item: &Item) -> ApiResult<()> {
    let Note { members } = item.body()?;
    let stored = records.get(&resource::key::<CohortRecord>(project, cohort)).await?;
    let record = stored.as_ref().map(Item::body::<CohortRecord>).transpose()?;
    let named = record.and_then(|record| record.members).map(|named| named.generation());
    if named != Some(members.generation()) {
        records.sweep(members.keys(project, cohort)).await?;
    }
    Ok(records.transact(vec![Write::Delete(item.key.clone(), Guard::None)]).await?)
}

/// Those of `persons` of whom anything is known, as who they are by now.
pub async fn known(state: &Insights, project: ProjectId, persons: &BTreeSet<Uuid>) -> ApiResult<Vec<Uuid>> {
    let events = state.calculator.events();
    let finals = events.final_persons(project).await?;
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

/// Changes the list of `cohort` as `wanted` says, and how many members it has. Gives the writes that belong to it.
pub async fn change(
    state: &Insights,
    project: ProjectId,
    cohort: &mut CohortRecord,
    wanted: &Wanted,
    now: DateTime<Utc>,
) -> ApiResult<Vec<Write>> {
    let finals = state.calculator.events().final_persons(project).await?;
    match wanted.gone {
        Some(person) if cohort.members.is_none() => {
            take_off(project, cohort, &finals, person)?;
            count(project, cohort, &finals, now);
            Ok(Vec::new())
        }
        None if cohort.members.is_none() && fits(cohort, wanted) => {
            put_on(cohort, wanted);
            count(project, cohort, &finals, now);
            Ok(Vec::new())
        }
        _ => Box::pin(rewrite(state, project, cohort, wanted, &finals, now)).await,
    }
}

/// Whether the list is short enough to be part of the record, with everybody who comes onto it.
fn fits(cohort: &CohortRecord, wanted: &Wanted) -> bool {
    let had = cohort.distinct_ids.len() + cohort.person_ids.len();
    had + wanted.distinct_ids.len() + wanted.persons.len() <= LISTED_MAX
}

fn put_on(cohort: &mut CohortRecord, wanted: &Wanted) {
    let mut known: HashSet<String> = cohort.distinct_ids.iter().cloned().collect();
    for id in &wanted.distinct_ids {
        if known.insert(id.clone()) {
            cohort.distinct_ids.push(id.clone());
        }
    }
    for id in &wanted.persons {
        if !cohort.person_ids.contains(id) {
            cohort.person_ids.push(*id);
        }
    }
}

fn take_off(
    project: ProjectId,
    cohort: &mut CohortRecord,
    finals: &FinalPersons,
    person: Uuid,
) -> ApiResult<()> {
    let had = cohort.distinct_ids.len() + cohort.person_ids.len();
    cohort.distinct_ids.retain(|id| finals.of(derived(project, id)) != person);
    cohort.person_ids.retain(|id| finals.of(*id) != person);
    if cohort.distinct_ids.len() + cohort.person_ids.len() < had { Ok(()) } else { Err(not_on_it()) }
}

fn not_on_it() -> ApiError {
    ApiError::missing("Person is not part of the cohort")
}

/// Counts the persons of a list that is part of the record.
fn count(project: ProjectId, cohort: &mut CohortRecord, finals: &FinalPersons, now: DateTime<Utc>) {
    let listed =
        cohort.distinct_ids.iter().map(|id| derived(project, id)).chain(cohort.person_ids.iter().copied());
    let persons: HashSet<Uuid> = listed.map(|id| finals.of(id)).collect();
    counted(cohort, persons.len(), now);
}

fn counted(cohort: &mut CohortRecord, persons: usize, now: DateTime<Utc>) {
    cohort.count = Some(persons as u64);
    cohort.last_calculation = Some(now);
    cohort.errors_calculating = 0;
}

/// Writes a long list anew.
async fn rewrite(
    state: &Insights,
    project: ProjectId,
    cohort: &mut CohortRecord,
    wanted: &Wanted,
    finals: &FinalPersons,
    now: DateTime<Utc>,
) -> ApiResult<Vec<Write>> {
    let records = &state.app.store.records;
    let roster: Roster = cohort.roster(project);
    let mut members: BTreeSet<Uuid> =
        roster.members(records, project, cohort.id).await?.into_iter().collect();
    match wanted.gone {
        Some(person) => {
            let had = members.len();
            members.retain(|member| finals.of(*member) != person);
            if members.len() == had {
                return Err(not_on_it());
            }
        }
        None => {
            members.extend(wanted.distinct_ids.iter().map(|id| derived(project, id)));
            members.extend(&wanted.persons);
        }
    }
    if members.len() > MEMBERS_MAX {
        let detail =
            format!("The list would have {} members; at most {MEMBERS_MAX} are kept.", members.len());
        return Err(ApiError::invalid("invalid_input", detail, None));
    }
    let packed = Packed::of(members.len(), new_generation());
    // Noted before it is written, so that nothing stays behind wherever this stops.
    let unfinished = note(project, cohort.id, packed, now + UNFINISHED_AFTER)?;
    let forget = Write::Delete(unfinished.key.clone(), Guard::None);
    records.put(unfinished, Guard::None).await?;
    Roster::store_parts(records, project, cohort.id, packed, &members).await?;
    let persons: HashSet<Uuid> = members.iter().map(|member| finals.of(*member)).collect();
    counted(cohort, persons.len(), now);
    let mut writes = vec![forget];
    if let Some(old) = cohort.members.replace(packed) {
        writes.push(Note::replaced(project, cohort.id, old, now)?);
    }
    (cohort.distinct_ids, cohort.person_ids) = (Vec::new(), Vec::new());
    Ok(writes)
}

/// A number that no other list of the cohort has, and never that of the first.
fn new_generation() -> u64 {
    let (_, low) = ids::new_uuid().as_u64_pair();
    (low >> 2).max(1)
}

/// The notes about lists of `before` that `after` does not name any more.
pub fn left(
    project: ProjectId,
    before: &CohortRecord,
    after: Option<&CohortRecord>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let named = after.and_then(|after| after.members);
    let gone: BTreeMap<u64, Packed> = before
        .members
        .filter(|had| Some(*had) != named)
        .map(|had| (had.generation(), had))
        .into_iter()
        .collect();
    gone.into_values().map(|had| Note::replaced(project, before.id, had, now)).collect()
}
