//! The cleanup of the parts of long member lists that no cohort refers to any more.
//!
//! Must stay true: parts that the record refers to are never deleted.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError, Table, Write, WriteCondition};
use pennon_eventstore::cohort_lists::PartitionedList;
use serde::{Deserialize, Serialize};

use super::record::CohortRecord;
use crate::resource;

/// Delay of the cleanup of replaced parts, which requests may still be reading.
const REPLACED_CLEANUP_DELAY: Duration = Duration::minutes(10);

/// The scheduled cleanup of the parts of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListCleanup {
    members: PartitionedList,
}

impl ListCleanup {
    /// Schedules the cleanup of a replaced list.
    pub fn schedule_replaced(
        project: ProjectId,
        cohort: u64,
        members: PartitionedList,
        now: DateTime<Utc>,
    ) -> Result<Write, StoreError> {
        Ok(Write::Put(
            cleanup_task(project, cohort, members, now + REPLACED_CLEANUP_DELAY)?,
            WriteCondition::None,
        ))
    }
}

/// The cleanup of the parts of a list, at an instant.
pub fn cleanup_task(
    project: ProjectId,
    cohort: u64,
    members: PartitionedList,
    at: DateTime<Utc>,
) -> Result<Item, StoreError> {
    Item::new(keys::cohort_members_task(at, project, cohort, members.generation()), &ListCleanup { members })
}

/// Runs a cleanup task: deletes the parts of the list, unless the cohort refers to them, then the task.
pub async fn run_list_cleanup(
    records: &Table,
    project: ProjectId,
    cohort: u64,
    item: &Item,
) -> ApiResult<()> {
    let ListCleanup { members } = item.body()?;
    let stored = records.get(&resource::key::<CohortRecord>(project, cohort)).await?;
    let record = stored.as_ref().map(Item::body::<CohortRecord>).transpose()?;
    let current = record.and_then(|record| record.members).map(|current| current.generation());
    if current != Some(members.generation()) {
        records.sweep(members.keys(project, cohort)).await?;
    }
    Ok(records.transact(vec![Write::Delete(item.key.clone(), WriteCondition::None)]).await?)
}

/// Schedules the cleanup of the list of `before`, unless `after` refers to it.
pub fn cleanup_of_replaced(
    project: ProjectId,
    before: &CohortRecord,
    after: Option<&CohortRecord>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let current = after.and_then(|after| after.members);
    let replaced: BTreeMap<u64, PartitionedList> = before
        .members
        .filter(|had| Some(*had) != current)
        .map(|had| (had.generation(), had))
        .into_iter()
        .collect();
    replaced.into_values().map(|had| ListCleanup::schedule_replaced(project, before.id, had, now)).collect()
}
