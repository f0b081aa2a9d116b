//! Removes erased persons from the lists of static cohorts.
//!
//! Must stay true: a cohort changes atomically, and the project version is raised with it, so that no cached
//! list survives. Of a partitioned list only the parts with erased members are rewritten, and each stores how
//! many it lost, so the record, which stores the total, is consistent with any mix of old and new parts. The
//! stored workspace declaration of a cohort changes too; otherwise the next apply of a workspace file would
//! restore the erased members.

use std::collections::BTreeSet;

use pennon_core::store::keys::{ProjectId, RecordKind, declared as declaration, project_version, records_pk};
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table, VersionBump, Write, WriteCondition};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{CohortList, ListPart, PartitionedList, READS_AT_ONCE, members_of};
use crate::error::EventStoreError;
use crate::objects::RetryBudget;
use crate::person_ids::derive_person_id;
use crate::persons::ErasureFilter;
use crate::segments::writer::range_of;

/// Most part writes of a transaction; the record, the version and the declaration come on top.
const PARTS_MAX: usize = 97;

/// A cohort without the erased members.
struct RewrittenList {
    record: Map<String, Value>,
    /// Its workspace declaration, if that names erased members.
    declared: Option<Item>,
    parts: Vec<Item>,
    /// Parts that are no longer used.
    dropped: Vec<Key>,
}

/// Counts the lists of the project that contain erased persons.
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

/// Removes erased persons from the lists of the project. Returns how many lists changed.
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
    Ok(records.query(PartitionQuery::partition(records_pk(project, RecordKind::Cohort))).await?)
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
            Write::Put(record, WriteCondition::Version(version)),
            Write::BumpVersion(project_version(project), VersionBump::default()),
        ];
        if let Some(declared) = changed.declared {
            let guard = WriteCondition::Version(declared.version);
            let next = declared.version + 1;
            writes.push(Write::Put(declared.with_version(next), guard));
        }
        writes.extend(changed.parts.into_iter().map(|part| Write::Put(part, WriteCondition::None)));
        match records.transact(writes).await {
            Ok(()) => {
                records.sweep(changed.dropped).await?;
                return Ok(true);
            }
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Version conflict: another writer changed the cohort.
        retries.after_conflict().await?;
        match records.get(&item.key).await? {
            Some(now) => item = now,
            None => return Ok(false),
        }
    }
}

/// The cohort without erased members; none if it is not static or has none of them.
async fn changed(
    records: &Table,
    project: ProjectId,
    item: &Item,
    erase: &ErasureFilter,
) -> Result<Option<RewrittenList>, EventStoreError> {
    let body: Value = item.body()?;
    if body["is_static"] != true || !erase.is_of_persons() {
        return Ok(None);
    }
    let packed = match CohortList::of_record(project, &body) {
        CohortList::Inline(_) => return without_listed(records, project, body, erase).await,
        CohortList::Partitioned(packed) => packed,
    };
    let Value::Object(mut record) = body else { return Ok(None) };
    let cohort = record.get("id").and_then(Value::as_u64).unwrap_or(0);
    if erase.everything {
        record.remove("members");
        record.remove("person_ids");
        record.insert("distinct_ids".to_owned(), json!([]));
        reduce(&mut record, packed.count);
        let dropped = packed.keys(project, cohort);
        return Ok(Some(RewrittenList { record, declared: None, parts: Vec::new(), dropped }));
    }
    let (parts, gone) = parts_without(records, project, (cohort, packed), erase).await?;
    reduce(&mut record, gone);
    Ok((gone > 0).then_some(RewrittenList { record, declared: None, parts, dropped: Vec::new() }))
}

/// For a list that is stored in the record.
async fn without_listed(
    records: &Table,
    project: ProjectId,
    mut body: Value,
    erase: &ErasureFilter,
) -> Result<Option<RewrittenList>, EventStoreError> {
    let gone = remove_distinct_ids(body.get_mut("distinct_ids"), project, erase)
        + remove_persons(body.get_mut("person_ids"), erase);
    let id = body.get("id").and_then(Value::as_u64).unwrap_or(0);
    let mut declared = records.get(&declaration("COHORT", &format!("{project}/{id}"))).await?;
    if let Some(item) = &mut declared {
        let mut body: Value = item.body()?;
        let named = remove_distinct_ids(body.pointer_mut("/spec/distinct_ids"), project, erase);
        *item = Item::new(item.key.clone(), &body)?.with_version(item.version);
        declared = declared.filter(|_| named > 0);
    }
    let Value::Object(mut record) = body else { return Ok(None) };
    reduce(&mut record, gone);
    let changes = gone > 0 || declared.is_some();
    Ok(changes.then_some(RewrittenList { record, declared, parts: Vec::new(), dropped: Vec::new() }))
}

/// Removes erased members from a list of distinct ids. Returns how many.
fn remove_distinct_ids(list: Option<&mut Value>, project: ProjectId, erase: &ErasureFilter) -> u64 {
    let Some(listed) = list.and_then(Value::as_array_mut) else { return 0 };
    let before = listed.len();
    listed.retain(|id| !id.as_str().is_some_and(|id| erase.takes(derive_person_id(project, id))));
    (before - listed.len()) as u64
}

/// Removes erased members from a list of person ids. Returns how many.
fn remove_persons(list: Option<&mut Value>, erase: &ErasureFilter) -> u64 {
    let Some(listed) = list.and_then(Value::as_array_mut) else { return 0 };
    let before = listed.len();
    listed.retain(|id| !id.as_str().and_then(|id| id.parse().ok()).is_some_and(|id: Uuid| erase.takes(id)));
    (before - listed.len()) as u64
}

/// Rewrites the parts of a partitioned list that contain erased members. Returns them and the number of removed
/// members.
async fn parts_without(
    records: &Table,
    project: ProjectId,
    (cohort, packed): (u64, PartitionedList),
    erase: &ErasureFilter,
) -> Result<(Vec<Item>, u64), EventStoreError> {
    let requested =
        erase.persons.iter().map(|person| range_of(*person, packed.bits)).collect::<BTreeSet<u64>>();
    let requested = requested.into_iter().map(|part| packed.key(project, cohort, part));
    let requested = requested.collect::<Vec<_>>();
    let (mut parts, mut gone) = (Vec::new(), 0);
    for some in requested.chunks(READS_AT_ONCE) {
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

/// Lowers the member count of the record, if it has one.
fn reduce(record: &mut Map<String, Value>, by: u64) {
    if let Some(count) = record.get("count").and_then(Value::as_u64) {
        record.insert("count".to_owned(), json!(count.saturating_sub(by)));
    }
}
