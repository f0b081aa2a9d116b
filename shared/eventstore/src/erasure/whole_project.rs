//! Erases all data of a project.
//!
//! Must stay true: only lists of the erased data are read, so damaged or missing objects do not prevent the
//! erasure. An empty segment replaces all segments and waiting blocks, in the transaction that empties the
//! imports and the merge log.

use pennon_analytics::scan::Micros;
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;

use super::{Eraser, ErasureReport, SEGMENTS_MAX};
use crate::error::EventStoreError;
use crate::keys::BlockId;
use crate::manifest::{
    ChangeOutcome, EntryKind, Manifest, ManifestChange, RecordsEntry, ReplacedBlocks, SegmentEntry,
};
use crate::objects::RetryBudget;
use crate::persons::{ErasureFilter, cohort_lists, continuity};
use crate::segments::NewSegment;
use crate::segments::writer::ReplacedInputs;

/// An imported object's entry, with its kind and row version.
type EmptiedEntry = (EntryKind, u64, RecordsEntry);

impl Eraser {
    /// [`Eraser::erase`] of [`super::ErasureTarget::Project`].
    pub(super) async fn erase_everything(
        &self,
        project: ProjectId,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<ErasureReport, EventStoreError> {
        let erased = self.count_everything(project).await?;
        let erase = ErasureFilter { everything: true, ..ErasureFilter::default() };
        let mut retries = RetryBudget::for_command(&self.settings);
        loop {
            let seen = self.blocks_and_manifest(project).await;
            let Some((blocks, manifest)) = retries.optimistic_read(seen).await? else { continue };
            cohort_lists::erase(&self.records, project, &erase, &mut retries).await?;
            continuity::erase(&self.records, project, &erase).await?;
            let left = self.emptied_but_some(project, manifest, now()).await?;
            if let Some(manifest) = left
                && self.try_empty(project, &manifest, &blocks, now).await?
            {
                return Ok(erased);
            }
            retries.after_conflict().await?;
        }
    }

    /// The ids of waiting blocks, and the manifest, which every reader reads after them.
    async fn blocks_and_manifest(
        &self,
        project: ProjectId,
    ) -> Result<(Vec<BlockId>, Manifest), EventStoreError> {
        loop {
            let partitions = self.blocks.partitions(project);
            let blocks = self.blocks.block_ids(project, partitions).await?;
            let manifest = self.manifests.load(project).await?;
            if self.blocks.has_read_all(project, partitions, &manifest) {
                return Ok((blocks, manifest));
            }
        }
    }

    /// Replaces everything that `manifest` lists, and `blocks`, by an empty segment. Returns none on a version
    /// conflict.
    async fn try_empty(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        blocks: &[BlockId],
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<bool, EventStoreError> {
        let new = nothing_left(project, manifest, blocks, now())?;
        self.segments.write_objects(&new).await?;
        let at = now();
        // Readers of the old segments get the whole grace period.
        let entry = SegmentEntry { at, ..new.entry.clone() };
        let records = emptied(manifest, at);
        let segments = std::slice::from_ref(&entry);
        let change = ManifestChange { segments, records: &records, ..ManifestChange::default() };
        if !self.log.erase_all_merges(project, manifest, &change, at).await? {
            self.segments.drop_objects(&new).await?;
            return Ok(false);
        }
        self.blocks.remove_blocks(project, blocks).await?;
        for block in blocks.iter().map(BlockId::to_string).filter(|block| manifest.damaged.contains(block)) {
            self.quarantine.lift(project, &block).await?;
        }
        self.mark_removed(project, manifest, &entry, now()).await?;
        let manifest = self.manifests.load(project).await?;
        self.log.sweep_merges(project, &manifest, now()).await?;
        Ok(true)
    }

    /// Counts what [`Eraser::erase_everything`] would erase, except damaged data and data above the limits.
    pub(super) async fn count_everything(
        &self,
        project: ProjectId,
    ) -> Result<ErasureReport, EventStoreError> {
        let manifest = self.manifests.load(project).await?;
        let erase = ErasureFilter { everything: true, ..ErasureFilter::default() };
        let with_events = || manifest.segments.iter().filter(|entry| entry.rows > 0);
        let waiting = countable(self.count_waiting(project).await)?;
        let persons = countable(self.lookup.count_people(project).await)?;
        Ok(ErasureReport {
            events: with_events().map(|entry| entry.rows).sum::<u64>() + waiting.unwrap_or(0),
            persons: persons.unwrap_or(0),
            segments: with_events().count(),
            cohorts: cohort_lists::naming(&self.records, project, &erase).await?,
            uncounted: waiting.is_none() || persons.is_none(),
        })
    }

    /// Counts the waiting events, without duplicates.
    async fn count_waiting(&self, project: ProjectId) -> Result<u64, EventStoreError> {
        let outline = self.snapshots.outline(project).await?;
        let waiting =
            self.duplicates.headers_not_in_segments(&outline.manifest, outline.waiting_events).await?;
        Ok(waiting.len() as u64)
    }

    /// Empties imports until the others fit into one transaction. Returns none on a version conflict.
    async fn emptied_but_some(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        now: Micros,
    ) -> Result<Option<Manifest>, EventStoreError> {
        loop {
            let records = emptied(&manifest, now);
            // The segment is replaced together with the last ones.
            if records.len() < SEGMENTS_MAX {
                return Ok(Some(manifest));
            }
            let change = ManifestChange { records: &records[..SEGMENTS_MAX], ..ManifestChange::default() };
            if self.manifests.apply(project, &manifest, &change).await? != ChangeOutcome::Applied {
                return Ok(None);
            }
            manifest = self.manifests.load(project).await?;
        }
    }

    /// Records in the new entry that the blocks it replaced are deleted.
    async fn mark_removed(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        entry: &SegmentEntry,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Some(blocks) = entry.blocks.clone() else { return Ok(()) };
        let blocks = Some(ReplacedBlocks { removed_at: Some(now), ..blocks });
        let entry = SegmentEntry { blocks, head: manifest.next_version(), ..entry.clone() };
        // A concurrent sweep writes the same.
        self.manifests.rewrite_segment(project, 0, &entry).await.map(drop)
    }
}

/// An empty segment that replaces all segments and `blocks`.
fn nothing_left(
    project: ProjectId,
    manifest: &Manifest,
    blocks: &[BlockId],
    now: Micros,
) -> Result<NewSegment, EventStoreError> {
    let mut new = NewSegment::new(project, now);
    new.replace(&ReplacedInputs {
        segments: manifest.segments.iter().map(|entry| entry.id.clone()).collect(),
        blocks: blocks.iter().map(BlockId::to_string).collect(),
    })?;
    Ok(new)
}

/// All import entries, without records.
fn emptied(manifest: &Manifest, now: Micros) -> Vec<EmptiedEntry> {
    let records = manifest.all_records();
    records.map(|(prefix, entry)| (prefix, manifest.version_of(&entry.id), entry.emptied(now))).collect()
}

/// The count; none where data is damaged or above the limits.
fn countable(counted: Result<u64, EventStoreError>) -> Result<Option<u64>, EventStoreError> {
    match counted {
        Ok(count) => Ok(Some(count)),
        Err(
            EventStoreError::Damaged { .. }
            | EventStoreError::DamagedBlock { .. }
            | EventStoreError::Corrupt(_)
            | EventStoreError::TooLarge(_)
            | EventStoreError::Store(StoreError::Busy(_)),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}
