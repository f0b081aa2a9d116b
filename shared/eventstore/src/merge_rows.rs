//! Merges of persons that captured events ask for, as rows.
//!
//! Must stay true: by `$identify` and `$create_alias` a person joins at most one other, and only while it has not been
//! identified itself: a device that two people use does not make them one. `$merge_dangerously` always joins. Repeating
//! a merge changes nothing.

use std::collections::HashSet;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, Item, Query, StoreError, Write};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Event;
use crate::keys;
use crate::person::{Link, Merge, merge_of};

#[derive(Debug, Serialize, Deserialize)]
struct MergeRow {
    from: Uuid,
    to: Uuid,
    at: Micros,
}

impl EventStore {
    /// Writes the merges that `events` ask for, in their order.
    pub(crate) async fn merge_persons(
        &self,
        project: ProjectId,
        events: &[Event],
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let mut done = HashSet::new();
        for merge in events.iter().filter_map(|event| merge_of(project, event)) {
            if done.insert(merge) {
                self.write_merge(project, merge, now).await?;
            }
        }
        Ok(())
    }

    async fn write_merge(
        &self,
        project: ProjectId,
        merge: Merge,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Link { from, to } = merge.link;
        let body = MergeRow { from, to, at: now };
        let identified = Write::Put(Item::empty(keys::identified(project, to)), Guard::None);
        let writes = if merge.forced {
            vec![
                Write::Put(Item::new(keys::forced_merge(project, from, to), &body)?, Guard::None),
                identified,
            ]
        } else {
            vec![
                Write::Put(Item::new(keys::merge(project, from), &body)?, Guard::Absent),
                Write::Check(keys::identified(project, from), Guard::Absent),
                identified,
            ]
        };
        match self.inner.store.records.transact(writes).await {
            // Joined already, to this person or another, or somebody of its own: it stays so.
            Ok(()) | Err(StoreError::Condition { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// All merges of a project, in the order of their rows.
    pub(crate) async fn merges(&self, project: ProjectId) -> Result<Vec<Link>, EventStoreError> {
        let query = Query::partition(keys::override_pk(project)).prefix(keys::MERGE);
        let items = self.inner.store.records.query(query).await?;
        let rows = items.iter().map(|item| item.body::<MergeRow>()).collect::<Result<Vec<_>, _>>()?;
        Ok(rows.into_iter().map(|row| Link { from: row.from, to: row.to }).collect())
    }
}
