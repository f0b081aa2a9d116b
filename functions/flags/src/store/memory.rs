//! What a warm process keeps of flags between requests.
//!
//! Must stay true: nothing in here is believed on its own. Rows are shown only under the version that the table has at
//! the time of the request, a record only under the version that a row or an item of that time names; so forgetting is
//! always right, and remembering is bounded in bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::Prepared;

use super::{Rows, Stored};

/// Bytes of summary rows, by a rough measure.
const ROWS_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Bytes of decoded records, by a rough measure.
const FLAGS_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Bytes of texts of flags as shown.
const PREPARED_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Bytes of the names of cohorts.
const NAMES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The memory of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    rows: ByteLimitedCache<ProjectId, Rows>,
    flags: ByteLimitedCache<(ProjectId, i64), Arc<Stored>>,
    prepared: ByteLimitedCache<(ProjectId, i64), (u64, Arc<Prepared>)>,
    /// Names of cohorts, none for one that is not there, as of a number of the project's version.
    names: ByteLimitedCache<ProjectId, (i64, Names)>,
}

type Names = BTreeMap<i64, Option<String>>;

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            rows: ByteLimitedCache::new(ROWS_BYTES_MAX),
            flags: ByteLimitedCache::new(FLAGS_BYTES_MAX),
            prepared: ByteLimitedCache::new(PREPARED_BYTES_MAX),
            names: ByteLimitedCache::new(NAMES_BYTES_MAX),
        }
    }
}

impl Memory {
    /// The rows of `project` as last proven.
    pub fn rows(&self, project: ProjectId) -> Option<Rows> {
        self.lock().rows.get(&project).cloned()
    }

    /// Keeps proven rows.
    pub fn keep_rows(&self, project: ProjectId, rows: &Rows) {
        let bytes = rows.bytes();
        self.lock().rows.insert(project, rows.clone(), bytes);
    }

    /// The record of flag `id` that has this version.
    pub fn flag(&self, project: ProjectId, id: i64, version: u64) -> Option<Arc<Stored>> {
        self.lock().flags.get(&(project, id)).filter(|stored| stored.version == version).cloned()
    }

    /// Keeps a record whose text has `bytes`.
    pub fn keep_flag(&self, project: ProjectId, stored: &Arc<Stored>, bytes: usize) {
        // A decoded text takes several times its length.
        self.lock().flags.insert((project, stored.flag.id), stored.clone(), bytes * 5 + 500);
    }

    /// The text of the record of flag `id` that has this version.
    pub fn prepared(&self, project: ProjectId, id: i64, version: u64) -> Option<Arc<Prepared>> {
        let inner = self.lock();
        inner.prepared.get(&(project, id)).filter(|(of, _)| *of == version).map(|(_, text)| text.clone())
    }

    /// Whether flag `id` named cohorts when it was last shown.
    pub fn named_cohorts(&self, project: ProjectId, id: i64) -> bool {
        self.lock().prepared.get(&(project, id)).is_some_and(|(_, prepared)| prepared.names_cohorts())
    }

    /// Keeps the text of a record.
    pub fn keep_prepared(&self, project: ProjectId, id: i64, version: u64, prepared: &Arc<Prepared>) {
        let bytes = prepared.bytes() + 200;
        self.lock().prepared.insert((project, id), (version, prepared.clone()), bytes);
    }

    /// The names of cohorts that were read while the project's version had this number.
    pub fn names(&self, project: ProjectId, number: i64) -> Option<Names> {
        self.lock().names.get(&project).filter(|(of, _)| *of == number).map(|(_, names)| names.clone())
    }

    /// Keeps names that were read after the project's version had this number.
    pub fn keep_names(&self, project: ProjectId, number: i64, names: &Names) {
        let bytes = names.values().flatten().map(String::len).sum::<usize>() + names.len() * 50;
        self.lock().names.insert(project, (number, names.clone()), bytes);
    }

    /// The names hold under the number `to` too: between the two only a flag was written.
    pub fn carry_names(&self, project: ProjectId, from: i64, to: i64) {
        if let Some((number, _)) = self.lock().names.get_mut(&project).filter(|(of, _)| *of == from) {
            *number = to;
        }
    }

    /// Forgets everything, as a new process would.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
