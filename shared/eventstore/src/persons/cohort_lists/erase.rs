//! Taking somebody off the lists of static cohorts.
//!
//! Must stay true: of a cohort all or nothing changes, and its project's version is raised with it, so that nobody goes on
//! with a list that is remembered. Of a packed list only the parts that name somebody are written, each of which then says
//! how many it lost; so the record, which says how many there were, fits whichever parts a reader meets. What is kept of the
//! declaration of a cohort changes with it: else the next change of the cohort by a workspace file would bring back who is
//! not in that file any more.

use std::collections::BTreeSet;

use pennon_core::store::keys::{Kind, ProjectId, declared as declaration, project_version, records_pk};
use pennon_core::store::{Guard, Item, Key, Query, Raise, StoreError, Table, Write};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{ListPart, Packed, READS_AT_ONCE, Roster, members_of};
use crate::erasure::ErasureFilter;
use crate::error::EventStoreError;
use crate::objects::retry::RetryBudget;
use crate::persons::person_ids::derived;
use crate::segments::writer::range_of;

/// Most writes of a transaction, but the record's, the version's and the declaration's.
const PARTS_MAX: usize = 97;

/// What a cohort is without those who go.
struct Changed {
    record: Map<String, Value>,
    /// What a workspace file declared of it, where it names who goes.
    declared: Option<Item>,
    parts: Vec<Item>,
    /// Parts that are not read any more.
    dropped: Vec<Key>,
}

/// How many lists of the project name somebody whom `erase` takes.
pub(crate) async fn naming(
    records: &Table,
    project: ProjectId,
    erase: &ErasureFilter,
) -> Result<usize, EventStoreError> {
    let mut count = 0;
    for item in cohorts(records, project).await? {
        count += usize::from(changed(records, project, &item, erase).await?.is_some());
    }
    Ok(count)
}

/// Takes everybody whom `erase` takes off the lists of the project. Returns how many lists named somebody.
pub(crate) async fn erase(
    records: &Table,
    project: ProjectId,
    erase: &ErasureFilter,
    retries: &mut RetryBudget,
) -> Result<usize, EventStoreError> {
    let mut count = 0;
    for item in cohorts(records, project).await? {
        count += usize::from(erase_from(records, project, item, erase, retries).await?);
    }
    Ok(count)
}

async fn cohorts(records: &Table, project: ProjectId) -> Result<Vec<Item>, EventStoreError> {
    Ok(records.query(Query::partition(records_pk(project, Kind::Cohort))).await?)
}

async fn erase_from(
    records: &Table,
    project: ProjectId,
    mut item: Item,
    erase: &ErasureFilter,
    retries: &mut RetryBudget,
) -> Result<bool, EventStoreError> {
    loop {
        let Some(changed) = changed(records, project, &item, erase).await? else { return Ok(false) };
        if changed.parts.len() > PARTS_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "The person has more distinct ids on the list of one cohort than are taken off at once: {PARTS_MAX} \
                 parts of the list name it."
            )));
        }
        let version = item.version;
        let record = Item::new(item.key.clone(), &changed.record)?.with_version(version + 1);
        let mut writes = vec![
            Write::Put(record, Guard::Version(version)),
            Write::Raise(project_version(project), Raise::default()),
        ];
        if let Some(declared) = changed.declared {
            let guard = Guard::Version(declared.version);
            let next = declared.version + 1;
            writes.push(Write::Put(declared.with_version(next), guard));
        }
        writes.extend(changed.parts.into_iter().map(|part| Write::Put(part, Guard::None)));
        match records.transact(writes).await {
            Ok(()) => {
                records.sweep(changed.dropped).await?;
                return Ok(true);
            }
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Somebody else changed the cohort.
        retries.after_conflict().await?;
        match records.get(&item.key).await? {
            Some(now) => item = now,
            None => return Ok(false),
        }
    }
}

