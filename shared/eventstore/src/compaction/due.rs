//! Whether a run of compaction is worth its cost.
//!
//! Each run writes a segment of five objects, which costs as much as a thousand write units. Must stay true: what is not due
//! yet is no more than queries read anyway, and is compacted by a later run.

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use super::compact::{CompactionReport, Compactor};
use super::merge_policy::MergeMode;
use crate::blocks::RawBlock;
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::time::WorkClock;

/// Waiting blocks that are compacted at once.
const BLOCKS_DUE: usize = 100;
/// Age of the oldest waiting block at which all are compacted, in microseconds: five minutes.
const AGE_DUE: u64 = 5 * 60 * 1_000_000;

impl Compactor {
    /// Turns the oldest blocks of a project into a segment, if many wait, or some for long.
    pub(crate) async fn compact_due_blocks(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<CompactionReport, EventStoreError> {
        let is_due = |blocks: &[RawBlock]| {
            let oldest = blocks.first().map(|block| block.id.micros);
            let is_old = oldest.is_some_and(|oldest| oldest.saturating_add(AGE_DUE) <= micros_u64(now));
            blocks.len() >= BLOCKS_DUE || is_old
        };
        self.compact_blocks_if(project, now, is_due).await
    }

    /// Folds the merge log of the project if it is long, and returns whether segments are due to be merged.
    pub(crate) async fn is_merge_due(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<bool, EventStoreError> {
        self.log.fold_merges(project, WorkClock::start(now)).await?;
        let manifest = self.manifests.load(project).await?;
        let failed = self.failed_merges(project, now).await?;
        Ok(!self.merge_candidates(&manifest, MergeMode::Due, &failed).is_empty())
    }
}
