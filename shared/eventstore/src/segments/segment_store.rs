//! Stores, lists, opens and deletes segments.
//!
//! Must stay true: an entry is listed only after all its objects are durable. Objects are removed again only
//! after the manifest definitely rejected the entry, because a call that failed may have been carried out.

use std::sync::Arc;

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;

use super::NewSegment;
use super::parquet_io::{PageIndexParts, ParquetFile};
use super::reader::SegmentFile;
use crate::cache::Cache;
use crate::error::EventStoreError;
use crate::flag_calls::FlagCallCounter;
use crate::manifest::{EntryKind, FileEntry, Manifest, ManifestStore, SegmentEntry};
use crate::objects::Objects;
use crate::settings::Settings;

/// Cached open files: footer and page index of a segment or of a file beside it.
const FILES_CACHED: usize = 256;

/// The segments of all projects.
#[derive(Debug)]
pub(crate) struct SegmentStore {
    objects: Objects,
    manifests: Arc<ManifestStore>,
    flag_calls: Arc<FlagCallCounter>,
    /// Open segments, by object.
    files: Cache<Arc<SegmentFile>>,
    /// Open profile files beside segments, by object.
    profile_files: Cache<Arc<ParquetFile>>,
    /// Approximate rows of a person range.
    pub range_rows: usize,
}

impl SegmentStore {
    pub(crate) fn new(
        objects: Objects,
        manifests: Arc<ManifestStore>,
        flag_calls: Arc<FlagCallCounter>,
        settings: &Settings,
    ) -> SegmentStore {
        let (files, profile_files) = (Cache::new(FILES_CACHED), Cache::new(FILES_CACHED));
        let range_rows = settings.range_rows;
        SegmentStore { objects, manifests, flag_calls, files, profile_files, range_rows }
    }

    /// Person ranges that a scan should read at once, see [`Objects::ranges_at_once`].
    pub(crate) fn ranges_at_once(&self) -> usize {
        self.objects.ranges_at_once()
    }

    /// Stores the objects of a segment.
    pub(crate) async fn write_objects(&self, new: &NewSegment) -> Result<(), EventStoreError> {
        self.objects.create_all(&new.files).await
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
        self.flag_calls.count_flag_calls(project, &new.calls, new.newest_block, new.entry.at).await?;
        self.manifests.add(project, manifest, EntryKind::Segment, &new.entry).await
    }

    /// Removes the objects of a segment that is not listed and will not be.
    pub(crate) async fn drop_objects(&self, new: &NewSegment) -> Result<(), EventStoreError> {
        self.objects.delete_all(new.files.iter().map(|(object, _)| object.clone()).collect()).await
    }

    /// Opens the segment of an entry, from the cache if possible.
    pub(crate) async fn open(&self, entry: &SegmentEntry) -> Result<Arc<SegmentFile>, EventStoreError> {
        let name = entry.object.as_deref().unwrap_or_default();
        if let Some(file) = self.files.get(name) {
            return Ok(file);
        }
        let file = Arc::new(SegmentFile::open(&self.objects, entry).await?);
        self.files.put(name, file.clone());
        Ok(file)
    }

    /// Opens a profile file of a segment, from the cache if possible.
    pub(crate) async fn open_profile_file(
        &self,
        file: &FileEntry,
    ) -> Result<Arc<ParquetFile>, EventStoreError> {
        if let Some(known) = self.profile_files.get(&file.object) {
            return Ok(known);
        }
        let index = PageIndexParts::PlacesAndBounds;
        let opened = ParquetFile::open(&self.objects, &file.object, file.bytes, index).await?;
        let opened = Arc::new(opened);
        self.profile_files.put(&file.object, opened.clone());
        Ok(opened)
    }

    /// Reads a whole profile file.
    pub(crate) async fn read_profile_file(&self, file: &FileEntry) -> Result<Bytes, EventStoreError> {
        self.objects.get(&file.object).await
    }

    /// Reads the person ids of all ranges of a segment, 16 bytes each; none if it has no file of them.
    pub(crate) async fn person_ids(&self, entry: &SegmentEntry) -> Result<Option<Bytes>, EventStoreError> {
        match &entry.persons {
            Some(object) => Ok(Some(self.objects.get(object).await?)),
            None => Ok(None),
        }
    }

    /// Deletes the objects of a segment and then its manifest entry.
    pub(crate) async fn remove(
        &self,
        project: ProjectId,
        entry: &SegmentEntry,
    ) -> Result<(), EventStoreError> {
        self.objects.delete_all(entry.objects().cloned().collect()).await?;
        self.manifests.remove(project, EntryKind::Segment, &entry.id).await
    }
}
