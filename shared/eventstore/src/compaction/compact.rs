//! Blocks into segments, and small segments into larger ones.
//!
//! Must stay true: doing it twice, at the same time or halfway changes no answer; a run takes a bounded number of
//! blocks and rows, so that it ends. A merge adds and takes away no event, so it may be put on top of a manifest that has
//! changed meanwhile, if what it replaces is still there. A damaged block becomes part of no segment: it stays where it is,
//! and the others go on. A merge that cannot be done keeps no other one from its turn
//! ([`crate::compaction::merge_failures`]). What is replaced is noted as replaced when that happens, however long making the new segment took.

use std::sync::Arc;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::blocks::block_log::RawBlock;
use crate::blocks::replaced_blocks::ReplacedBlocks;
use crate::compaction::merge_policy::{self, Effort};
use crate::compaction::sweep::GRACE_MICROS;
use crate::erasure::ErasureFilter;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::ingest::duplicates::DuplicateCheck;
use crate::ingest::event_columns::InflatedBlocks;
use crate::integrity::quarantine;
use crate::keys::BlockId;
use crate::manifest::commit::NewSegment;
use crate::manifest::state::{Manifest, SegmentEntry};
use crate::objects::retry::RetryBudget;
use crate::persons::person_merges::PersonMerges;
use crate::persons::profiles::Profile;
use crate::persons::profiles::file::encode_groups;
use crate::persons::profiles::merge::merged_ids;
use crate::segments::property_values;
use crate::segments::uuids::uuid_index::UuidQuery;
use crate::time::WorkClock;

/// Most bytes of blocks of one run, after inflation; one block at least is taken.
pub(crate) const INFLATED_BYTES_MAX: u64 = 64 << 20;
/// Merges that may fail in one run. Each time half as many segments are tried, so that the one in the way is found.
const FAILED_MERGES_MAX: usize = 8;

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
    /// Merges that failed because of what was to be merged: it cannot be read, or its rows are not what they should be. The
    /// log says which, once; other segments are merged, and these are tried again after an hour.
    pub failed_merges: usize,
    /// Blocks that are damaged. They stay where they are, and nothing of them is in a segment.
    pub damaged_blocks: usize,
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
        self.failed_merges += other.failed_merges;
        self.damaged_blocks = self.damaged_blocks.max(other.damaged_blocks);
        self.more = other.more;
    }
}

/// What the blocks table holds for a run.
#[derive(Default)]
struct PendingBlocks {
    manifest: Manifest,
    /// The oldest ones that no segment of the manifest replaces and that are what was written.
    intact: Vec<RawBlock>,
    /// How many beside them are damaged.
    damaged: usize,
    /// Whether there are more.
    more: bool,
}

/// Blocks on their way into a segment.
struct Batch {
    /// When they had been read.
    read: WorkClock,
    ids: Vec<BlockId>,
    /// Events, copies included.
    sent: u64,
    inflated: u64,
    wanted: Arc<UuidQuery>,
    duplicates: DuplicateCheck,
    new: NewSegment,
}

impl EventStore {
    /// Compacts a project's events once: some blocks, and one merge. Does nothing, cheaply, when there is nothing to do.
    pub async fn compact(&self, project: ProjectId, now: Micros) -> Result<Compacted, EventStoreError> {
        let blocks = self.compact_blocks(project, now).await?;
        let merged = self.merge_segments(project, now, Effort::Due).await?;
        let Compacted { merged_segments, merged_rows, failed_merges, .. } = merged;
        Ok(Compacted { merged_segments, merged_rows, failed_merges, ..blocks })
    }

    /// Turns the oldest blocks of a project into a segment.
    pub async fn compact_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<Compacted, EventStoreError> {
        let clock = WorkClock::start(now);
        let mut retries = self.background_retries();
        loop {
            let seen = self.pending_blocks(project).await;
            let Some(waiting) = retries.optimistic_read(seen).await? else { continue };
            let PendingBlocks { manifest, intact: blocks, damaged: damaged_blocks, more } = waiting;
            if blocks.is_empty() {
                return Ok(Compacted { damaged_blocks, more, ..Compacted::default() });
            }
            let batch = self.segment_of_blocks(project, &manifest, blocks, now).await?;
            if let Some(entry) = self.list_or_discard(project, manifest, &batch, &mut retries).await? {
                // Whoever read them before reads the manifest after, which lists the segment.
                self.remove_blocks(project, &batch.ids).await?;
                let removed_at = Some(clock.now());
                let blocks = entry.blocks.map(|blocks| ReplacedBlocks { removed_at, ..blocks });
                let entry = SegmentEntry { blocks, ..entry };
                Manifest::rewrite(&self.inner.store, project, 0, &entry).await?;
                let (blocks, events, inflated) = (batch.ids.len(), entry.rows, batch.inflated);
                let copies = batch.sent - events;
                let done = Compacted {
                    blocks,
                    events,
                    copies,
                    inflated,
                    damaged_blocks,
                    more,
                    ..Compacted::default()
                };
                return Ok(done);
            }
        }
    }

