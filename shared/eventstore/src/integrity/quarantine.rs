//! Segments and blocks that are damaged: noted once, in the manifest, where every process sees it.
//!
//! A row `DAMAGED#{id}` beside the entry of the segment (or of the import) says which object is not what was written,
//! what is wrong with it and when that was found. Compaction leaves such a segment alone. Questions go on: what they
//! read has been compared byte by byte, and the one that needs what is damaged is refused. Must stay true: a row is made
//! only while the manifest lists the object, so that a reader that was too slow for it marks nothing; the first finding
//! stays. A block has such a row too, but nothing depends on it: each reader compares the block itself, so that one that
//! was put back counts at once.

use std::collections::BTreeMap;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, Item, Query, Store, StoreError, Write};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::EventStore;
use crate::error::EventStoreError;
use crate::integrity::checksums;
use crate::keys;
use crate::persons::imports::entry::RecordsEntry;

/// What was found out about a damaged segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The object that is not what was written.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
    /// When that was found, in microseconds since the epoch.
    pub at: Micros,
}

/// Where damage is noted.
#[derive(Debug, Clone)]
pub(crate) struct Quarantine {
    store: Store,
}

impl Quarantine {
    pub(crate) fn new(store: Store) -> Quarantine {
        Quarantine { store }
    }

    /// Notes that `object` is damaged, and gives the error for whoever wanted it: `error`, unless the segment has been
    /// replaced and its objects removed meanwhile.
    pub(crate) async fn note(&self, object: &str, what: &str, error: EventStoreError) -> EventStoreError {
        let Some((project, prefix, id)) = owner(object) else { return error };
        let now = chrono::Utc::now().timestamp_micros();
        let damage = Damage { object: object.to_owned(), what: what.to_owned(), at: now };
        let (id, listed) = match self.listed(project, prefix, id, object).await {
            Ok(Some(listed)) => listed,
            Ok(None) => return EventStoreError::Contended,
            Err(failed) => {
                tracing::error!(project, object, what, %failed, "damage could not be noted");
                return error;
            }
        };
        let noted = async {
            let row = Item::new(keys::entry(project, keys::DAMAGED, &id), &damage)?;
            self.store.records.transact(vec![Write::Put(row, Guard::Absent), listed]).await
        };
        match noted.await {
            Ok(()) => tracing::error!(project, segment = id, object, what, "a segment is damaged"),
            // Known already.
            Err(failed) if failed.is_condition(0) => {}
            Err(failed) if failed.is_condition(1) => return EventStoreError::Contended,
            Err(failed) => tracing::error!(project, object, what, %failed, "damage could not be noted"),
        }
        error
    }

    /// Notes that a block is damaged, once.
    async fn note_block(&self, project: ProjectId, block: &str, what: &str) {
        let at = chrono::Utc::now().timestamp_micros();
        let damage = Damage { object: format!("block {block}"), what: what.to_owned(), at };
        let noted = async {
            let row = Item::new(keys::entry(project, keys::DAMAGED, block), &damage)?;
            self.store.records.put(row, Guard::Absent).await
        };
        match noted.await {
            Ok(()) => tracing::error!(project, block, what, "a block of captured events is damaged"),
            // Known already.
            Err(failed) if failed.is_condition(0) => {}
            Err(failed) => tracing::error!(project, block, what, %failed, "damage could not be noted"),
        }
    }

    /// The id of the entry that `object` belongs to, and what has to hold for that to be so.
    async fn listed(
        &self,
        project: ProjectId,
        prefix: &str,
        id: &str,
        object: &str,
    ) -> Result<Option<(String, Write)>, StoreError> {
        if prefix != keys::PERSONS && prefix != keys::GROUPS {
            let key = keys::entry(project, prefix, id);
            return Ok(Some((id.to_owned(), Write::Check(key, Guard::Present))));
        }
        // Records that some were erased from lie under another name than their entry's.
        let records = Query::partition(keys::manifest_pk(project)).prefix(prefix);
        for item in self.store.records.query(records).await? {
            let entry: RecordsEntry = item.body()?;
            if checksums::split(&entry.object).0 == checksums::split(object).0 {
                return Ok(Some((entry.id, Write::Check(item.key, Guard::Version(item.version)))));
            }
        }
        Ok(None)
    }
}

