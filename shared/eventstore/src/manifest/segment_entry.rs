//! The manifest entry of a segment, and of the files and blocks that it names.

use pennon_analytics::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::error::EventStoreError;
use crate::formats;
use crate::keys::BlockId;

/// Most event names that a segment's entry lists.
const EVENT_NAMES_MAX: usize = 500;
/// The entry of a segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentEntry {
    pub id: String,
    /// Format number of the objects, `segments::formats::SEGMENTS`.
    pub format: u32,
    /// The Parquet object; none when the segment holds no event but still replaces others.
    pub object: Option<String>,
    /// The uuid index object.
    pub hashes: Option<String>,
    /// Number of uuids that have a hash in the index; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashed: Option<u64>,
    /// The object with the person ids of its ranges.
    #[serde(default)]
    pub persons: Option<String>,
    pub rows: u64,
    pub bytes: u64,
    pub min_time: Micros,
    pub max_time: Micros,
    /// Names of its events; none above [`EVENT_NAMES_MAX`].
    pub events: Option<Vec<String>>,
    /// Blocks that it replaces, until they have been removed for the grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<ReplacedBlocks>,
    /// Segments that it replaces; emptied when they have been removed.
    pub replaces_segments: Vec<String>,
    /// File of distinct ids and profile changes; none where it holds no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<FileEntry>,
    /// File of group changes, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<FileEntry>,
    /// When it was written, or, if it replaces segments, when it replaced them.
    pub at: Micros,
    /// The manifest version that it was added with.
    #[serde(default)]
    pub head: u64,
}

/// The part of a segment entry that describes the blocks it replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplacedBlocks {
    /// The object with their ids.
    pub object: String,
    /// The smallest id.
    pub first: BlockId,
    /// The largest id.
    pub last: BlockId,
    pub count: u64,
    /// When their deletion was complete, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Micros>,
    /// Whether they were deleted so long ago that no reader can hold one; then the list is no longer used.
    #[serde(default)]
    pub settled: bool,
}

/// A stored profile file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub object: String,
    pub bytes: u64,
    pub rows: u64,
}

impl SegmentEntry {
    /// A segment without objects and events that replaces nothing.
    pub(crate) fn empty(id: String, at: Micros) -> SegmentEntry {
        SegmentEntry {
            id,
            format: formats::SEGMENTS,
            object: None,
            hashes: None,
            hashed: None,
            persons: None,
            rows: 0,
            bytes: 0,
            min_time: 0,
            max_time: 0,
            events: Some(Vec::new()),
            blocks: None,
            replaces_segments: Vec::new(),
            ids: None,
            groups: None,
            at,
            head: 0,
        }
    }

    /// The names of its objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &String> {
        let extra_writes = [&self.ids, &self.groups].into_iter().flatten().map(|file| &file.object);
        let blocks = self.blocks.iter().map(|blocks| &blocks.object);
        self.object.iter().chain(&self.hashes).chain(&self.persons).chain(extra_writes).chain(blocks)
    }

    /// The file of its distinct ids; none if no event changed or named a person.
    pub(crate) fn id_file(&self) -> Result<Option<&FileEntry>, EventStoreError> {
        match &self.ids {
            None if self.rows > 0 => Err(EventStoreError::corrupt("a segment without its distinct ids")),
            file => Ok(file.as_ref()),
        }
    }

    /// Whether it has data of persons or groups. Its events may be erased while that stays.
    pub(crate) fn has_profiles(&self) -> bool {
        self.rows > 0 || self.ids.is_some() || self.groups.is_some()
    }

    /// Whether it may hold an event with one of `names` (any name if none) between the two instants.
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

    /// The event names for an entry, or none when there are too many.
    pub(crate) fn listed(names: &std::collections::BTreeSet<&str>) -> Option<Vec<String>> {
        (names.len() <= EVENT_NAMES_MAX).then(|| names.iter().map(|name| (*name).to_owned()).collect())
    }
}