    /// The oldest blocks of a project. Where all of those are damaged, the ones behind them: whatever is damaged, others
    /// become segments.
    async fn pending_blocks(&self, project: ProjectId) -> Result<PendingBlocks, EventStoreError> {
        let mut waiting = PendingBlocks::default();
        let mut from = None;
        loop {
            let (blocks, next) = self.oldest_blocks(project, from).await?;
            waiting.more = next.is_some();
            if blocks.is_empty() {
                return Ok(waiting);
            }
            // After the blocks, as every reader does.
            waiting.manifest = Manifest::load(&self.inner.store, project).await?;
            let (blocks, replaced) = self.split_replaced(&waiting.manifest, blocks).await?;
            // What an earlier run left behind when it stopped; it would be in the way of this one.
            let replaced = replaced.iter().map(|block| block.id).collect::<Vec<_>>();
            self.remove_blocks(project, &replaced).await?;
            let duplicates = self.verify_blocks(project, &waiting.manifest, blocks).await?;
            waiting.damaged += duplicates.damaged.len();
            waiting.intact = duplicates.intact;
            if waiting.intact.is_empty() && next.is_some() && !duplicates.damaged.is_empty() {
                from = next;
                continue;
            }
            waiting.more |= truncate(&mut waiting.intact, self.inner.settings.compacted_bytes);
            return Ok(waiting);
        }
    }

    /// The segment with those events of `blocks` that no segment of the manifest holds; its objects are stored.
    async fn segment_of_blocks(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
        now: Micros,
    ) -> Result<Batch, EventStoreError> {
        let read = WorkClock::start(now);
        let ids = blocks.iter().map(|block| block.id).collect::<Vec<_>>();
        let inflated = blocks.iter().map(RawBlock::inflated_len).sum::<usize>() as u64;
        let inflated_blocks = tokio::task::spawn_blocking(move || InflatedBlocks::of(blocks)).await??;
        let (sent, wanted) = (inflated_blocks.events, inflated_blocks.wanted());
        let mut duplicates = DuplicateCheck::new(manifest);
        self.check_duplicates(&mut duplicates, manifest, &wanted).await?;
        let person_merges = self.person_merges(project).await?;
        let (held, range_rows) = (duplicates.held.clone(), self.range_rows());
        let made = move || inflated_blocks.segment(project, &held, &person_merges, range_rows, now);
        let mut new = tokio::task::spawn_blocking(made).await??;
        self.write_objects(&new).await?;
        new.forget_content();
        Ok(Batch { read, ids, sent, inflated, wanted, duplicates, new })
    }

