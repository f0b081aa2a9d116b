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

/// A merge as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergeRow {
    from: Uuid,
    to: Uuid,
    /// When it arrived.
    at: Micros,
    /// When the event that asked for it happened; none where an earlier release wrote the row.
    #[serde(default)]
    time: Option<Micros>,
}

impl MergeRow {
    /// That one person is the other.
    pub(crate) fn link(&self) -> Link {
        Link { from: self.from, to: self.to }
    }

    /// When it happened.
    pub(crate) fn time(&self) -> Micros {
        self.time.unwrap_or(self.at)
    }
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
        for event in events {
            if let Some(merge) = merge_of(project, event)
                && done.insert(merge)
            {
                self.write_merge(project, merge, event.timestamp, now).await?;
            }
        }
        Ok(())
    }

    async fn write_merge(
        &self,
        project: ProjectId,
        merge: Merge,
        time: Micros,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Link { from, to } = merge.link;
        let body = MergeRow { from, to, at: now, time: Some(time) };
        let identified = Write::Put(Item::empty(keys::identified(project, to)), Guard::None);
        let writes = if merge.forced {
            vec![
                Write::Put(Item::new(keys::forced_merge(project, from, to), &body)?, Guard::Absent),
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
    pub(crate) async fn merges(&self, project: ProjectId) -> Result<Vec<MergeRow>, EventStoreError> {
        let query = Query::partition(keys::override_pk(project)).prefix(keys::MERGE);
        let items = self.inner.store.records.query(query).await?;
        items.iter().map(|item| Ok(item.body()?)).collect()
    }
}
