//! Compaction: turns waiting blocks into segments, and merges small segments into larger ones.
//!
//! Must stay true: a run that is repeated, runs concurrently with another, or stops halfway changes no query
//! result. A run takes a bounded number of blocks and rows, so it ends. A merge neither adds nor removes an
//! event, so it may be committed on top of a changed manifest if the segments that it replaces are still
//! listed. A damaged block becomes part of no segment: it stays where it is, and the others go on. A merge that
//! fails does not block other merges ([`crate::compaction::merge_failures`]). The time at which something was
//! replaced is taken at the commit, however long the new segment took to write.

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use crate::blocks::{BlockLog, RawBlock};
use crate::compaction::merge_attempts::MergeAttempts;
use crate::compaction::merge_failures::{FailedMerges, MergeFailures};
use crate::compaction::merge_policy::{self, MergeLimits, MergeMode};
use crate::compaction::segment_merge::SegmentMerger;
use crate::compaction::stale_persons::StalePersonChecks;
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::ingest::InflatedBlocks;
use crate::keys::BlockId;
use crate::manifest::{GRACE_MICROS, Manifest, ManifestStore, ReplacedBlocks, SegmentEntry};
use crate::objects::{RetryBudget, segment_of};
use crate::persons::{ErasureFilter, ImportedRecords, MergeLog, PersonIndex, PersonMerges};
use crate::segments::uuids::uuid_index::UuidQuery;
use crate::segments::{DuplicateCheck, DuplicateFinder, NewSegment, SegmentStore};
use crate::settings::Settings;
use crate::time::WorkClock;

/// Most failed merges in one run. Each attempt takes half as many segments, so that the failing one is
/// isolated.
const FAILED_MERGES_MAX: usize = 8;

/// Counters of a compaction run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Blocks that were turned into segments.
    pub blocks: usize,
    /// New events in these blocks.
    pub events: u64,
    /// Duplicate events in these blocks.
    pub copies: u64,
    /// How long the oldest of these blocks had waited.
    pub waited_micros: u64,
    /// Decompressed bytes of the blocks of one run, at most: what the run held in memory, besides columns of
    /// the same events.
    pub inflated: u64,
    /// Segments that were merged into a larger one, or rewritten.
    pub merged_segments: usize,
    /// Rows of the segments that were merged.
    pub merged_rows: u64,
    /// Merges that failed because a segment cannot be read or has invalid rows. The log names it, once. Other
    /// segments are merged, and these are retried after an hour.
    pub failed_merges: usize,
    /// Damaged blocks. They stay where they are, and no segment contains any of their events.
    pub damaged_blocks: usize,
    /// Whether blocks are left for another run.
    pub more: bool,
}

impl CompactionReport {
    /// Whether another run would find work.
    pub fn has_more_work(&self) -> bool {
        self.more || self.merged_segments > 0
    }

    /// Adds the counters of another run.
    pub fn add(&mut self, other: &CompactionReport) {
        self.blocks += other.blocks;
        self.events += other.events;
        self.copies += other.copies;
        self.inflated = self.inflated.max(other.inflated);
        self.waited_micros = self.waited_micros.max(other.waited_micros);
        self.merged_segments += other.merged_segments;
        self.merged_rows += other.merged_rows;
        self.failed_merges += other.failed_merges;
        self.damaged_blocks = self.damaged_blocks.max(other.damaged_blocks);
        self.more = other.more;
    }
}

/// The blocks that a run compacts.
#[derive(Default)]
struct PendingBlocks {
    manifest: Manifest,
    /// The oldest blocks that are undamaged and not replaced by a segment of the manifest.
    intact: Vec<RawBlock>,
    /// Number of damaged blocks.
    damaged: usize,
    /// Whether there are more blocks.
    more: bool,
}

/// Blocks and the segment made of them.
struct CompactionBatch {
    /// When they were read.
    read: WorkClock,
    ids: Vec<BlockId>,
    /// Number of events, duplicates included.
    sent: u64,
    inflated: u64,
    requested: Arc<UuidQuery>,
    duplicates: DuplicateCheck,
    new: NewSegment,
}

