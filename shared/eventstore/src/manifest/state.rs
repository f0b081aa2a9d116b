//! The manifest of a project: its segments and imports, and the only way to change them.
//!
//! Must stay true: every addition raises the version of the project's `HEAD` row in the same transaction, with
//! the version that the writer read as precondition, so that of two concurrent writers only one succeeds. (A
//! sweep only removes what others replaced and does not raise it.) Readers ignore what a listed segment
//! replaces, although its rows and objects exist until [`crate::EventStore::sweep`] removes them. A manifest of
//! many entries is read in pages, which are not one snapshot: each entry carries the version that it was added
//! with, and `HEAD` holds how many entries came with the last version, so a reader that mixed two states
//! detects it and reads again.

use std::collections::{HashMap, HashSet};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, Query, Store, StoreError, Write, WriteCondition};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::formats;
use crate::keys;
use crate::manifest::merge_entries::{FoldedMergesEntry, ImportedMergesEntry};
use crate::manifest::records_entry::{FormerObject, RecordsEntry};
use crate::manifest::segment_entry::{ReplacedBlocks, SegmentEntry};

/// Read attempts while the manifest keeps changing.
const READ_ATTEMPTS: usize = 8;

/// An entry of the manifest. It carries the manifest version that it was added with.
pub(crate) trait ManifestEntry: Serialize + Clone {
    /// A copy with that version.
    fn at_head(&self, head: u64) -> Self;
}

impl ManifestEntry for SegmentEntry {
    fn at_head(&self, head: u64) -> SegmentEntry {
        SegmentEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for RecordsEntry {
    fn at_head(&self, head: u64) -> RecordsEntry {
        RecordsEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for FoldedMergesEntry {
    fn at_head(&self, head: u64) -> FoldedMergesEntry {
        FoldedMergesEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for ImportedMergesEntry {
    fn at_head(&self, head: u64) -> ImportedMergesEntry {
        ImportedMergesEntry { head, ..self.clone() }
    }
}

/// The body of `HEAD`.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// How many entries were added with its version.
    entries: usize,
    /// Format number of the manifest as a whole. A new kind of entry that readers must not ignore raises it.
    #[serde(default = "formats::first")]
    format: u32,
}

/// The manifest of a project, from one query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    /// Version of `HEAD`; none before the first change.
    pub head: Option<u64>,
    /// Live segments, in order of their ids, which is the order in which they were written.
    pub segments: Vec<SegmentEntry>,
    /// All segment entries with their row versions, replaced ones included.
    pub all_segments: Vec<(u64, SegmentEntry)>,
    /// Imports of persons, oldest first.
    pub persons: Vec<RecordsEntry>,
    /// Row versions of import entries, by id.
    pub versions: HashMap<String, u64>,
    /// Imports of groups, oldest first.
    pub groups: Vec<RecordsEntry>,
    /// Objects with folded merges, oldest first; each contains the merges of all before it.
    pub merges: Vec<FoldedMergesEntry>,
    /// Objects with the merges of all imports, oldest first.
    pub links: Vec<ImportedMergesEntry>,
    /// Import entries with former objects that still have to be removed.
    pub rewritten: Vec<(u64, Key, RecordsEntry)>,
    /// Ids of damaged segments.
    pub damaged: HashSet<String>,
}

/// A change of the manifest that is applied in one transaction.
#[derive(Clone, Default)]
pub(crate) struct ManifestChange<'a> {
    pub segments: &'a [SegmentEntry],
    /// Import entries that replace those with these versions, with the prefixes of their sort keys.
    pub records: &'a [(&'static str, u64, RecordsEntry)],
    pub merges: Option<&'a FoldedMergesEntry>,
    /// Other rows to write in the same transaction, with their preconditions.
    pub extra_writes: Vec<Write>,
}

/// Outcome of a [`ManifestChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    Applied,
    /// Another writer changed the manifest since it was read.
    VersionConflict,
    /// A precondition of one of the extra rows does not hold.
    PreconditionFailed,
}

