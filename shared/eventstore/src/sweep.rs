//! Removing what segments have replaced.
//!
//! Blocks go at once, if the compaction that replaced them stopped before it removed them: readers read blocks before
//! the manifest, so whoever misses one sees its segment. Objects and the
//! entries of replaced segments go when they have been replaced for [`GRACE_MICROS`], because a reader may have just
//! begun with them. Must stay true: a segment's entry goes only after the blocks and entries that it names, because
//! readers ignore those by it; any step may be the last, and the next sweep goes on.

use std::collections::{HashMap, HashSet};

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::keys::{self, BlockId};
use crate::manifest::{Manifest, SegmentEntry};

/// How long a segment that was replaced stays readable, in microseconds: ten minutes.
pub const GRACE_MICROS: Micros = 10 * 60 * 1_000_000;

/// What a sweep removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blocks.
    pub blocks: usize,
    /// Segments.
    pub segments: usize,
}

impl EventStore {
    /// Removes the blocks that segments replace, and segments that have been replaced for longer than the grace period.
    pub async fn sweep(&self, project: ProjectId, now: Micros) -> Result<Swept, EventStoreError> {
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let by_id = manifest.all_segments.iter().map(|(_, entry)| (entry.id.as_str(), entry)).collect();
        let mut gone = HashSet::new();
        let mut emptied = HashSet::new();
        let mut swept = Swept::default();
        for (version, entry) in &manifest.all_segments {
            if gone.contains(&entry.id) {
                continue;
            }
            let mut rewritten = entry.clone();
            swept.blocks += self.remove_blocks(project, entry, &mut emptied).await?;
            rewritten.blocks_removed = true;
            let due = entry.at.saturating_add(GRACE_MICROS) <= now;
            if due {
                for replaced in beneath(entry, &by_id) {
                    if gone.insert(replaced.id.clone()) {
                        swept.blocks += self.remove_blocks(project, replaced, &mut emptied).await?;
                        self.remove_segment(project, replaced).await?;
                        swept.segments += 1;
                    }
                }
                rewritten.replaces_blocks.clear();
                rewritten.replaces_segments.clear();
            }
            let replaces = !(entry.replaces_blocks.is_empty() && entry.replaces_segments.is_empty());
            if replaces && rewritten != *entry {
                Manifest::rewrite(&self.inner.store, project, *version, &rewritten).await?;
            }
        }
        self.sweep_merges(project, &manifest, now).await?;
        Ok(swept)
    }

    /// Removes the blocks that `entry` replaces, unless that was done before. Returns how many.
    async fn remove_blocks(
        &self,
        project: ProjectId,
        entry: &SegmentEntry,
        emptied: &mut HashSet<String>,
    ) -> Result<usize, EventStoreError> {
        if entry.blocks_removed || !emptied.insert(entry.id.clone()) {
            return Ok(0);
        }
        let blocks =
            entry.replaces_blocks.iter().map(|id| id.parse::<BlockId>()).collect::<Result<Vec<_>, _>>()?;
        let keys = blocks.iter().flat_map(|id| id.keys(project)).collect::<Vec<_>>();
        if !keys.is_empty() {
            self.inner.store.blocks.sweep(keys).await?;
        }
        Ok(blocks.len())
    }

    async fn remove_segment(&self, project: ProjectId, entry: &SegmentEntry) -> Result<(), EventStoreError> {
        self.inner.objects.delete_all(entry.objects().cloned().collect()).await?;
        let key = keys::entry(project, keys::SEGMENT, &entry.id);
        let damage = keys::entry(project, keys::DAMAGED, &entry.id);
        Ok(self.inner.store.records.sweep(vec![key, damage]).await?)
    }
}

/// The entries that `entry` replaces, directly or through others, the deepest first: an entry must not go before those
/// that readers ignore because of it. Does not rely on clocks: entries may carry times in any order.
fn beneath<'a>(entry: &SegmentEntry, by_id: &HashMap<&str, &'a SegmentEntry>) -> Vec<&'a SegmentEntry> {
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
