//! The calls of waiting blocks that a process remembers.
//!
//! Must stay true: what is remembered for a project is at most [`REMEMBERED`] old, and older than no batch that this process
//! has stored; blocks never change, so what was read of one holds as long as it is remembered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::clock::MonotonicInstant;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::calls::{CallsByKey, KnownCalls};

use crate::keys::BlockId;

/// How long the calls of a project's waiting blocks are not read again: batches that other processes store in the meantime
/// are seen after that.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Projects that are remembered.
const PROJECTS_MAX: usize = 1000;
/// Bytes of the calls of single blocks, about.
const BLOCKS_BYTES_MAX: usize = 16 << 20;

/// What a process remembers.
#[derive(Debug)]
pub(crate) struct FlagCallCache {
    /// How many batches, and rows of calls, this process has stored.
    appended: AtomicU64,
    projects: Mutex<HashMap<ProjectId, ProjectCalls>>,
    blocks: Mutex<ByteLimitedCache<(ProjectId, BlockId), Arc<CallsByKey>>>,
}

#[derive(Debug)]
struct ProjectCalls {
    calls: Arc<KnownCalls>,
    /// When the read of them began: the number of batches, and the time.
    appended: u64,
    at: MonotonicInstant,
}

/// When a read began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadStart {
    appended: u64,
    at: MonotonicInstant,
}

impl Default for FlagCallCache {
    fn default() -> FlagCallCache {
        FlagCallCache {
            appended: AtomicU64::new(0),
            projects: Mutex::default(),
            blocks: Mutex::new(ByteLimitedCache::new(BLOCKS_BYTES_MAX)),
        }
    }
}

impl FlagCallCache {
    /// Forgets what is known of projects, because a batch or a row of calls has been stored.
    pub(crate) fn invalidate(&self) {
        self.appended.fetch_add(1, Ordering::Release);
    }

    /// To be taken before a read, and given to [`FlagCallCache::keep`] after it.
    pub(crate) fn start(&self) -> ReadStart {
        ReadStart { appended: self.appended.load(Ordering::Acquire), at: MonotonicInstant::now() }
    }

    /// The calls of `project`, where they still hold.
    pub(crate) fn get(&self, project: ProjectId) -> Option<Arc<KnownCalls>> {
        let appended = self.appended.load(Ordering::Acquire);
        let projects = lock(&self.projects);
        let known = projects.get(&project)?;
        (known.appended == appended && known.at.is_younger_than(REMEMBERED)).then(|| known.calls.clone())
    }

    /// Keeps the calls of `project` that a read which began at `start` has found.
    pub(crate) fn keep(&self, project: ProjectId, start: ReadStart, calls: Arc<KnownCalls>) {
        let mut projects = lock(&self.projects);
        if projects.len() >= PROJECTS_MAX {
            projects.clear();
        }
        projects.insert(project, ProjectCalls { calls, appended: start.appended, at: start.at });
    }

    /// The calls of a block.
    pub(crate) fn block(&self, project: ProjectId, id: BlockId) -> Option<Arc<CallsByKey>> {
        lock(&self.blocks).get(&(project, id)).cloned()
    }

    /// Keeps the calls of a block.
    pub(crate) fn keep_block(&self, project: ProjectId, id: BlockId, calls: &Arc<CallsByKey>) {
        let bytes = 100 + calls.iter().map(|(key, _)| key.len() + 48).sum::<usize>();
        lock(&self.blocks).insert((project, id), calls.clone(), bytes);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn calls(key: &str) -> Arc<KnownCalls> {
        let mut calls = KnownCalls::default();
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
