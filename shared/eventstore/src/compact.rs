//! Blocks into segments, and small segments into larger ones.
//!
//! Must stay true: doing it twice, at the same time or halfway changes no answer; a run takes a bounded number of
//! blocks and rows, so that it ends. A merge adds and takes away no event, so it may be put on top of a manifest that has
//! changed meanwhile, if what it replaces is still there.

use std::sync::Arc;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::commit::NewSegment;
use crate::erase::Erase;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::ingest::TRIES;
use crate::intake::Opened;
use crate::manifest::{Manifest, SegmentEntry};
use crate::profile::Profile;
use crate::profile::file::encode_groups;
use crate::profile::merge::merged_ids;
use crate::replaced::ReplacedBlocks;
use crate::resolution::Resolution;
use crate::segment::values;
use crate::tail::RawBlock;
use crate::tiers::{self, Effort};

/// Most bytes of blocks of one run, after inflation; one block at least is taken.
const INFLATED_BYTES_MAX: usize = 64 << 20;

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Blocks that segments hold now.
    pub blocks: usize,
    /// Events of them that were new.
    pub events: u64,
    /// Events of them that were copies.
    pub copies: u64,
    /// Bytes of the blocks of one run after inflation, at most: what the run had in memory at once, besides columns of the
    /// same events.
    pub inflated: u64,
    /// Segments that were merged into a larger one, or written anew.
    pub merged_segments: usize,
    /// Rows of the segments that were merged.
    pub merged_rows: u64,
    /// Whether blocks are left for another run.
    pub more: bool,
}

impl Compacted {
    /// Whether another run would find something to do.
    pub fn goes_on(&self) -> bool {
        self.more || self.merged_segments > 0
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: &Compacted) {
        self.blocks += other.blocks;
        self.events += other.events;
        self.copies += other.copies;
        self.inflated = self.inflated.max(other.inflated);
        self.merged_segments += other.merged_segments;
        self.merged_rows += other.merged_rows;
        self.more = other.more;
    }
}

impl EventStore {
    /// Compacts a project's events once: some blocks, and one merge. Does nothing, cheaply, when there is nothing to do.
    pub async fn compact(&self, project: ProjectId, now: Micros) -> Result<Compacted, EventStoreError> {
        let blocks = self.compact_blocks(project, now).await?;
        let merged = self.merge_segments(project, now, Effort::Due).await?;
        let (merged_segments, merged_rows) = (merged.merged_segments, merged.merged_rows);
        Ok(Compacted { merged_segments, merged_rows, ..blocks })
    }

    /// Turns the oldest blocks of a project into a segment.
    pub async fn compact_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<Compacted, EventStoreError> {
        for _ in 0..TRIES {
            let (blocks, mut more) = self.oldest_blocks(project).await?;
            if blocks.is_empty() {
                return Ok(Compacted::default());
            }
            // After the blocks, as every reader does.
            let manifest = Manifest::load(&self.inner.store, project).await?;
            let (mut blocks, replaced) = self.split_replaced(&manifest, blocks).await?;
            // What an earlier run left behind when it stopped; it would be in the way of this one.
            let replaced = replaced.iter().map(|block| block.id).collect::<Vec<_>>();
            self.remove_blocks(project, &replaced).await?;
            more |= truncate(&mut blocks);
            if blocks.is_empty() {
                return Ok(Compacted { more, ..Compacted::default() });
            }
            let ids = blocks.iter().map(|block| block.id).collect::<Vec<_>>();
            let inflated = blocks.iter().map(RawBlock::inflated_len).sum::<usize>() as u64;
            let opened = tokio::task::spawn_blocking(move || Opened::of(blocks)).await??;
            let held = self.held(&manifest, &opened.wanted()).await?;
            let resolution = self.resolution(project).await?;
            let (sent, range_rows) = (opened.events, self.range_rows());
            let made = move || opened.segment(project, &held, &resolution, range_rows, now);
            let made = tokio::task::spawn_blocking(made).await??;
            if let Some(entry) = self.add_new(project, &manifest, made).await? {
                // Whoever read them before reads the manifest after, which lists the segment.
                self.remove_blocks(project, &ids).await?;
                let blocks = entry.blocks.map(|blocks| ReplacedBlocks { removed_at: Some(now), ..blocks });
                let entry = SegmentEntry { blocks, head: manifest.next_version(), ..entry };
                Manifest::rewrite(&self.inner.store, project, 0, &entry).await?;
                let (blocks, events) = (ids.len(), entry.rows);
                let done = Compacted {
                    blocks,
                    events,
                    copies: sent - events,
                    inflated,
                    more,
                    ..Compacted::default()
                };
                return Ok(done);
            }
        }
        Err(EventStoreError::Contended)
    }

