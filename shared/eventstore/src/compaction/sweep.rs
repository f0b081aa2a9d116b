//! Sweep: deletes what segments have replaced.
//!
//! Blocks are deleted at once, if the compaction that replaced them stopped before doing so: readers read
//! blocks before the manifest, so a reader that misses a block sees its segment. The list of replaced blocks,
//! and objects and entries of replaced segments, are deleted [`GRACE_MICROS`] after the blocks were deleted or
//! the segments replaced, because a reader may still use them.
//!
//! Must stay true: the entry of a segment is deleted only after the blocks and entries that it replaces,
//! because readers ignore those because of it. Both happen only in a later sweep, because a reader whose
//! manifest page predates this sweep must still find on another page that the entry was replaced. A sweep may
//! stop after any step; the next one goes on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use crate::blocks::BlockLog;
use crate::error::EventStoreError;
use crate::installation::InstallationCheck;
use crate::manifest::{GRACE_MICROS, ManifestStore, ReplacedBlocks, SegmentEntry};
use crate::objects::Objects;
use crate::persons::{ImportedRecords, MergeLog};
use crate::segments::SegmentStore;

/// Counters of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Blocks.
    pub blocks: usize,
    /// Segments.
    pub segments: usize,
}

/// Deletes what was replaced, and objects that no manifest names.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(super) manifests: Arc<ManifestStore>,
    blocks: Arc<BlockLog>,
    segments: Arc<SegmentStore>,
    imports: Arc<ImportedRecords>,
    log: Arc<MergeLog>,
    pub(super) installation: Arc<InstallationCheck>,
    pub(super) objects: Objects,
}

impl Sweeper {
    pub(crate) fn new(
        manifests: Arc<ManifestStore>,
        blocks: Arc<BlockLog>,
        segments: Arc<SegmentStore>,
        imports: Arc<ImportedRecords>,
        log: Arc<MergeLog>,
        installation: Arc<InstallationCheck>,
        objects: Objects,
    ) -> Sweeper {
        Sweeper { manifests, blocks, segments, imports, log, installation, objects }
    }

    /// Deletes replaced blocks, and segments that were replaced longer than the grace period ago.
    pub(crate) async fn sweep(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<SweepReport, EventStoreError> {
        let manifest = self.manifests.load(project).await?;
        let mut swept = SweepReport::default();
        let mut entries = Vec::with_capacity(manifest.all_segments.len());
        for (version, entry) in &manifest.all_segments {
            let blocks = match &entry.blocks {
                Some(blocks) => Some(self.sweep_blocks(project, blocks, now, &mut swept).await?),
                None => None,
            };
            let left = SegmentEntry { blocks, ..entry.clone() };
            let changes = left != *entry;
            if changes {
                self.manifests.rewrite_segment(project, *version, &left).await?;
            }
            entries.push((version + u64::from(changes), left));
        }
        self.sweep_segments(project, &entries, now, &mut swept).await?;
        self.imports.sweep_former_objects(&manifest, now).await?;
        self.log.sweep_merges(project, &manifest, now).await?;
        self.imports.sweep_imported_merges(project, &manifest, now).await?;
        Ok(swept)
    }

    /// Deletes remaining blocks. Returns the new state of the list.
    async fn sweep_blocks(
        &self,
        project: ProjectId,
        blocks: &ReplacedBlocks,
        now: Micros,
        swept: &mut SweepReport,
    ) -> Result<ReplacedBlocks, EventStoreError> {
        let Some(removed_at) = blocks.removed_at else {
            self.blocks.remove_listed(project, blocks).await?;
            swept.blocks += usize::try_from(blocks.count).unwrap_or(usize::MAX);
            return Ok(ReplacedBlocks { removed_at: Some(now), ..blocks.clone() });
        };
        let settled = blocks.settled || removed_at.saturating_add(GRACE_MICROS) <= now;
        Ok(ReplacedBlocks { settled, ..blocks.clone() })
    }

    /// Deletes segments that were replaced long enough ago.
    async fn sweep_segments(
        &self,
        project: ProjectId,
        entries: &[(u64, SegmentEntry)],
        now: Micros,
        swept: &mut SweepReport,
    ) -> Result<(), EventStoreError> {
        let by_id = entries.iter().map(|(_, entry)| (entry.id.as_str(), entry)).collect::<HashMap<_, _>>();
        let mut gone = HashSet::new();
        for (version, entry) in entries {
            let is_due = entry.at.saturating_add(GRACE_MICROS) <= now;
            if !is_due || entry.replaces_segments.is_empty() || gone.contains(&entry.id) {
                continue;
            }
            for replaced in replaced_entries(entry, &by_id) {
                // Readers need it to ignore the blocks and segments that it replaced itself.
                let is_last = replaced.blocks.as_ref().is_none_or(|blocks| blocks.settled)
                    && !replaced.replaces_segments.iter().any(|id| by_id.contains_key(id.as_str()));
                if is_last && gone.insert(replaced.id.clone()) {
                    self.segments.remove(project, replaced).await?;
                    swept.segments += 1;
                }
            }
            let mut left = entry.clone();
            left.replaces_segments.retain(|id| by_id.contains_key(id.as_str()));
            if left != *entry {
                self.manifests.rewrite_segment(project, *version, &left).await?;
            }
        }
        Ok(())
    }
}

/// The entries that `entry` replaces, directly or indirectly, deepest first. Independent of clocks.
fn replaced_entries<'a>(
    entry: &SegmentEntry,
    by_id: &HashMap<&str, &'a SegmentEntry>,
) -> Vec<&'a SegmentEntry> {
    let mut found: Vec<&SegmentEntry> = Vec::new();
    let mut open = entry.replaces_segments.clone();
    while let Some(id) = open.pop() {
        if let Some(replaced) = by_id.get(id.as_str()) {
            found.push(replaced);
            open.extend(replaced.replaces_segments.iter().cloned());
        }
    }
    found.reverse();
    found
}
