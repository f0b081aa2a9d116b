//! The view of a reader on a project at one moment: manifest, blocks, person merges.
//!
//! Must stay true: blocks are read before the manifest. A block that is gone by then was replaced by a segment
//! that the manifest, read later, lists; a block that is still there is ignored if the manifest lists its
//! segment. Objects of replaced segments stay for the grace period, so that a reader can finish.

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::SnapshotReader;
use crate::blocks::{BlockFilter, RawBlock, event_headers, filter_rows};
use crate::error::EventStoreError;
use crate::event::PersonEvent;
use crate::manifest::Manifest;
use crate::memory::MemoryLease;
use crate::person_ids::derive_person_id;
use crate::persons::{PersonMergeState, PersonMerges};

/// A consistent view of a project.
pub(crate) struct Snapshot {
    pub manifest: Manifest,
    /// Events of blocks, deduplicated among themselves; some may duplicate events in segments.
    pub waiting_events: Vec<PersonEvent>,
    /// Number of events in blocks, including those that the filter dropped.
    pub waiting_event_count: u64,
    /// Memory that these rows reserve of the query.
    pub waiting_memory: Option<[MemoryLease; 2]>,
    pub person_merges: Arc<PersonMerges>,
    pub merge_state: Arc<PersonMergeState>,
}

/// A consistent view of a project, without the content of waiting events.
pub(crate) struct SnapshotOutline {
    pub manifest: Manifest,
    pub merge_state: Arc<PersonMergeState>,
    /// Uuid and time of the events of blocks, deduplicated among themselves; some may duplicate events in
    /// segments.
    pub waiting_events: Vec<(Uuid, Micros)>,
}

/// The canonical person of every person id at one moment.
#[derive(Debug, Clone)]
pub struct CanonicalPersons(Arc<PersonMergeState>);

impl CanonicalPersons {
    /// The canonical person of the person id `id`.
    pub fn of(&self, id: Uuid) -> Uuid {
        self.0.person_merges.person(id)
    }
}

impl SnapshotReader {
    /// Reads a snapshot with all events of blocks.
    pub(crate) async fn snapshot(&self, project: ProjectId) -> Result<Snapshot, EventStoreError> {
        self.snapshot_of(project, BlockFilter::all()).await
    }

    /// Reads a snapshot with those events of blocks that pass the filter.
    pub(crate) async fn snapshot_of(
        &self,
        project: ProjectId,
        requested: BlockFilter,
    ) -> Result<Snapshot, EventStoreError> {
        let (blocks, manifest, merge_state) = self.blocks_and_manifest(project).await?;
        let blocks = self.blocks.not_replaced(&manifest, blocks).await?;
        let waiting_events = self.blocks.mark_damage(filter_rows(project, blocks, requested).await).await?;
        Ok(Snapshot {
            manifest,
            waiting_events: waiting_events.rows,
            waiting_event_count: waiting_events.events,
            waiting_memory: waiting_events.taken,
            person_merges: Arc::new(merge_state.person_merges.clone()),
            merge_state,
        })
    }

    /// Reads the waiting blocks of all partitions, then manifest and person merges.
    pub(crate) async fn blocks_and_manifest(
        &self,
        project: ProjectId,
    ) -> Result<(Vec<RawBlock>, Manifest, Arc<PersonMergeState>), EventStoreError> {
        loop {
            let partitions = self.blocks.partitions(project);
            let blocks = self.blocks.raw_blocks(project, partitions).await?;
            let (manifest, merge_state) = self.index.manifest_and_persons(project).await?;
            if self.blocks.has_read_all(project, partitions, &manifest) {
                return Ok((blocks, manifest, merge_state));
            }
        }
    }

    /// Reads a snapshot with only uuid and time of the events of blocks.
    pub(crate) async fn outline(&self, project: ProjectId) -> Result<SnapshotOutline, EventStoreError> {
        let (blocks, manifest, merge_state) = self.blocks_and_manifest(project).await?;
        let blocks = self.blocks.not_replaced(&manifest, blocks).await?;
        let waiting_events = self.blocks.mark_damage(event_headers(blocks).await).await?;
        Ok(SnapshotOutline { manifest, merge_state, waiting_events })
    }

    /// The time of the earliest event, if there is one.
    pub(crate) async fn earliest(&self, project: ProjectId) -> Result<Option<Micros>, EventStoreError> {
        let SnapshotOutline { manifest, mut waiting_events, .. } = self.outline(project).await?;
        let segments = manifest.segments.iter().filter(|entry| entry.rows > 0);
        let of_segments = segments.map(|entry| entry.min_time).min();
        // A duplicate of an event in a segment does not count, whatever its time. Only events before the first
        // segment matter.
        waiting_events.retain(|(_, time)| of_segments.is_none_or(|first| *time < first));
        let waiting = self.duplicates.headers_not_in_segments(&manifest, waiting_events).await?;
        Ok(of_segments.into_iter().chain(waiting.into_iter().map(|(_, time)| time)).min())
    }

    /// The canonical persons as of now, for many lookups.
    pub(crate) async fn canonical_persons(
        &self,
        project: ProjectId,
    ) -> Result<CanonicalPersons, EventStoreError> {
        let (_, merge_state) = self.index.manifest_and_persons(project).await?;
        Ok(CanonicalPersons(merge_state))
    }

    /// The canonical person of a distinct id.
    pub(crate) async fn person_of(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<Uuid, EventStoreError> {
        let (_, merge_state) = self.index.manifest_and_persons(project).await?;
        Ok(merge_state.person_merges.person(derive_person_id(project, distinct_id)))
    }
}