/// Turns blocks into segments, and merges segments.
#[derive(Debug)]
pub(crate) struct Compactor {
    pub manifests: Arc<ManifestStore>,
    pub blocks: Arc<BlockLog>,
    pub segments: Arc<SegmentStore>,
    pub duplicates: Arc<DuplicateFinder>,
    pub index: Arc<PersonIndex>,
    pub imports: Arc<ImportedRecords>,
    pub log: Arc<MergeLog>,
    pub merger: Arc<SegmentMerger>,
    pub settings: Settings,
    pub merge_failures: MergeFailures,
    pub merge_attempts: MergeAttempts,
    pub stale_person_checks: StalePersonChecks,
}

impl Compactor {
    /// Runs compaction once: some blocks, and one merge. Cheap when there is nothing to do.
    pub(crate) async fn compact(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        let blocks = self.compact_blocks(project, now).await?;
        let merged = self.merge_segments(project, now, MergeMode::Due).await?;
        let CompactionReport { merged_segments, merged_rows, failed_merges, .. } = merged;
        Ok(CompactionReport { merged_segments, merged_rows, failed_merges, ..blocks })
    }

    /// Turns the oldest blocks of a project into a segment.
    pub(crate) async fn compact_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        self.compact_blocks_if(project, now, |_| true).await
    }

    /// As [`Compactor::compact_blocks`], if all waiting blocks pass `is_due`, or there are more than a run takes.
    pub(super) async fn compact_blocks_if(
        &self,
        project: ProjectId,
        now: Micros,
        is_due: impl Fn(&[RawBlock]) -> bool,
    ) -> Result<CompactionReport, EventStoreError> {
        let clock = WorkClock::start(now);
        let mut retries = RetryBudget::for_background_task(&self.settings);
        loop {
            let seen = self.pending_blocks(project).await;
            let Some(waiting) = retries.optimistic_read(seen).await? else { continue };
            let PendingBlocks { manifest, intact: blocks, damaged: damaged_blocks, more } = waiting;
            if blocks.is_empty() || !more && !is_due(&blocks) {
                return Ok(CompactionReport { damaged_blocks, more, ..CompactionReport::default() });
            }
            let batch = self.segment_of_blocks(project, &manifest, blocks, now).await?;
            if let Some(entry) = self.list_or_discard(project, manifest, &batch, &mut retries).await? {
                // A reader that read the blocks before reads the manifest after, which lists the segment.
                self.blocks.remove_blocks(project, &batch.ids).await?;
                let removed_at = Some(clock.now());
                let blocks = entry.blocks.map(|blocks| ReplacedBlocks { removed_at, ..blocks });
                let entry = SegmentEntry { blocks, ..entry };
                self.manifests.rewrite_segment(project, 0, &entry).await?;
                let (blocks, events, inflated) = (batch.ids.len(), entry.rows, batch.inflated);
                let copies = batch.sent - events;
                let oldest = batch.ids.iter().map(|id| id.micros).min();
                let waited_micros = oldest.map_or(0, |oldest| micros_u64(now).saturating_sub(oldest));
                let done = CompactionReport {
                    blocks,
                    events,
                    copies,
                    waited_micros,
                    inflated,
                    damaged_blocks,
                    more,
                    ..CompactionReport::default()
                };
                return Ok(done);
            }
        }
    }

    /// Reads the oldest blocks of a project. If all of those are damaged, continues behind them, so that damage
    /// never stops compaction.
    async fn pending_blocks(&self, project: ProjectId) -> Result<PendingBlocks, EventStoreError> {
        let mut waiting = PendingBlocks::default();
        let mut from = None;
        loop {
            let partitions = self.blocks.partitions(project);
            let (blocks, next) = self.blocks.oldest_blocks(project, partitions, from).await?;
            // After the blocks: the read order of every reader.
            waiting.manifest = self.manifests.load(project).await?;
            if !self.blocks.has_read_all(project, partitions, &waiting.manifest) {
                continue;
            }
            waiting.more = next.is_some();
            if blocks.is_empty() {
                return Ok(waiting);
            }
            let (blocks, replaced) = self.blocks.split_replaced(&waiting.manifest, blocks).await?;
            // Left by an earlier run that stopped; it would block this one.
            let replaced = replaced.iter().map(|block| block.id).collect::<Vec<_>>();
            self.blocks.remove_blocks(project, &replaced).await?;
            let duplicates = self.blocks.verify_blocks(project, &waiting.manifest, blocks).await?;
            waiting.damaged += duplicates.damaged.len();
            waiting.intact = duplicates.intact;
            if waiting.intact.is_empty() && next.is_some() && !duplicates.damaged.is_empty() {
                from = next;
                continue;
            }
            waiting.more |= truncate(&mut waiting.intact, self.settings.compacted_bytes);
            return Ok(waiting);
        }
    }

    /// Writes the segment with those events of `blocks` that no segment of the manifest holds. Its objects are
    /// stored but not listed.
    async fn segment_of_blocks(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        blocks: Vec<RawBlock>,
        now: Micros,
    ) -> Result<CompactionBatch, EventStoreError> {
        let read = WorkClock::start(now);
        let ids = blocks.iter().map(|block| block.id).collect::<Vec<_>>();
        let inflated = blocks.iter().map(RawBlock::inflated_len).sum::<usize>() as u64;
        let inflated_blocks = tokio::task::spawn_blocking(move || InflatedBlocks::of(blocks)).await??;
        let (sent, requested) = (inflated_blocks.events, inflated_blocks.requested());
        let mut duplicates = DuplicateCheck::new(manifest);
        self.duplicates.check_duplicates(&mut duplicates, manifest, &requested).await?;
        let person_merges = self.index.person_merges(project).await?;
        let (held, range_rows) = (duplicates.held.clone(), self.segments.range_rows);
        let made = move || inflated_blocks.segment(project, &held, &person_merges, range_rows, now);
        let mut new = tokio::task::spawn_blocking(made).await??;
        self.segments.write_objects(&new).await?;
        new.forget_content();
        Ok(CompactionBatch { read, ids, sent, inflated, requested, duplicates, new })
    }

    /// Lists the segment of a batch, on top of `manifest` or of a later one if that holds none of its events.
    /// Returns none, and removes the objects, when the segment has to be rebuilt.
    async fn list_or_discard(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        batch: &CompactionBatch,
        retries: &mut RetryBudget,
    ) -> Result<Option<SegmentEntry>, EventStoreError> {
        let mut duplicates = batch.duplicates.clone();
        let outcome = loop {
            if self.segments.list(project, &manifest, &batch.new).await? {
                return Ok(Some(SegmentEntry { head: manifest.next_version(), ..batch.new.entry.clone() }));
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
            manifest = self.manifests.load(project).await?;
            match self.is_still_valid(batch, &mut duplicates, &manifest).await {
                Ok(true) => {}
                // Contended: an object was replaced and removed while it was read.
                Ok(false) | Err(EventStoreError::Contended) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.segments.drop_objects(&batch.new).await?;
        outcome
    }

    /// Whether the segment would be the same if it were built on top of `manifest`: its blocks still wait, none
    /// of its events is in a segment, and no person was erased since.
    async fn is_still_valid(
        &self,
        batch: &CompactionBatch,
        duplicates: &mut DuplicateCheck,
        manifest: &Manifest,
    ) -> Result<bool, EventStoreError> {
        // Another run may have made a segment of these events that was erased since, so no segment holds them.
        // Lists of replaced blocks are kept for the grace period only.
        let is_late = batch.read.elapsed() > GRACE_MICROS / 2;
        if duplicates.is_stale(manifest)
            || is_late
            || self.blocks.is_any_replaced(manifest, &batch.ids).await?
        {
            return Ok(false);
        }
        self.duplicates.check_duplicates(duplicates, manifest, &batch.requested).await?;
        Ok(duplicates.held.len() == batch.duplicates.held.len())
    }

    /// Merges the segments that [`merge_policy`] selects, or else rewrites one segment with many merged
    /// persons. Cheap when there is nothing to do.
    pub(crate) async fn merge_segments(
        &self,
        project: ProjectId,
        now: Micros,
        effort: MergeMode,
    ) -> Result<CompactionReport, EventStoreError> {
        let clock = WorkClock::start(now);
        self.log.fold_merges(project, clock).await?;
        let mut manifest = self.manifests.load(project).await?;
        if self.imports.write_imported_merges(project, &manifest, clock).await? {
            manifest = self.manifests.load(project).await?;
        }
        let mut failed_merges = 0;
        for _ in 0..FAILED_MERGES_MAX {
            let failed = self.failed_merges(project, clock.now()).await?;
            let entries = self.segments_to_merge(project, &manifest, effort, &failed).await?;
            if entries.is_empty() {
                break;
            }
            // An error here does not come from a segment, and any other merge would fail too.
            let person_merges = self.index.person_merges(project).await?;
            let attempt = self.merge_attempts.begin(project, &entries, clock.now()).await?;
            let merged = self.merge(project, manifest, &entries, &person_merges, clock).await;
            self.merge_attempts.end(attempt).await?;
            match merged {
                Ok(done) => return Ok(CompactionReport { failed_merges, ..done }),
                Err(error) => {
                    failed_merges += usize::from(self.record_merge_failure(project, &entries, error)?)
                }
            }
            manifest = self.manifests.load(project).await?;
        }
        Ok(CompactionReport { failed_merges, ..CompactionReport::default() })
    }

    /// The segments to merge, or the one to rewrite; empty when there is no work.
    async fn segments_to_merge(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        effort: MergeMode,
        failed: &FailedMerges,
    ) -> Result<Vec<SegmentEntry>, EventStoreError> {
        let merge_candidates = self.merge_candidates(manifest, effort, failed);
        if !merge_candidates.is_empty() {
            return Ok(merge_candidates);
        }
        Ok(self.segment_with_stale_persons(project, manifest, failed).await?.into_iter().collect())
    }

    /// The segments that the policy selects.
    pub(super) fn merge_candidates(
        &self,
        manifest: &Manifest,
        effort: MergeMode,
        failed: &FailedMerges,
    ) -> Vec<SegmentEntry> {
        // Damaged segments are skipped.
        let intact = manifest.segments.iter().filter(|entry| !manifest.damaged.contains(&entry.id));
        let limits = MergeLimits { effort, bytes: self.settings.merged_bytes };
        merge_policy::next(&intact.cloned().collect::<Vec<_>>(), limits, failed)
    }

    pub(super) async fn failed_merges(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<FailedMerges, EventStoreError> {
        Ok(self.merge_failures.failed_with(self.merge_attempts.unfinished(project, now).await?))
    }

    /// Excludes `entries` from further merges if the error comes from their content. A damaged segment is
    /// excluded alone. Returns whether it counts as a failure: being too large does not.
    fn record_merge_failure(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        error: EventStoreError,
    ) -> Result<bool, EventStoreError> {
        let entries = match &error {
            EventStoreError::Damaged { object, .. } => {
                let owner = segment_of(object);
                let owner = entries.iter().position(|entry| Some(entry.id.as_str()) == owner);
                let Some(owner) = owner else { return Err(error) };
                &entries[owner..=owner]
            }
            _ => entries,
        };
        let segments = entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(" ");
        let is_failure = match &error {
            EventStoreError::TooLarge(why) => {
                tracing::info!(project, segments, why, "segments are too large to merge");
                false
            }
            EventStoreError::Damaged { .. } | EventStoreError::Corrupt(_) => {
                tracing::error!(project, segments, %error, "segments could not be merged; other merges continue");
                true
            }
            _ => return Err(error),
        };
        self.merge_failures.record(entries);
        Ok(is_failure)
    }

    /// Merges `entries` into one segment and replaces them in the manifest.
    async fn merge(
        &self,
        project: ProjectId,
        mut manifest: Manifest,
        entries: &[SegmentEntry],
        person_merges: &PersonMerges,
        clock: WorkClock,
    ) -> Result<CompactionReport, EventStoreError> {
        let made = self
            .merger
            .merged_segment(project, entries, &ErasureFilter::default(), person_merges, clock.now())
            .await;
        let mut new = match made {
            // Another run replaced them, and their objects are already removed.
            Err(EventStoreError::Contended) => return Ok(CompactionReport::default()),
            made => made?,
        };
        self.segments.write_objects(&new).await?;
        new.forget_content();
        let mut retries = RetryBudget::for_background_task(&self.settings);
        let outcome = loop {
            let are_there =
                entries.iter().all(|entry| manifest.segments.iter().any(|live| live.id == entry.id));
            if !are_there {
                // Another run replaced at least some of them.
                break Ok(CompactionReport::default());
            }
            // Readers of the old segments get the whole grace period, however long this merge took.
            new.entry.at = clock.now();
            if self.segments.list(project, &manifest, &new).await? {
                let merged_rows = entries.iter().map(|entry| entry.rows).sum();
                return Ok(CompactionReport {
                    merged_segments: entries.len(),
                    merged_rows,
                    ..CompactionReport::default()
                });
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
            manifest = self.manifests.load(project).await?;
        };
        self.segments.drop_objects(&new).await?;
        outcome
    }
}

/// Truncates to the blocks of one run, at least one. Returns whether some were dropped.
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
