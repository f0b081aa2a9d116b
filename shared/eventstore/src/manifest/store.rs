//! Reads and changes manifests.
//!
//! Must stay true: every addition raises the version of the project's `HEAD` row in the same transaction, with the
//! version that the writer read as precondition, so that of two concurrent writers only one succeeds. (A sweep only
//! removes what others replaced and does not raise it.)

use std::collections::BTreeMap;
use std::sync::Arc;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table, Write, WriteCondition};

use super::state::{
    ChangeOutcome, EntryKind, Manifest, ManifestChange, ManifestEntry, ManifestHead, is_consistent,
};
use super::{FormerObject, RecordsEntry, SegmentEntry, VersionMarks};
use crate::error::EventStoreError;
use crate::{formats, keys};

/// Read attempts while the manifest keeps changing.
const READ_ATTEMPTS: usize = 8;
/// Projects whose versions are read concurrently.
const VERSIONS_AT_ONCE: usize = 100;

/// The manifests of all projects.
#[derive(Debug)]
pub(crate) struct ManifestStore {
    records: Table,
    marks: Arc<VersionMarks>,
}

impl ManifestStore {
    pub(crate) fn new(records: Table, marks: Arc<VersionMarks>) -> ManifestStore {
        ManifestStore { records, marks }
    }

    /// Reads a consistent manifest of `project`.
    pub(crate) async fn load(&self, project: ProjectId) -> Result<Manifest, EventStoreError> {
        for _ in 0..READ_ATTEMPTS {
            let items = self.records.query(PartitionQuery::partition(keys::manifest_pk(project))).await?;
            formats::require(&items)?;
            if is_consistent(&items)? {
                return Manifest::of(&items);
            }
        }
        Err(StoreError::Busy(format!("the segments of project {project} change faster than they are read"))
            .into())
    }

    /// Reads only the entries of imported persons and of their merges.
    pub(crate) async fn load_persons(&self, project: ProjectId) -> Result<Manifest, EventStoreError> {
        let listed =
            |prefix| self.records.query(PartitionQuery::partition(keys::manifest_pk(project)).prefix(prefix));
        let (persons, links) = futures::try_join!(listed(keys::PERSONS), listed(keys::LINKS))?;
        let items = [persons, links].concat();
        formats::require(&items)?;
        Manifest::of(&items)
    }

    /// The manifest versions of `projects`, where they have one.
    pub(crate) async fn versions(
        &self,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, u64>, EventStoreError> {
        let mut versions = BTreeMap::new();
        for some in projects.chunks(VERSIONS_AT_ONCE) {
            let keys = some.iter().map(|project| keys::head(*project)).collect::<Vec<_>>();
            let items = self.records.batch_get(&keys).await?;
            let found = some.iter().zip(items).filter_map(|(project, item)| Some((*project, item?.version)));
            versions.extend(found);
        }
        Ok(versions)
    }

    /// Adds one entry on top of `manifest`. Returns false, and writes nothing, when another writer changed the
    /// manifest since.
    pub(crate) async fn add<T: ManifestEntry>(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        kind: EntryKind,
        entry: &T,
    ) -> Result<bool, EventStoreError> {
        let item = entry_row(project, kind, &entry.at_head(manifest.next_version()))?;
        let entries = vec![Write::Put(item, WriteCondition::Absent)];
        Ok(self.write_entries(project, manifest, entries, Vec::new()).await? == ChangeOutcome::Applied)
    }

    /// Applies the whole change in one transaction on top of `manifest`, or nothing.
    pub(crate) async fn apply(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        change: &ManifestChange<'_>,
    ) -> Result<ChangeOutcome, EventStoreError> {
        let version = manifest.next_version();
        let mut entries = Vec::new();
        for entry in change.segments {
            let item = entry_row(project, EntryKind::Segment, &entry.at_head(version))?;
            entries.push(Write::Put(item, WriteCondition::Absent));
        }
        for (kind, before, entry) in change.records {
            let item = entry_row(project, *kind, &entry.at_head(version))?;
            entries.push(Write::Put(item.with_version(before + 1), WriteCondition::Version(*before)));
        }
        if let Some(entry) = change.merges {
            let item = entry_row(project, EntryKind::FoldedMerges, &entry.at_head(version))?;
            entries.push(Write::Put(item, WriteCondition::Absent));
        }
        self.write_entries(project, manifest, entries, change.extra_writes.clone()).await
    }

    /// Writes `entries` with the next version of `HEAD` and `extra_writes`, in one transaction.
    async fn write_entries(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        entries: Vec<Write>,
        extra_writes: Vec<Write>,
    ) -> Result<ChangeOutcome, EventStoreError> {
        let head = ManifestHead { entries: entries.len(), format: formats::MANIFEST };
        let version = manifest.next_version();
        let head = Item::new(keys::head(project), &head)?.with_version(version);
        let guard = manifest.head.map_or(WriteCondition::Absent, WriteCondition::Version);
        let listed = 1 + entries.len();
        let writes = std::iter::once(Write::Put(head, guard)).chain(entries).chain(extra_writes).collect();
        match self.records.transact(writes).await {
            Ok(()) => {
                self.marks.advance(project, version).await;
                Ok(ChangeOutcome::Applied)
            }
            Err(error) if error.is_condition(0) => Ok(ChangeOutcome::VersionConflict),
            Err(StoreError::Condition { index }) if index >= listed => Ok(ChangeOutcome::PreconditionFailed),
            Err(error) => Err(error.into()),
        }
    }

    /// Rewrites the entry of a segment if it still has row version `version`. Returns false if it has not.
    pub(crate) async fn rewrite_segment(
        &self,
        project: ProjectId,
        version: u64,
        entry: &SegmentEntry,
    ) -> Result<bool, EventStoreError> {
        let item = entry_row(project, EntryKind::Segment, entry)?.with_version(version + 1);
        match self.records.put(item, WriteCondition::Version(version)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_condition(0) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that of the former objects of an import entry only `left` still exist.
    pub(crate) async fn keep_former_objects(
        &self,
        (version, key): (u64, Key),
        entry: &RecordsEntry,
        left: Vec<FormerObject>,
    ) -> Result<(), EventStoreError> {
        let item = Item::new(key, &RecordsEntry { before: left, ..entry.clone() })?.with_version(version + 1);
        match self.records.put(item, WriteCondition::Version(version)).await {
            Err(error) if !error.is_condition(0) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes an entry that is no longer used, and its damage marker.
    pub(crate) async fn remove(
        &self,
        project: ProjectId,
        kind: EntryKind,
        id: &str,
    ) -> Result<(), EventStoreError> {
        let rows = [kind.prefix(), keys::DAMAGED].map(|prefix| keys::entry(project, prefix, id));
        Ok(self.records.sweep(rows.to_vec()).await?)
    }
}

fn entry_row<T: ManifestEntry>(
    project: ProjectId,
    kind: EntryKind,
    entry: &T,
) -> Result<Item, EventStoreError> {
    Ok(Item::new(keys::entry(project, kind.prefix(), entry.id()), entry)?)
}