/// What the cohort is without those who go; none where it is no static one, or names none of them.
async fn changed(
    records: &Table,
    project: ProjectId,
    item: &Item,
    erase: &ErasureFilter,
) -> Result<Option<Changed>, EventStoreError> {
    let body: Value = item.body()?;
    if body["is_static"] != true || !erase.is_of_persons() {
        return Ok(None);
    }
    let packed = match Roster::of_record(project, &body) {
        Roster::ManifestEntry(_) => return without_listed(records, project, body, erase).await,
        Roster::Packed(packed) => packed,
    };
    let Value::Object(mut record) = body else { return Ok(None) };
    let cohort = record.get("id").and_then(Value::as_u64).unwrap_or(0);
    if erase.everything {
        record.remove("members");
        record.remove("person_ids");
        record.insert("distinct_ids".to_owned(), json!([]));
        reduce(&mut record, packed.count);
        let dropped = packed.keys(project, cohort);
        return Ok(Some(Changed { record, declared: None, parts: Vec::new(), dropped }));
    }
    let (parts, gone) = parts_without(records, project, (cohort, packed), erase).await?;
    reduce(&mut record, gone);
    Ok((gone > 0).then_some(Changed { record, declared: None, parts, dropped: Vec::new() }))
}

/// The same where the record lists distinct ids itself.
async fn without_listed(
    records: &Table,
    project: ProjectId,
    mut body: Value,
    erase: &ErasureFilter,
) -> Result<Option<Changed>, EventStoreError> {
    let gone = take_off(body.get_mut("distinct_ids"), project, erase)
        + take_off_persons(body.get_mut("person_ids"), erase);
    let id = body.get("id").and_then(Value::as_u64).unwrap_or(0);
    let mut declared = records.get(&declaration("COHORT", &format!("{project}/{id}"))).await?;
    if let Some(item) = &mut declared {
        let mut said: Value = item.body()?;
        let named = take_off(said.pointer_mut("/spec/distinct_ids"), project, erase);
        *item = Item::new(item.key.clone(), &said)?.with_version(item.version);
        declared = declared.filter(|_| named > 0);
    }
    let Value::Object(mut record) = body else { return Ok(None) };
    reduce(&mut record, gone);
    let changes = gone > 0 || declared.is_some();
    Ok(changes.then_some(Changed { record, declared, parts: Vec::new(), dropped: Vec::new() }))
}

/// Takes those who go off a list of distinct ids. Returns how many that were.
fn take_off(list: Option<&mut Value>, project: ProjectId, erase: &ErasureFilter) -> u64 {
    let Some(listed) = list.and_then(Value::as_array_mut) else { return 0 };
    let before = listed.len();
    listed.retain(|id| !id.as_str().is_some_and(|id| erase.takes(derived(project, id))));
    (before - listed.len()) as u64
}

/// The same of a list of persons.
fn take_off_persons(list: Option<&mut Value>, erase: &ErasureFilter) -> u64 {
    let Some(listed) = list.and_then(Value::as_array_mut) else { return 0 };
    let before = listed.len();
    listed.retain(|id| !id.as_str().and_then(|id| id.parse().ok()).is_some_and(|id: Uuid| erase.takes(id)));
    (before - listed.len()) as u64
}

/// The parts of a packed list that name somebody who goes, without them, and how many that were.
async fn parts_without(
    records: &Table,
    project: ProjectId,
    (cohort, packed): (u64, Packed),
    erase: &ErasureFilter,
) -> Result<(Vec<Item>, u64), EventStoreError> {
    let wanted = erase.persons.iter().map(|person| range_of(*person, packed.bits)).collect::<BTreeSet<u64>>();
    let wanted = wanted.into_iter().map(|part| packed.key(project, cohort, part));
    let wanted = wanted.collect::<Vec<_>>();
    let (mut parts, mut gone) = (Vec::new(), 0);
    for some in wanted.chunks(READS_AT_ONCE) {
        for item in records.batch_get(some).await?.into_iter().flatten() {
            let ListPart { erased, .. } = item.body()?;
            let (out, stay): (Vec<Uuid>, Vec<Uuid>) =
                members_of(&item)?.partition(|member| erase.takes(*member));
            if out.is_empty() {
                continue;
            }
            let members = stay.iter().map(|member| member.simple().to_string()).collect();
            let part = ListPart { members, erased: erased + out.len() as u64 };
            gone += out.len() as u64;
            parts.push(Item::new(item.key.clone(), &part)?.with_version(item.version + 1));
        }
    }
    Ok((parts, gone))
}

/// Lowers how many members the record shows, if it does.
fn reduce(record: &mut Map<String, Value>, by: u64) {
    if let Some(count) = record.get("count").and_then(Value::as_u64) {
        record.insert("count".to_owned(), json!(count.saturating_sub(by)));
    }
}
