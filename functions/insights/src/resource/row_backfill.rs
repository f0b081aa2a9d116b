//! Making the summary rows of records that have none: those of an installation from before there were any.
//!
//! Must stay true: a row is written only beside the record that it is of, as it was read; the mark that rows are whole
//! comes last.

use std::collections::BTreeMap;

use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, PageStart, Query, StoreError, Table, Write};

use super::declared::taken;
use super::{Resource, row_of};

/// Records whose rows are written at once; a record may have a name too, and all of them are one transaction.
const AT_ONCE: usize = 30;
/// How often a record is read again that somebody else changed.
const TRIES: usize = 10;

/// Writes the rows of all records of the kind, and then that they are whole.
pub(super) async fn complete<R: Resource>(records: &Table, project: ProjectId) -> Result<(), StoreError> {
    let all = Query::partition(keys::records_pk(project, R::KIND));
    let mut start: Option<PageStart> = None;
    loop {
        let page = records.page(&all, start).await?;
        for items in page.items.chunks(AT_ONCE) {
            write::<R>(records, project, items.to_vec()).await?;
        }
        start = page.next;
        if start.is_none() {
            break;
        }
    }
    records.put(Item::empty(keys::rows_are_whole(project, R::ROWS)), Guard::None).await
}

async fn write<R: Resource>(
    records: &Table,
    project: ProjectId,
    mut items: Vec<Item>,
) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let (mut writes, mut names) = (Vec::new(), BTreeMap::new());
        for item in &items {
            let record: R = item.body()?;
            writes.push(row_of(project, &record)?);
            writes.push(Write::Check(item.key.clone(), Guard::Version(item.version)));
            if !record.is_deleted() {
                names.extend(record.names(project).into_iter().map(|name| (name, record.id())));
            }
        }
        writes.extend(taken(names));
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error),
        }
        let wanted: Vec<_> = items.into_iter().map(|item| item.key).collect();
        items = records.batch_get(&wanted).await?.into_iter().flatten().collect();
        if items.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::Busy("records that change all the time".to_owned()))
}
