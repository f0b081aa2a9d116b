//! Commit of a new segment: its objects first, then, in one transaction, its manifest entry.
//!
//! Must stay true: an entry is listed only after all its objects are durable. Objects are removed again only
//! after the manifest definitely rejected the entry, because a call that failed may have been carried out.

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::calls::CallsByKey;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::blocks::list_of_replaced_blocks;
use crate::error::EventStoreError;
use crate::keys::{self, BlockId};
use crate::manifest::{FileEntry, Manifest, SegmentEntry, new_id};
use crate::segments::writer::{Replaces, WrittenSegment};

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
    pub(crate) fn replace(&mut self, replaces: &Replaces) -> Result<(), EventStoreError> {
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

impl EventStore {
    /// Stores the objects of a segment.
    pub(crate) async fn write_objects(&self, new: &NewSegment) -> Result<(), EventStoreError> {
        self.inner.objects.create_all(&new.files).await
    }

    /// Adds the entry of a segment on top of `manifest`. Returns false, and writes nothing, when the manifest
    /// has changed.
    pub(crate) async fn list(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        new: &NewSegment,
    ) -> Result<bool, EventStoreError> {
        // Before the segment is listed, so that a crash loses no call: counting a call twice changes nothing.
        self.count_flag_calls(project, &new.calls, new.newest_block, new.entry.at).await?;
        manifest.add(self, project, keys::SEGMENT, &new.entry.id, &new.entry).await
    }

    /// Removes the objects of a segment that is not listed and will not be.
    pub(crate) async fn drop_objects(&self, new: &NewSegment) -> Result<(), EventStoreError> {
        self.inner.objects.delete_all(new.files.iter().map(|(object, _)| object.clone()).collect()).await
    }

    /// Reads all events of a segment.
    pub(crate) async fn all_rows(&self, entry: &SegmentEntry) -> Result<Vec<Row>, EventStoreError> {
        if entry.rows == 0 {
            return Ok(Vec::new());
        }
        let file = self.segment(entry).await?;
        let columns = file.columns();
        let mut rows = Vec::new();
        for group in 0..file.metadata().num_row_groups() {
            let decoded = file.decode(&self.inner.objects, group, None, &columns).await?;
            let file = file.clone();
            let read = tokio::task::spawn_blocking(move || {
                decoded
                    .batches
                    .iter()
                    .map(|batch| property_values::rows(batch, &file.footer))
                    .collect::<Result<Vec<_>, _>>()
            });
            rows.extend(read.await??.into_iter().flatten());
        }
        if rows.len() as u64 == entry.rows {
            return Ok(rows);
        }
        Err(EventStoreError::Corrupt(format!(
            "segment {} has {} of {} events",
            entry.id,
            rows.len(),
            entry.rows
        )))
    }

    /// Opens the segment of an entry, from the cache if possible.
    pub(crate) async fn segment(&self, entry: &SegmentEntry) -> Result<Arc<SegmentFile>, EventStoreError> {
        let name = entry.object.as_deref().unwrap_or_default();
        if let Some(file) = self.inner.segments.get(name) {
            return Ok(file);
        }
        let file = Arc::new(SegmentFile::open(&self.inner.objects, entry).await?);
        self.inner.segments.put(name, file.clone());
        Ok(file)
    }
}