/// A new id of a segment or another object. Ids sort by time.
pub(crate) fn new_id(now: Micros) -> String {
    format!("{:020}-{:016x}", micros_u64(now), pennon_core::ids::random_below(u64::MAX))
}

/// The time at the start of an id from [`new_id`].
fn time_of(id: &str) -> Option<Micros> {
    id.split('-').next()?.parse().ok()
}

impl Manifest {
    /// A new id for an import. It sorts after the ids of all listed imports, so the order of ids is the order
    /// of imports even within one instant and with clocks that differ.
    pub(crate) fn records_id(&self, now: Micros) -> String {
        let last = self.versions.keys().filter_map(|id| time_of(id)).max();
        new_id(last.map_or(now, |last| now.max(last.saturating_add(1))))
    }

    /// Reads a consistent manifest of `project`.
    pub(crate) async fn load(store: &Store, project: ProjectId) -> Result<Manifest, EventStoreError> {
        for _ in 0..READ_ATTEMPTS {
            let items = store.records.query(Query::partition(keys::manifest_pk(project))).await?;
            formats::require(&items)?;
            if is_consistent(&items)? {
                return Manifest::of(&items);
            }
        }
        Err(StoreError::Busy(format!("the segments of project {project} change faster than they are read"))
            .into())
    }

    /// Reads only the entries of imported persons and of their merges.
    pub(crate) async fn load_persons(store: &Store, project: ProjectId) -> Result<Manifest, EventStoreError> {
        let listed =
            |prefix| store.records.query(Query::partition(keys::manifest_pk(project)).prefix(prefix));
        let (persons, links) = futures::try_join!(listed(keys::PERSONS), listed(keys::LINKS))?;
        let items = [persons, links].concat();
        formats::require(&items)?;
        Manifest::of(&items)
    }