    /// Lists the segment of a batch, on top of `manifest` or of a later one that holds none of its events either. None, and
    /// nothing stays of it, where it has to be made anew.
    async fn list_or_discard(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        batch: &Batch,
        retries: &mut RetryBudget,
    ) -> Result<Option<SegmentEntry>, EventStoreError> {
        let mut duplicates = batch.duplicates.clone();
        let outcome = loop {
            if self.list(project, &manifest, &batch.new).await? {
                return Ok(Some(SegmentEntry { head: manifest.next_version(), ..batch.new.entry.clone() }));
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
            manifest = Manifest::load(&self.inner.store, project).await?;
            match self.is_still_valid(batch, &mut duplicates, &manifest).await {
                Ok(true) => {}
                // Also where something was replaced and removed while it was read.
                Ok(false) | Err(EventStoreError::Contended) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.drop_objects(&batch.new).await?;
        outcome
    }

    /// Whether the segment of a batch is what it would be if it were made on top of `manifest`: its blocks wait, none of its
    /// events is held, and nobody was erased.
    async fn is_still_valid(
        &self,
        batch: &Batch,
        duplicates: &mut DuplicateCheck,
        manifest: &Manifest,
    ) -> Result<bool, EventStoreError> {
        // Events that somebody else made a segment of may be erased already, and be held by none. Which blocks were
        // replaced is told for as long as the grace period.
        let is_late = batch.read.elapsed() > GRACE_MICROS / 2;
        if duplicates.is_stale(manifest) || is_late || self.is_any_replaced(manifest, &batch.ids).await? {
            return Ok(false);
        }
        self.check_duplicates(duplicates, manifest, &batch.wanted).await?;
        Ok(duplicates.held.len() == batch.duplicates.held.len())
    }

    /// Merges the segments that are due first, or else writes one anew in which many persons are others by now. Does
    /// nothing, cheaply, when none are.
    pub async fn merge_segments(
        &self,
        project: ProjectId,
        now: Micros,
        effort: Effort,
    ) -> Result<Compacted, EventStoreError> {
        let clock = WorkClock::start(now);
        self.fold_merges(project, clock).await?;
        let mut manifest = Manifest::load(&self.inner.store, project).await?;
        if self.write_imported_merges(project, &manifest, clock).await? {
            manifest = Manifest::load(&self.inner.store, project).await?;
        }
        let mut failed_merges = 0;
        for _ in 0..FAILED_MERGES_MAX {
            let entries = self.segments_to_merge(project, &manifest, effort).await?;
            if entries.is_empty() {
                break;
            }
            // Where this fails it is of no segment, and no other merge would do better.
            let person_merges = self.person_merges(project).await?;
            match self.merge(project, manifest, &entries, &person_merges, clock).await {
                Ok(done) => return Ok(Compacted { failed_merges, ..done }),
                Err(error) => {
                    failed_merges += usize::from(self.record_merge_failure(project, &entries, error)?)
                }
            }
            manifest = Manifest::load(&self.inner.store, project).await?;
        }
        Ok(Compacted { failed_merges, ..Compacted::default() })
    }

    /// The segments that are to be written as one, or the one that is to be written anew; none when none is.
    async fn segments_to_merge(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        effort: Effort,
    ) -> Result<Vec<SegmentEntry>, EventStoreError> {
        // What is damaged is left alone; the others go on.
        let intact = manifest.segments.iter().filter(|entry| !manifest.damaged.contains(&entry.id));
        let merge_candidates = merge_policy::next(
            &intact.cloned().collect::<Vec<_>>(),
            effort,
            &self.inner.merge_failures.failed(),
        );
        if !merge_candidates.is_empty() {
            return Ok(merge_candidates);
        }
        Ok(self.segment_with_stale_persons(project, manifest).await?.into_iter().collect())
    }

    /// Sees to it that `entries` are not chosen again that could not be written as one, if that is because of what they are;
    /// of a damaged one that no other has to suffer for it. Whether it is a failure: that they are too large for it is none.
    fn record_merge_failure(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        error: EventStoreError,
    ) -> Result<bool, EventStoreError> {
        let entries = match &error {
            EventStoreError::Damaged { object, .. } => {
                let owner = quarantine::segment_of(object);
                let owner = entries.iter().position(|entry| Some(entry.id.as_str()) == owner);
                let Some(owner) = owner else { return Err(error) };
                &entries[owner..=owner]
            }
            _ => entries,
        };
        let segments = entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(" ");
        let is_failure = match &error {
            EventStoreError::TooLarge(why) => {
                tracing::info!(project, segments, why, "segments stay apart");
                false
            }
            EventStoreError::Damaged { .. } | EventStoreError::Corrupt(_) => {
                tracing::error!(project, segments, %error, "segments could not be merged, and others are");
                true
            }
            _ => return Err(error),
        };
        self.inner.merge_failures.note(entries);
        Ok(is_failure)
    }

    /// Writes `entries` of `manifest` as one segment, and puts it in their place.
    async fn merge(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        entries: &[SegmentEntry],
        person_merges: &PersonMerges,
        clock: WorkClock,
    ) -> Result<Compacted, EventStoreError> {
        let made = self
            .merged_segment(project, entries, &ErasureFilter::default(), person_merges, clock.now())
            .await;
        let mut new = match made {
            // Another run was faster, and what was read is gone already.
            Err(EventStoreError::Contended) => return Ok(Compacted::default()),
            made => made?,
        };
        self.write_objects(&new).await?;
        new.forget_content();
        let mut retries = self.background_retries();
        let outcome = loop {
            let are_there =
                entries.iter().all(|entry| manifest.segments.iter().any(|live| live.id == entry.id));
            if !are_there {
                // Another run was faster, with some of them at least.
                break Ok(Compacted::default());
            }
            // Whoever has begun with what is there reads on for the grace period, however long it took to come here.
            new.entry.at = clock.now();
            if self.list(project, &manifest, &new).await? {
                let merged_rows = entries.iter().map(|entry| entry.rows).sum();
                return Ok(Compacted { merged_segments: entries.len(), merged_rows, ..Compacted::default() });
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
            manifest = Manifest::load(&self.inner.store, project).await?;
        };
        self.drop_objects(&new).await?;
        outcome
    }

    /// The segment that holds the events of `entries` but those that `erase` names, under whom they are by `person_merges`.
    pub(crate) async fn merged_segment(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        erase: &ErasureFilter,
        person_merges: &PersonMerges,
        now: Micros,
    ) -> Result<NewSegment, EventStoreError> {
        let person_merges = Arc::new(person_merges.clone());
        let mut new = NewSegment::new(project, now);
        new.entry.replaces_segments = entries.iter().map(|entry| entry.id.clone()).collect();
        let left = entries.iter().filter(|entry| !erase.covers(entry)).cloned().collect::<Vec<_>>();
        if let Some(written) = self.merge_rows(&left, &person_merges, erase).await? {
            new.put(written);
        }
        let mut files = Vec::new();
        let mut groups = Profile::default();
        for entry in entries.iter().filter(|entry| entry.has_profiles()) {
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
}

/// Leaves as many blocks as one run takes, at least one. True when some are left out.
fn truncate(blocks: &mut Vec<RawBlock>, most: u64) -> bool {
    let all = blocks.len();
    let mut bytes = 0;
    let fitting = blocks.iter().take_while(|block| {
        bytes += block.inflated_len() as u64;
        bytes <= most
    });
    let count = fitting.count().max(1);
    blocks.truncate(count);
    count < all
}