impl EventStore {
    /// What is known of damaged segments, imports and blocks of a project, by id.
    pub async fn damage(&self, project: ProjectId) -> Result<BTreeMap<String, Damage>, EventStoreError> {
        let rows = Query::partition(keys::manifest_pk(project)).prefix(keys::DAMAGED);
        let items = self.inner.store.records.query(rows).await?;
        let known = items.iter().filter_map(|item| {
            let id = item.key.sk.strip_prefix(keys::DAMAGED)?.to_owned();
            Some(item.body().map(|damage| (id, damage)))
        });
        Ok(known.collect::<Result<_, _>>()?)
    }

    /// Notes what was found out about a block, where `error` is that it is damaged.
    pub(crate) async fn note_damaged_block(&self, error: &EventStoreError) {
        if let EventStoreError::DamagedBlock { project, block, what } = error {
            Quarantine::new(self.inner.store.clone()).note_block(*project, block, what).await;
        }
    }

    /// What was `read` of blocks. Where one was damaged, that is noted.
    pub(crate) async fn read_of_blocks<T>(
        &self,
        read: Result<T, EventStoreError>,
    ) -> Result<T, EventStoreError> {
        if let Err(error) = &read {
            self.note_damaged_block(error).await;
        }
        read
    }

    /// Forgets what is known of damage of a segment or a block.
    pub(crate) async fn lift(&self, project: ProjectId, id: &str) -> Result<(), EventStoreError> {
        let key = keys::entry(project, keys::DAMAGED, id);
        Ok(self.inner.store.records.sweep(vec![key]).await?)
    }
}

/// The project, and the prefix and id of the manifest's entry, that an object belongs to.
fn owner(object: &str) -> Option<(ProjectId, &'static str, &str)> {
    let (start, _) = checksums::split(object);
    if let Some(merges) = start.strip_prefix("merges/project=") {
        let (project, id) = merges.split_once('/')?;
        return (!id.contains('/')).then_some((project.parse().ok()?, keys::MERGES, id));
    }
    let mut folders = start.strip_prefix("project=")?.split('/');
    let project = folders.next()?.parse().ok()?;
    let prefix = match folders.next()? {
        "events" => keys::SEGMENT,
        "persons" => keys::PERSONS,
        "groups" => keys::GROUPS,
        "links" => keys::LINKS,
        _ => return None,
    };
    let id = folders.next()?;
    folders.next().is_none().then_some((project, prefix, id))
}

/// The id of the segment that an object belongs to; none where it is another's.
pub(crate) fn segment_of(object: &str) -> Option<&str> {
    owner(object).filter(|(_, prefix, _)| *prefix == keys::SEGMENT).map(|(_, _, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_tells_whose_it_is() {
        let known = [
            ("project=7/events/01-a.ids.parquet", (7, keys::SEGMENT, "01-a")),
            ("project=7/events/01-a.sums", (7, keys::SEGMENT, "01-a")),
            ("project=12/persons/01-b.parquet", (12, keys::PERSONS, "01-b")),
            ("project=12/groups/01-b.parquet", (12, keys::GROUPS, "01-b")),
            ("project=12/links/01-b.pairs", (12, keys::LINKS, "01-b")),
            ("merges/project=12/01-b.bin", (12, keys::MERGES, "01-b")),
        ];
        for (object, of) in known {
            assert_eq!(owner(object), Some(of), "{object}");
            assert_eq!(segment_of(object), Some(of.2).filter(|_| of.1 == keys::SEGMENT), "{object}");
        }
        for object in [
            "",
            "h",
            "project=x/events/a",
            "project=7/other/a",
            "project=7/events/a/b",
            "merges/project=7/a/b",
        ] {
            assert_eq!(owner(object), None, "{object}");
        }
    }
}