    /// Merges the segments that are due first, or else writes one anew in which many persons are others by now. Does
    /// nothing, cheaply, when none are.
    pub async fn merge_segments(
        &self,
        project: ProjectId,
        now: Micros,
        effort: Effort,
    ) -> Result<Compacted, EventStoreError> {
        self.fold_merges(project, now).await?;
        let mut manifest = Manifest::load(&self.inner.store, project).await?;
        if self.write_links(project, &manifest, now).await? {
            manifest = Manifest::load(&self.inner.store, project).await?;
        }
        // What is damaged is left alone; the others go on.
        let whole = manifest.segments.iter().filter(|entry| !manifest.damaged.contains(&entry.id));
        let together = tiers::next(&whole.cloned().collect::<Vec<_>>(), effort);
        if !together.is_empty() {
            return self.merge(project, manifest, &together, now).await;
        }
        match self.with_moved_persons(project, &manifest).await? {
            Some(entry) => self.merge(project, manifest, &[entry], now).await,
            None => Ok(Compacted::default()),
        }
    }

    /// Writes `entries` of `manifest` as one segment, and puts it in their place.
    async fn merge(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        entries: &[SegmentEntry],
        now: Micros,
    ) -> Result<Compacted, EventStoreError> {
        let resolution = self.resolution(project).await?;
        let new = self.merged_segment(project, entries, &Erase::default(), &resolution, now).await?;
        self.write_objects(&new).await?;
        for _ in 0..TRIES {
            let are_there =
                entries.iter().all(|entry| manifest.segments.iter().any(|live| live.id == entry.id));
            if !are_there {
                // Another run was faster, with some of them at least.
                self.drop_objects(&new).await?;
                return Ok(Compacted::default());
            }
            if self.list(project, &manifest, &new).await? {
                let merged_rows = entries.iter().map(|entry| entry.rows).sum();
                return Ok(Compacted { merged_segments: entries.len(), merged_rows, ..Compacted::default() });
            }
            manifest = Manifest::load(&self.inner.store, project).await?;
        }
        self.drop_objects(&new).await?;
        Err(EventStoreError::Contended)
    }

    /// The segment that holds the events of `entries` but those that `erase` names, under whom they are by `resolution`.
    pub(crate) async fn merged_segment(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        erase: &Erase,
        resolution: &Resolution,
        now: Micros,
    ) -> Result<NewSegment, EventStoreError> {
        let resolution = Arc::new(resolution.clone());
        let mut new = NewSegment::new(project, now);
        new.entry.replaces_segments = entries.iter().map(|entry| entry.id.clone()).collect();
        let left = entries.iter().filter(|entry| !erase.covers(entry)).cloned().collect::<Vec<_>>();
        if let Some(written) = self.merged(&left, &resolution, erase).await? {
            new.put(written);
        }
        let mut files = Vec::new();
        let mut groups = Profile::default();
        for entry in entries.iter().filter(|entry| entry.tells()) {
            match &entry.ids {
                Some(ids) => files.push(self.opened(ids).await?),
                None if entry.rows > 0 => {
                    return Err(EventStoreError::corrupt("a segment without its distinct ids"));
                }
                None => {}
            }
            groups.merge(Profile { groups: self.groups_in_segment(entry).await?, ..Profile::default() });
        }
        let (ids, rows) = merged_ids(&self.inner.objects, files, &erase.persons).await?;
        if rows > 0 {
            new.put_ids(ids, rows);
        }
        if !groups.groups.is_empty() {
            new.put_groups(encode_groups(&groups)?, groups.groups.len() as u64);
        }
        Ok(new)
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
