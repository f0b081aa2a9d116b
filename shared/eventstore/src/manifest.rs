//! Which segments, person objects and group objects a project has, and the one way to change that.
//!
//! Must stay true: whatever is added raises the project's `HEAD` in the same transaction, guarded by the version that the
//! writer built on, so that of two writers with the same base only one wins (a sweep, which takes away only what others
//! replaced, does not); what a listed segment replaces is ignored
//! by readers although its rows and objects are still there, until [`crate::EventStore::sweep`] removes them.

use std::collections::HashSet;

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, Item, Query, Store, Write};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::keys::{self, BlockId};
use crate::merges::fold::MergesEntry;
use crate::profile::file::FileEntry;

/// Most event names that a segment's entry lists.
const EVENT_NAMES_MAX: usize = 500;

/// The entry of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentEntry {
    pub id: String,
    /// Form of the objects, `segment::FORMAT`.
    pub format: u32,
    /// The Parquet object; none when the segment holds no event but still replaces something.
    pub object: Option<String>,
    /// The object with the sorted hashes of its uuids.
    pub hashes: Option<String>,
    /// The object with the persons of its ranges.
    #[serde(default)]
    pub persons: Option<String>,
    pub rows: u64,
    pub bytes: u64,
    pub min_time: Micros,
    pub max_time: Micros,
    /// Names of its events; none when there are more than are worth listing.
    pub events: Option<Vec<String>>,
    /// Blocks that it replaces; emptied when they have been gone for a while.
    pub replaces_blocks: Vec<String>,
    /// Whether the blocks that it replaces have been removed.
    #[serde(default)]
    pub blocks_removed: bool,
    /// Segments that it replaces; emptied when they have been removed.
    pub replaces_segments: Vec<String>,
    /// What its events say of persons; none where an earlier release wrote it, or it holds no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<FileEntry>,
    /// What its events say of groups, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<FileEntry>,
    /// When it was written.
    pub at: Micros,
}

impl SegmentEntry {
    /// Its objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &String> {
        let beside = [&self.ids, &self.groups].into_iter().flatten().map(|file| &file.object);
        self.object.iter().chain(&self.hashes).chain(&self.persons).chain(beside)
    }

    /// Whether some event of one of `names` (all when none is given) may lie in it between the two instants.
    pub(crate) fn may_have(
        &self,
        names: Option<&std::collections::BTreeSet<String>>,
        from: Micros,
        to: Micros,
    ) -> bool {
        let named = match (&self.events, names) {
            (Some(events), Some(names)) => events.iter().any(|event| names.contains(event)),
            _ => true,
        };
        self.rows > 0 && named && self.max_time >= from && self.min_time <= to
    }

    /// The names for the entry of a segment that has events called `names`.
    pub(crate) fn listed(names: &std::collections::BTreeSet<&str>) -> Option<Vec<String>> {
        (names.len() <= EVENT_NAMES_MAX).then(|| names.iter().map(|name| (*name).to_owned()).collect())
    }
}

/// The entry of an object with persons or groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordsEntry {
    pub id: String,
    pub object: String,
    pub rows: u64,
    /// Its size; 0 where an earlier release wrote it.
    #[serde(default)]
    pub bytes: u64,
    pub at: Micros,
}

/// A project's manifest, as one query read it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    /// Version of `HEAD`; none before the first change.
    pub head: Option<u64>,
    /// Segments to read, in order of their ids, which is the order in which they were written.
    pub segments: Vec<SegmentEntry>,
    /// All entries of segments with their versions, replaced ones included.
    pub all_segments: Vec<(u64, SegmentEntry)>,
    /// Blocks that a segment replaces.
    pub replaced_blocks: HashSet<BlockId>,
    /// Objects with persons, oldest first.
    pub persons: Vec<RecordsEntry>,
    /// Objects with groups, oldest first.
    pub groups: Vec<RecordsEntry>,
    /// Objects with folded merges, oldest first; each holds all that those before hold.
    pub merges: Vec<MergesEntry>,
}

/// A fresh id of a segment or another object: sorts by time.
pub(crate) fn new_id(now: Micros) -> String {
    format!("{:020}-{:016x}", micros_u64(now), pennon_core::ids::random_below(u64::MAX))
}

impl Manifest {
    /// Reads the manifest of `project`.
    pub(crate) async fn load(store: &Store, project: ProjectId) -> Result<Manifest, EventStoreError> {
        let items = store.records.query(Query::partition(keys::manifest_pk(project))).await?;
        let mut manifest = Manifest::default();
        let mut replaced = HashSet::new();
        for item in items {
            let sk = item.key.sk.as_str();
            if sk == keys::HEAD {
                manifest.head = Some(item.version);
            } else if sk.starts_with(keys::SEGMENT) {
                let entry: SegmentEntry = item.body()?;
                for block in &entry.replaces_blocks {
                    manifest.replaced_blocks.insert(block.parse()?);
                }
                replaced.extend(entry.replaces_segments.iter().cloned());
                manifest.all_segments.push((item.version, entry));
            } else if sk.starts_with(keys::PERSONS) {
                manifest.persons.push(item.body()?);
            } else if sk.starts_with(keys::GROUPS) {
                manifest.groups.push(item.body()?);
            } else if sk.starts_with(keys::MERGES) {
                manifest.merges.push(item.body()?);
            }
        }
        let live = manifest
            .all_segments
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| !replaced.contains(&entry.id));
        manifest.segments = live.cloned().collect();
        // Clocks of two writers may differ; what the objects hold does not.
        manifest.merges.sort_by_key(|entry| entry.through);
        Ok(manifest)
    }

    /// Adds an entry on top of this manifest. False when somebody else changed the manifest since; nothing is written
    /// then.
    pub(crate) async fn add<T: Serialize>(
        &self,
        store: &Store,
        project: ProjectId,
        prefix: &str,
        id: &str,
        entry: &T,
    ) -> Result<bool, EventStoreError> {
        let head = Item::empty(keys::head(project)).with_version(self.head.unwrap_or(0) + 1);
        let guard = self.head.map_or(Guard::Absent, Guard::Version);
        let entry = Item::new(keys::entry(project, prefix, id), entry)?;
        let written =
            store.records.transact(vec![Write::Put(head, guard), Write::Put(entry, Guard::Absent)]).await;
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.is_condition(0) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the entry of a segment, which must still have `version`. False when it has not.
    pub(crate) async fn rewrite(
        store: &Store,
        project: ProjectId,
        version: u64,
        entry: &SegmentEntry,
    ) -> Result<bool, EventStoreError> {
        let item =
            Item::new(keys::entry(project, keys::SEGMENT, &entry.id), entry)?.with_version(version + 1);
        match store.records.put(item, Guard::Version(version)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_condition(0) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
