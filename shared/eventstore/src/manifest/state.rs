//! The manifest of a project as it was read: its segments, imports and merges, and what a change of it contains.
//!
//! Must stay true: a manifest of many entries is read in pages, which are not one snapshot: each entry carries the
//! version that it was added with, and `HEAD` holds how many entries came with the last version, so a reader that mixed
//! two states detects it ([`is_consistent`]) and reads again. Readers ignore what a listed segment replaces, although its
//! rows and objects exist until the sweep removes them.

use std::collections::{HashMap, HashSet};

use pennon_analytics::scan::Micros;
use pennon_core::store::{Item, Key, StoreError, Write};
use serde::{Deserialize, Serialize};

use crate::block_partitions::BlockPartitions;
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::formats;
use crate::keys;
use crate::manifest::{FoldedMergesEntry, ImportedMergesEntry, RecordsEntry, ReplacedBlocks, SegmentEntry};

/// The kind of an entry, which selects the prefix of its sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Segment,
    /// An import of persons.
    Persons,
    /// An import of groups.
    Groups,
    FoldedMerges,
    ImportedMerges,
}

impl EntryKind {
    pub(super) fn prefix(self) -> &'static str {
        match self {
            EntryKind::Segment => keys::SEGMENT,
            EntryKind::Persons => keys::PERSONS,
            EntryKind::Groups => keys::GROUPS,
            EntryKind::FoldedMerges => keys::MERGES,
            EntryKind::ImportedMerges => keys::LINKS,
        }
    }
}

/// An entry of the manifest.
pub(crate) trait ManifestEntry: Serialize + Clone {
    fn id(&self) -> &str;

    /// A copy with the manifest version that it was added with.
    fn at_head(&self, head: u64) -> Self;
}

impl ManifestEntry for SegmentEntry {
    fn id(&self) -> &str {
        &self.id
    }

    fn at_head(&self, head: u64) -> SegmentEntry {
        SegmentEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for RecordsEntry {
    fn id(&self) -> &str {
        &self.id
    }

    fn at_head(&self, head: u64) -> RecordsEntry {
        RecordsEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for FoldedMergesEntry {
    fn id(&self) -> &str {
        &self.id
    }

    fn at_head(&self, head: u64) -> FoldedMergesEntry {
        FoldedMergesEntry { head, ..self.clone() }
    }
}

impl ManifestEntry for ImportedMergesEntry {
    fn id(&self) -> &str {
        &self.id
    }

    fn at_head(&self, head: u64) -> ImportedMergesEntry {
        ImportedMergesEntry { head, ..self.clone() }
    }
}

/// The body of `HEAD`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ManifestHead {
    /// How many entries were added with its version.
    pub entries: usize,
    /// Format number of the manifest as a whole. A new kind of entry that readers must not ignore raises it.
    #[serde(default = "formats::first")]
    pub format: u32,
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
    /// The number of partitions for blocks.
    pub partitions: BlockPartitions,
}

/// A change of the manifest that is applied in one transaction.
#[derive(Clone, Default)]
pub(crate) struct ManifestChange<'a> {
    pub segments: &'a [SegmentEntry],
    /// Import entries that replace those with these versions.
    pub records: &'a [(EntryKind, u64, RecordsEntry)],
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

    /// Parses the rows of a manifest.
    pub(super) fn of(items: &[Item]) -> Result<Manifest, EventStoreError> {
        let mut manifest = Manifest::default();
        let mut replaced = HashSet::new();
        for item in items {
            let sk = item.key.sk.as_str();
            if sk == keys::HEAD {
                manifest.head = Some(item.version);
            } else if sk == keys::PARTITIONS {
                manifest.partitions = BlockPartitions::of_row(item)?;
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

    /// All import entries of persons and groups.
    pub(crate) fn all_records(&self) -> impl Iterator<Item = (EntryKind, &RecordsEntry)> {
        let persons = self.persons.iter().map(|entry| (EntryKind::Persons, entry));
        persons.chain(self.groups.iter().map(|entry| (EntryKind::Groups, entry)))
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
}

/// The field of every entry that [`is_consistent`] compares.
#[derive(Deserialize)]
struct EntryVersion {
    #[serde(default)]
    head: u64,
}

/// Whether `items` are one consistent manifest: no entry is newer than `HEAD`, and all entries of the last
/// version are present.
pub(super) fn is_consistent(items: &[Item]) -> Result<bool, StoreError> {
    let Some(head) = items.iter().find(|item| item.key.sk == keys::HEAD) else {
        // The first entry was added during the read. Settings and markers of damaged blocks exist before that.
        return Ok(items
            .iter()
            .all(|item| item.key.sk == keys::PARTITIONS || item.key.sk.starts_with(keys::DAMAGED)));
    };
    let mut newest = 0;
    for item in items.iter().filter(|item| item.key.sk != keys::HEAD) {
        let entry_version = item.body::<EntryVersion>()?.head;
        if entry_version > head.version {
            return Ok(false);
        }
        newest += usize::from(entry_version == head.version);
    }
    Ok(head.body::<ManifestHead>()?.entries == newest)
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
        Item::new(keys::head(1), &ManifestHead { entries, format: formats::MANIFEST })
            .unwrap()
            .with_version(version)
    }

    #[test]
    fn what_was_read_of_two_moments_is_noticed() {
        let (a, b) = (entry("a", 1, &[]), entry("b", 2, &["a"]));
        assert!(is_consistent(&[]).unwrap());
        assert!(is_consistent(&[Item::empty(keys::entry(1, keys::DAMAGED, "a block"))]).unwrap());
        let (key, setting) = BlockPartitions::new(16).unwrap().row(1);
        let setting = Item::new(key, &setting).unwrap();
        assert!(is_consistent(std::slice::from_ref(&setting)).unwrap(), "a setting before the first entry");
        assert_eq!(Manifest::of(std::slice::from_ref(&setting)).unwrap().partitions.count(), 16);
        assert!(is_consistent(&[head(1, 1), setting, a.clone()]).unwrap());
        assert!(is_consistent(&[head(1, 1), a.clone()]).unwrap());
        assert!(is_consistent(&[head(2, 1), a.clone(), b.clone()]).unwrap());
        assert!(is_consistent(&[head(2, 1), b.clone()]).unwrap(), "what was replaced may be gone");
        assert!(!is_consistent(std::slice::from_ref(&a)).unwrap(), "the first entry came behind the head");
        assert!(!is_consistent(&[head(1, 1), a.clone(), b.clone()]).unwrap(), "b came while it was read");
        assert!(!is_consistent(&[head(2, 1), a.clone()]).unwrap(), "b came between head and a");
        assert!(!is_consistent(&[head(2, 2), a, b]).unwrap(), "one of two that came together is not there");
    }

    #[test]
    fn what_is_replaced_is_not_read_however_deep() {
        let items = [head(3, 1), entry("a", 1, &[]), entry("b", 2, &["a"]), entry("c", 3, &["b"])];
        let manifest = Manifest::of(&items).unwrap();
        assert_eq!(manifest.segments.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!((manifest.head, manifest.all_segments.len()), (Some(3), 3));
    }
}
