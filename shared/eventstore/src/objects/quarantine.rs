//! Quarantine: markers of damaged segments and blocks in the manifest, visible to every process.
//!
//! A row `DAMAGED#{id}` beside the entry of a segment or import stores the damaged object, the error and the
//! time it was detected. Compaction skips such a segment. Queries continue: everything they read is verified,
//! and only queries that need the damaged object fail. Must stay true: a marker is written only while the
//! manifest lists the object, so that a slow reader marks nothing; the first finding is kept. Markers of blocks
//! are informational only: each reader verifies the block itself, so a repaired one counts at once.
//! The public interface is [`Quarantine`].

use std::collections::BTreeMap;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, Write, WriteCondition};
use serde::{Deserialize, Serialize};

use crate::error::EventStoreError;
use crate::keys;
use crate::objects::checksums;

/// A damage marker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The damaged object.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
    /// When it was detected, in microseconds since the epoch.
    pub at: Micros,
}

/// The part of the manifest entry of an import that names its object.
#[derive(Deserialize)]
struct ListedImport {
    id: String,
    object: String,
}

/// Writes damage markers.
#[derive(Debug, Clone)]
pub(crate) struct Quarantine {
    records: Table,
}

impl Quarantine {
    pub(crate) fn new(records: Table) -> Quarantine {
        Quarantine { records }
    }

    /// Marks `object` as damaged and returns the error for the reader: `error`, unless the segment was replaced
    /// and its objects deleted meanwhile.
    pub(crate) async fn note(&self, object: &str, what: &str, error: EventStoreError) -> EventStoreError {
        let Some((project, prefix, id)) = owner(object) else { return error };
        let now = chrono::Utc::now().timestamp_micros();
        let damage = Damage { object: object.to_owned(), what: what.to_owned(), at: now };
        let (id, listed) = match self.listed(project, prefix, id, object).await {
            Ok(Some(listed)) => listed,
            Ok(None) => return EventStoreError::Contended,
            Err(failed) => {
                tracing::error!(project, object, what, %failed, "the damage could not be recorded");
                return error;
            }
        };
        let noted = async {
            let row = Item::new(keys::entry(project, keys::DAMAGED, &id), &damage)?;
            self.records.transact(vec![Write::Put(row, WriteCondition::Absent), listed]).await
        };
        match noted.await {
            Ok(()) => tracing::error!(project, segment = id, object, what, "a segment is damaged"),
            // Marked already.
            Err(failed) if failed.is_condition(0) => {}
            Err(failed) if failed.is_condition(1) => return EventStoreError::Contended,
            Err(failed) => {
                tracing::error!(project, object, what, %failed, "the damage could not be recorded")
            }
        }
        error
    }

    /// Marks a block as damaged, once.
    async fn note_block(&self, project: ProjectId, block: &str, what: &str) {
        let at = chrono::Utc::now().timestamp_micros();
        let damage = Damage { object: format!("block {block}"), what: what.to_owned(), at };
        let noted = async {
            let row = Item::new(keys::entry(project, keys::DAMAGED, block), &damage)?;
            self.records.put(row, WriteCondition::Absent).await
        };
        match noted.await {
            Ok(()) => tracing::error!(project, block, what, "a block of captured events is damaged"),
            // Marked already.
            Err(failed) if failed.is_condition(0) => {}
            Err(failed) => tracing::error!(project, block, what, %failed, "the damage could not be recorded"),
        }
    }

    /// The id of the entry of `object`, and the precondition under which the entry lists it.
    async fn listed(
        &self,
        project: ProjectId,
        prefix: &str,
        id: &str,
        object: &str,
    ) -> Result<Option<(String, Write)>, StoreError> {
        if prefix != keys::PERSONS && prefix != keys::GROUPS {
            let key = keys::entry(project, prefix, id);
            return Ok(Some((id.to_owned(), Write::Check(key, WriteCondition::Present))));
        }
        // An import that was rewritten by an erasure has an object with another id than its entry.
        let records = PartitionQuery::partition(keys::manifest_pk(project)).prefix(prefix);
        for item in self.records.query(records).await? {
            let entry: ListedImport = item.body()?;
            if checksums::split(&entry.object).0 == checksums::split(object).0 {
                return Ok(Some((entry.id, Write::Check(item.key, WriteCondition::Version(item.version)))));
            }
        }
        Ok(None)
    }

    /// The damage markers of a project, by id.
    pub(crate) async fn damage(
        &self,
        project: ProjectId,
    ) -> Result<BTreeMap<String, Damage>, EventStoreError> {
        let rows = PartitionQuery::partition(keys::manifest_pk(project)).prefix(keys::DAMAGED);
        let items = self.records.query(rows).await?;
        let known = items.iter().filter_map(|item| {
            let id = item.key.sk.strip_prefix(keys::DAMAGED)?.to_owned();
            Some(item.body().map(|damage| (id, damage)))
        });
        Ok(known.collect::<Result<_, _>>()?)
    }

    /// Marks a block if `error` reports it as damaged.
    pub(crate) async fn note_damaged_block(&self, error: &EventStoreError) {
        if let EventStoreError::DamagedBlock { project, block, what } = error {
            self.note_block(*project, block, what).await;
        }
    }

    /// Removes the marker of a segment or a block.
    pub(crate) async fn lift(&self, project: ProjectId, id: &str) -> Result<(), EventStoreError> {
        let key = keys::entry(project, keys::DAMAGED, id);
        Ok(self.records.sweep(vec![key]).await?)
    }
}

/// The project, and the prefix and id of the manifest entry of an object.
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

/// The segment id of an object; none if it belongs to no segment.
pub(crate) fn segment_of(object: &str) -> Option<&str> {
    owner(object).filter(|(_, prefix, _)| *prefix == keys::SEGMENT).map(|(_, _, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_object_has_its_owner() {
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
