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
        let without_rows = without_rows::<R>(records, project, page.items).await?;
        for items in without_rows.chunks(BATCH) {
            write_batch::<R>(records, project, items.to_vec()).await?;
        }
        start = page.next;
        if start.is_none() {
            break;
        }
    }
    let marker = Item::empty(keys::summary_rows_complete_marker(project, R::ROWS));
    // The rows are complete without it: a store that cannot be written does not fail the list that needs them.
    if let Err(error) = records.put(marker, WriteCondition::None).await {
        tracing::warn!(cause = %error, "the rows of all records are looked through again by the next list");
    }
    Ok(())
}

/// The records whose row is missing, or left of a deleted record. Most often there are none, and then nothing is written.
async fn without_rows<R: ListedResource>(
    records: &Table,
    project: ProjectId,
    items: Vec<Item>,
) -> Result<Vec<Item>, StoreError> {
    let parsed = items.iter().map(Item::body::<R>).collect::<Result<Vec<_>, _>>()?;
    let row_keys =
        parsed.iter().map(|record| keys::record(project, R::ROWS, record.id())).collect::<Vec<_>>();
    let rows = records.batch_get(&row_keys).await?;
    let with_record = items.into_iter().zip(parsed).zip(rows);
    let without_row = with_record.filter(|((_, record), row)| row.is_some() == record.is_deleted());
    Ok(without_row.map(|((item, _), _)| item).collect())
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
