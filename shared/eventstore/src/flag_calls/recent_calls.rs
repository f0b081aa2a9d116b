//! Cache of the flag calls in waiting blocks.
//!
//! Must stay true: the calls of a project are cached for at most [`REMEMBERED`], and not beyond the next batch
//! that this process stores; calls of a block never change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::clock::CacheInstant;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::calls::{CallsByKey, FlagCalls};
use quick_cache::sync::Cache;

use crate::keys::BlockId;

/// Time to live of the calls of a project: batches of other processes are seen after that.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Most cached projects.
const PROJECTS_MAX: usize = 1000;
/// Approximate limit of the calls of single blocks.
const BLOCKS_BYTES_MAX: usize = 16 << 20;

/// The cache.
#[derive(Debug)]
pub(crate) struct FlagCallCache {
    /// Number of batches and rows of calls that this process has stored.
    appended: AtomicU64,
    projects: Cache<ProjectId, ProjectCalls>,
    blocks: ByteLimitedCache<(ProjectId, BlockId), Arc<CallsByKey>>,
}

#[derive(Debug, Clone)]
struct ProjectCalls {
    calls: Arc<FlagCalls>,
    /// State when the read started: the number of batches, and the time.
    appended: u64,
    at: CacheInstant,
}

/// Start of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadStart {
    appended: u64,
    at: CacheInstant,
}

impl Default for FlagCallCache {
    fn default() -> FlagCallCache {
        FlagCallCache {
            appended: AtomicU64::new(0),
            projects: Cache::new(PROJECTS_MAX),
            blocks: ByteLimitedCache::new(BLOCKS_BYTES_MAX),
        }
    }
}

impl FlagCallCache {
    /// Invalidates all projects, because a batch or a row of calls was stored.
    pub(crate) fn invalidate(&self) {
        self.appended.fetch_add(1, Ordering::Release);
    }

    /// Call before a read, and pass to [`FlagCallCache::keep`] after it.
    pub(crate) fn start(&self) -> ReadStart {
        ReadStart { appended: self.appended.load(Ordering::Acquire), at: CacheInstant::now() }
    }

    /// The cached calls of `project`, if still valid.
    pub(crate) fn get(&self, project: ProjectId) -> Option<Arc<FlagCalls>> {
        let appended = self.appended.load(Ordering::Acquire);
        let known = self.projects.get(&project)?;
        (known.appended == appended && known.at.is_younger_than(REMEMBERED)).then_some(known.calls)
    }

    /// Caches the calls of `project` from a read that began at `start`.
    pub(crate) fn keep(&self, project: ProjectId, start: ReadStart, calls: Arc<FlagCalls>) {
        self.projects.insert(project, ProjectCalls { calls, appended: start.appended, at: start.at });
    }

    /// The cached calls of a block.
    pub(crate) fn block(&self, project: ProjectId, id: BlockId) -> Option<Arc<CallsByKey>> {
        self.blocks.get(&(project, id))
    }

    /// Caches the calls of a block.
    pub(crate) fn keep_block(&self, project: ProjectId, id: BlockId, calls: &Arc<CallsByKey>) {
        let bytes = 100 + calls.iter().map(|(key, _)| key.len() + 48).sum::<usize>();
        self.blocks.insert((project, id), calls.clone(), bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn calls(key: &str) -> Arc<FlagCalls> {
        let mut calls = FlagCalls::default();
        calls.waiting.add(key, 1);
        Arc::new(calls)
    }

    #[test]
    fn calls_are_remembered_until_a_batch_is_stored() {
        let memory = FlagCallCache::default();
        memory.keep(1, memory.start(), calls("a"));
        assert_eq!(memory.get(1), Some(calls("a")));
        assert_eq!(memory.get(2), None);
        memory.invalidate();
        assert_eq!(memory.get(1), None);
        let start = memory.start();
        memory.invalidate();
        memory.keep(1, start, calls("b"));
        assert_eq!(memory.get(1), None, "a batch was stored while the calls were read");
    }
}
