//! Backfill of summary rows, for records that an older release wrote without them.
//!
//! Must stay true: a row is written on the condition that its record is unchanged; the marker that all rows exist is written
//! last.

use std::collections::BTreeMap;

use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, PageStart, PartitionQuery, StoreError, Table, Write, WriteCondition};

use super::{ListedResource, claim_names, row_of};

/// Records of one transaction; each may have a row for its unique name too.
const BATCH: usize = 30;
/// Most attempts after version conflicts.
const ATTEMPTS_ON_CONFLICT: usize = 10;

/// Writes the rows of all records of the kind, then the marker.
pub(super) async fn backfill_rows<R: ListedResource>(
    records: &Table,
    project: ProjectId,
) -> Result<(), StoreError> {
    let all = PartitionQuery::partition(keys::records_pk(project, R::KIND));
    let mut start: Option<PageStart> = None;
    loop {
        let page = records.page(&all, start).await?;
        for items in page.items.chunks(BATCH) {
            write_batch::<R>(records, project, items.to_vec()).await?;
        }
        start = page.next;
        if start.is_none() {
            break;
        }
    }
    records.put(Item::empty(keys::summary_rows_complete_marker(project, R::ROWS)), WriteCondition::None).await
}

async fn write_batch<R: ListedResource>(
    records: &Table,
    project: ProjectId,
    mut items: Vec<Item>,
) -> Result<(), StoreError> {
    for _ in 0..ATTEMPTS_ON_CONFLICT {
        let (mut writes, mut names) = (Vec::new(), BTreeMap::new());
        for item in &items {
            let record: R = item.body()?;
            writes.push(row_of(project, &record)?);
            writes.push(Write::Check(item.key.clone(), WriteCondition::Version(item.version)));
            if !record.is_deleted() {
                names.extend(record.unique_names(project).into_iter().map(|name| (name, record.id())));
            }
        }
        writes.extend(claim_names(names));
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error),
        }
        let record_keys: Vec<_> = items.into_iter().map(|item| item.key).collect();
        items = records.batch_get(&record_keys).await?.into_iter().flatten().collect();
        if items.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Busy("records that change all the time".to_owned()))
}