    fn of(items: &[Item]) -> Result<Manifest, EventStoreError> {
        let mut manifest = Manifest::default();
        let mut replaced = HashSet::new();
        for item in items {
            let sk = item.key.sk.as_str();
            if sk == keys::HEAD {
                manifest.head = Some(item.version);
            } else if sk.starts_with(keys::SEGMENT) {
                let entry: SegmentEntry = item.body()?;
                replaced.extend(entry.replaces_segments.iter().cloned());
                manifest.all_segments.push((item.version, entry));
            } else if let Some(id) = sk.strip_prefix(keys::DAMAGED) {
                manifest.damaged.insert(id.to_owned());
            } else if sk.starts_with(keys::PERSONS) {
                let entry = manifest.records(item)?;
                manifest.persons.extend(entry);
            } else if sk.starts_with(keys::GROUPS) {
                let entry = manifest.records(item)?;
                manifest.groups.extend(entry);
            } else if sk.starts_with(keys::MERGES) {
                manifest.merges.push(item.body()?);
            } else if sk.starts_with(keys::LINKS) {
                manifest.links.push(item.body()?);
            }
        }
        let live = manifest
            .all_segments
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| !replaced.contains(&entry.id));
        manifest.segments = live.cloned().collect();
        // Not by id: clocks of two writers may differ.
        manifest.merges.sort_by_key(|entry| entry.through);
        manifest.links.sort_by_key(|entry| entry.head);
        Ok(manifest)
    }

    /// Parses an import entry; none where all its records were erased.
    fn records(&mut self, item: &Item) -> Result<Option<RecordsEntry>, EventStoreError> {
        let entry: RecordsEntry = item.body()?;
        self.versions.insert(entry.id.clone(), item.version);
        if !entry.before.is_empty() {
            self.rewritten.push((item.version, item.key.clone(), entry.clone()));
        }
        Ok((entry.rows > 0).then_some(entry))
    }

    /// The manifest version after the next change.
    pub(crate) fn next_version(&self) -> u64 {
        self.head.unwrap_or(0) + 1
    }

    /// All import entries of persons and groups, with the prefixes of their sort keys.
    pub(crate) fn all_records(&self) -> impl Iterator<Item = (&'static str, &RecordsEntry)> {
        let persons = self.persons.iter().map(|entry| (keys::PERSONS, entry));
        persons.chain(self.groups.iter().map(|entry| (keys::GROUPS, entry)))
    }

    /// The row version of an import entry.
    pub(crate) fn version_of(&self, id: &str) -> u64 {
        self.versions.get(id).copied().unwrap_or(0)
    }

    /// How many erasures rewrote the merge log.
    pub(crate) fn erasures(&self) -> u64 {
        self.merges.last().map_or(0, |entry| entry.erasures)
    }

    /// The lists of replaced blocks that readers still need.
    pub(crate) fn replaced_blocks(&self) -> impl Iterator<Item = &ReplacedBlocks> {
        self.all_segments
            .iter()
            .filter_map(|(_, entry)| entry.blocks.as_ref())
            .filter(|blocks| !blocks.settled)
    }

    /// Adds one entry. Returns false, and writes nothing, when another writer changed the manifest since.
    pub(crate) async fn add<T: ManifestEntry>(
        &self,
        events: &EventStore,
        project: ProjectId,
        prefix: &str,
        id: &str,
        entry: &T,
    ) -> Result<bool, EventStoreError> {
        let version = self.next_version();
        let entry = Item::new(keys::entry(project, prefix, id), &entry.at_head(version))?;
        let entries = vec![Write::Put(entry, WriteCondition::Absent)];
        Ok(self.write_entries(events, project, entries, Vec::new()).await? == ChangeOutcome::Applied)
    }

    /// Applies the whole change in one transaction on top of this manifest, or nothing.
    pub(crate) async fn apply(
        &self,
        events: &EventStore,
        project: ProjectId,
        change: &ManifestChange<'_>,
    ) -> Result<ChangeOutcome, EventStoreError> {
        let version = self.next_version();
        let mut entries = Vec::new();
        for entry in change.segments {
            let item = Item::new(keys::entry(project, keys::SEGMENT, &entry.id), &entry.at_head(version))?;
            entries.push(Write::Put(item, WriteCondition::Absent));
        }
        for (prefix, before, entry) in change.records {
            let item = Item::new(keys::entry(project, prefix, &entry.id), &entry.at_head(version))?;
            entries.push(Write::Put(item.with_version(before + 1), WriteCondition::Version(*before)));
        }
        if let Some(entry) = change.merges {
            let item = Item::new(keys::entry(project, keys::MERGES, &entry.id), &entry.at_head(version))?;
            entries.push(Write::Put(item, WriteCondition::Absent));
        }
        self.write_entries(events, project, entries, change.extra_writes.clone()).await
    }

    /// Writes `entries` with the next version of `HEAD` and `extra_writes`, in one transaction.
    async fn write_entries(
        &self,
        events: &EventStore,
        project: ProjectId,
        entries: Vec<Write>,
        extra_writes: Vec<Write>,
    ) -> Result<ChangeOutcome, EventStoreError> {
        let head = Head { entries: entries.len(), format: formats::MANIFEST };
        let version = self.next_version();
        let head = Item::new(keys::head(project), &head)?.with_version(version);
        let guard = self.head.map_or(WriteCondition::Absent, WriteCondition::Version);
        let listed = 1 + entries.len();
        let writes = std::iter::once(Write::Put(head, guard)).chain(entries).chain(extra_writes).collect();
        match events.inner.store.records.transact(writes).await {
            Ok(()) => {
                events.advance_mark(project, version).await;
                Ok(ChangeOutcome::Applied)
            }
            Err(error) if error.is_condition(0) => Ok(ChangeOutcome::VersionConflict),
            Err(StoreError::Condition { index }) if index >= listed => Ok(ChangeOutcome::PreconditionFailed),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that of the former objects of an import entry only `left` still exist.
    pub(crate) async fn settle(
        store: &Store,
        (version, key): (u64, Key),
        entry: &RecordsEntry,
        left: Vec<FormerObject>,
    ) -> Result<(), EventStoreError> {
        let item = Item::new(key, &RecordsEntry { before: left, ..entry.clone() })?.with_version(version + 1);
        match store.records.put(item, WriteCondition::Version(version)).await {
            Err(error) if !error.is_condition(0) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Rewrites the entry of a segment if it still has row version `version`. Returns false if it has not.
    pub(crate) async fn rewrite(
        store: &Store,
        project: ProjectId,
        version: u64,
        entry: &SegmentEntry,
    ) -> Result<bool, EventStoreError> {
        let item =
            Item::new(keys::entry(project, keys::SEGMENT, &entry.id), entry)?.with_version(version + 1);
        match store.records.put(item, WriteCondition::Version(version)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_condition(0) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The field of every entry that [`is_consistent`] compares.
#[derive(Deserialize)]
struct EntryVersion {
    #[serde(default)]
    head: u64,
}

/// Whether `items` are one consistent manifest: no entry is newer than `HEAD`, and all entries of the last
/// version are present.
fn is_consistent(items: &[Item]) -> Result<bool, StoreError> {
    let Some(head) = items.iter().find(|item| item.key.sk == keys::HEAD) else {
        // The first entry was added during the read. Markers of damaged blocks exist before that.
        return Ok(items.iter().all(|item| item.key.sk.starts_with(keys::DAMAGED)));
    };
    let mut newest = 0;
    for item in items.iter().filter(|item| item.key.sk != keys::HEAD) {
        let entry_version = item.body::<EntryVersion>()?.head;
        if entry_version > head.version {
            return Ok(false);
        }
        newest += usize::from(entry_version == head.version);
    }
    // An earlier release did not store the number.
    Ok(head.text.is_empty() || head.body::<Head>()?.entries == newest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(id: &str, head: u64, replaces: &[&str]) -> Item {
        let entry = SegmentEntry {
            id: id.to_owned(),
            head,
            replaces_segments: replaces.iter().map(|id| (*id).to_owned()).collect(),
            ..crate::segments::tests::entry("h", 1)
        };
        Item::new(keys::entry(1, keys::SEGMENT, id), &entry).unwrap()
    }

    fn head(version: u64, entries: usize) -> Item {
        Item::new(keys::head(1), &Head { entries, format: formats::MANIFEST }).unwrap().with_version(version)
    }

    #[test]
    fn what_was_read_of_two_moments_is_noticed() {
        let (a, b) = (entry("a", 1, &[]), entry("b", 2, &["a"]));
        assert!(is_consistent(&[]).unwrap());
        assert!(is_consistent(&[Item::empty(keys::entry(1, keys::DAMAGED, "a block"))]).unwrap());
        assert!(is_consistent(&[head(1, 1), a.clone()]).unwrap());
        assert!(is_consistent(&[head(2, 1), a.clone(), b.clone()]).unwrap());
        assert!(is_consistent(&[head(2, 1), b.clone()]).unwrap(), "what was replaced may be gone");
        assert!(!is_consistent(std::slice::from_ref(&a)).unwrap(), "the first entry came behind the head");
        assert!(!is_consistent(&[head(1, 1), a.clone(), b.clone()]).unwrap(), "b came while it was read");
        assert!(!is_consistent(&[head(2, 1), a.clone()]).unwrap(), "b came between head and a");
        assert!(
            !is_consistent(&[head(2, 2), a.clone(), b]).unwrap(),
            "one of two that came together is not there"
        );
        let old = Item::empty(keys::head(1)).with_version(9);
        assert!(is_consistent(&[old, a]).unwrap(), "by an earlier release");
    }

    #[test]
    fn what_is_replaced_is_not_read_however_deep() {
        let items = [head(3, 1), entry("a", 1, &[]), entry("b", 2, &["a"]), entry("c", 3, &["b"])];
        let manifest = Manifest::of(&items).unwrap();
        assert_eq!(manifest.segments.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!((manifest.head, manifest.all_segments.len()), (Some(3), 3));
    }
}
