//! Blocks into segments, and small segments into larger ones.
//!
//! Must stay true: doing it twice, at the same time or halfway changes no answer; a run takes a bounded number of
//! blocks and rows, so that it ends.

use std::collections::HashSet;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::ingest::{TRIES, TellsOf};
use crate::keys::BlockId;
use crate::manifest::{Manifest, SegmentEntry};
use crate::profile::Profile;
use crate::segment::values;
use crate::segment::write::Replaces;
use crate::tail::{RawBlock, resolve, rows_of};

/// Most bytes of blocks of one run, after inflation; one block at least is taken.
const INFLATED_BYTES_MAX: usize = 128 << 20;
/// Segments below this number of rows are merged.
const SMALL_ROWS: u64 = 200_000;
/// Most rows of a merged segment.
const MERGED_ROWS_MAX: u64 = 400_000;
/// Most small segments that are left as they are.
const SMALL_SEGMENTS_MAX: usize = 8;

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Blocks that segments hold now.
    pub blocks: usize,
    /// Events of them that were new.
    pub events: u64,
    /// Events of them that were copies.
    pub copies: u64,
    /// Segments that were merged into a larger one.
    pub merged_segments: usize,
    /// Whether blocks are left for another run.
    pub more: bool,
}

impl EventStore {
    /// Compacts a project's events once. Does nothing, cheaply, when there is nothing to do.
    pub async fn compact(&self, project: ProjectId, now: Micros) -> Result<Compacted, EventStoreError> {
        let mut compacted = self.compact_blocks(project, now).await?;
        compacted.merged_segments = self.merge_segments(project, now).await?;
        self.fold_merges(project, now).await?;
        Ok(compacted)
    }

    async fn compact_blocks(&self, project: ProjectId, now: Micros) -> Result<Compacted, EventStoreError> {
        for _ in 0..TRIES {
            let (mut blocks, mut more) = self.oldest_blocks(project).await?;
            if blocks.is_empty() {
                return Ok(Compacted::default());
            }
            // After the blocks, as every reader does.
            let manifest = Manifest::load(&self.inner.store, project).await?;
            let (replaced, left) =
                blocks.into_iter().partition(|block| manifest.replaced_blocks.contains(&block.id));
            // What an earlier run left behind when it stopped; it would be in the way of this one.
            self.remove(project, replaced).await?;
            blocks = left;
            more |= truncate(&mut blocks);
            if blocks.is_empty() {
                return Ok(Compacted { more, ..Compacted::default() });
            }
            let ids = blocks.iter().map(|block| block.id).collect::<Vec<_>>();
            let replaces =
                Replaces { blocks: ids.iter().map(BlockId::to_string).collect(), segments: Vec::new() };
            let rows = rows_of(project, blocks, &HashSet::new()).await?;
            let all_rows = rows.len() as u64;
            let mut rows = self.not_in_segments(&manifest, rows).await?;
            let resolution = self.resolution(project).await?;
            resolve(&mut rows, &resolution);
            let (rows, added) =
                self.add_segment(project, &manifest, rows, replaces, TellsOf::Captured, now).await?;
            if let Some(entry) = added {
                // Readers read blocks before the manifest, so these have had their last reader.
                self.inner.store.blocks.sweep(ids.iter().flat_map(|id| id.keys(project)).collect()).await?;
                let removed = SegmentEntry { blocks_removed: true, ..entry };
                Manifest::rewrite(&self.inner.store, project, 0, &removed).await?;
                let events = rows.len() as u64;
                let (blocks, copies) = (ids.len(), all_rows - events);
                return Ok(Compacted { blocks, events, copies, more, ..Compacted::default() });
            }
        }
        Err(EventStoreError::Contended)
    }

    async fn remove(&self, project: ProjectId, blocks: Vec<RawBlock>) -> Result<(), EventStoreError> {
        let keys = blocks.iter().flat_map(|block| block.id.keys(project)).collect::<Vec<_>>();
        Ok(self.inner.store.blocks.sweep(keys).await?)
    }

    /// Merges the oldest small segments when there are many. Returns how many.
    async fn merge_segments(&self, project: ProjectId, now: Micros) -> Result<usize, EventStoreError> {
        for _ in 0..TRIES {
            let manifest = Manifest::load(&self.inner.store, project).await?;
            if mergeable(&manifest.segments).is_empty() {
                return Ok(0);
            }
            // What is damaged stays as it is, and does not keep the others from being merged.
            let damaged = self.damage(project).await?;
            let mut whole = manifest.segments.clone();
            whole.retain(|entry| !damaged.contains_key(&entry.id));
            let together = mergeable(&whole);
            if together.is_empty() {
                return Ok(0);
            }
            let resolution = self.resolution(project).await?;
            let mut rows = Vec::new();
            let mut profile = Profile::default();
            for entry in &together {
                rows.extend(self.all_rows(entry).await?);
                profile.merge(self.whole_profile(project, entry).await?);
            }
            resolve(&mut rows, &resolution);
            let segments = together.iter().map(|entry| entry.id.clone()).collect();
            let replaces = Replaces { blocks: Vec::new(), segments };
            let tells = TellsOf::Known(profile);
            if self.add_segment(project, &manifest, rows, replaces, tells, now).await?.1.is_some() {
                return Ok(together.len());
            }
        }
        Err(EventStoreError::Contended)
    }

    /// All events of a segment.
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
                    .map(|batch| values::rows(batch, &file.footer))
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
}

/// Leaves as many blocks as one run takes, at least one. True when some are left out.
fn truncate(blocks: &mut Vec<RawBlock>) -> bool {
    let all = blocks.len();
    let mut bytes = 0;
    let fitting = blocks.iter().take_while(|block| {
        bytes += block.inflated_len();
        bytes <= INFLATED_BYTES_MAX
    });
    let count = fitting.count().max(1);
    blocks.truncate(count);
    count < all
}

/// The oldest small segments that fit into one, when there are more small ones than are left alone.
fn mergeable(segments: &[SegmentEntry]) -> Vec<SegmentEntry> {
    let small = segments.iter().filter(|entry| entry.rows < SMALL_ROWS).collect::<Vec<_>>();
    if small.len() <= SMALL_SEGMENTS_MAX {
        return Vec::new();
    }
    let mut rows = 0;
    let fits = small.into_iter().take_while(|entry| {
        rows += entry.rows;
        rows <= MERGED_ROWS_MAX
    });
    let together = fits.cloned().collect::<Vec<_>>();
    if together.len() < 2 { Vec::new() } else { together }
}
