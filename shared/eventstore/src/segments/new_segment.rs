//! A segment that is being written: its manifest entry and its objects.

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::calls::CallsByKey;

use crate::blocks::list_of_replaced_blocks;
use crate::error::EventStoreError;
use crate::keys::BlockId;
use crate::manifest::{FileEntry, SegmentEntry, new_id};
use crate::segments::writer::{ReplacedInputs, WrittenSegment};

/// A segment that is not listed yet, and its objects.
pub(crate) struct NewSegment {
    pub entry: SegmentEntry,
    pub files: Vec<(String, Bytes)>,
    /// Flag calls among its events.
    pub calls: CallsByKey,
    /// The newest block that it replaces.
    pub newest_block: Option<BlockId>,
    folder: String,
}

impl NewSegment {
    /// A segment without events.
    pub(crate) fn new(project: ProjectId, now: Micros) -> NewSegment {
        let entry = SegmentEntry::empty(new_id(now), now);
        NewSegment {
            entry,
            files: Vec::new(),
            calls: CallsByKey::default(),
            newest_block: None,
            folder: format!("project={project}/events"),
        }
    }

    fn file(&mut self, ending: &str, bytes: Bytes) -> String {
        let object = format!("{}/{}.{ending}", self.folder, self.entry.id);
        self.files.push((object.clone(), bytes));
        object
    }

    /// Sets what it replaces. The replaced blocks go to a list object beside the segment.
    pub(crate) fn replace(&mut self, replaces: &ReplacedInputs) -> Result<(), EventStoreError> {
        self.entry.replaces_segments.clone_from(&replaces.segments);
        let blocks = replaces.blocks.iter().map(|id| id.parse()).collect::<Result<Vec<BlockId>, _>>()?;
        let object = format!("{}/{}.blocks", self.folder, self.entry.id);
        if let Some((blocks, list)) = list_of_replaced_blocks(&blocks, object) {
            self.files.push((blocks.object.clone(), list));
            self.entry.blocks = Some(blocks);
        }
        Ok(())
    }

    /// Sets its events.
    pub(crate) fn put(&mut self, written: WrittenSegment) {
        self.entry.rows = written.rows;
        self.entry.events = written.events;
        (self.entry.min_time, self.entry.max_time) = (written.min_time, written.max_time);
        self.entry.bytes = written.segment.len() as u64;
        self.entry.object = Some(self.file("parquet", written.segment));
        self.entry.hashes = Some(self.file("uuids", written.uuids));
        self.entry.hashed = Some(written.hashed);
        self.entry.persons = Some(self.file("persons", written.persons));
    }

    /// Sets the file of its distinct ids.
    pub(crate) fn put_ids(&mut self, bytes: Bytes, rows: u64) {
        self.entry.ids = Some(self.profile("ids", bytes, rows));
    }

    /// Frees the content of objects that are stored; their names stay.
    pub(crate) fn forget_content(&mut self) {
        self.files.iter_mut().for_each(|(_, bytes)| *bytes = Bytes::new());
    }

    /// Sets the file of its groups.
    pub(crate) fn put_groups(&mut self, bytes: Bytes, rows: u64) {
        self.entry.groups = Some(self.profile("groups", bytes, rows));
    }

    fn profile(&mut self, what: &str, bytes: Bytes, rows: u64) -> FileEntry {
        let size = bytes.len() as u64;
        FileEntry { object: self.file(&format!("{what}.parquet"), bytes), bytes: size, rows }
    }
}
