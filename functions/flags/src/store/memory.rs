//! What a warm process keeps of flags between requests.
//!
//! Must stay true: nothing in here is believed on its own. Rows are shown only under the version that the table has at
//! the time of the request, a record only under the version that a row or an item of that time names; so forgetting is
//! always right, and remembering is bounded in bytes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pennon_core::store::keys::ProjectId;

use super::{Rows, Stored};

/// Bytes of summary rows, by a rough measure.
const ROWS_BYTES_MAX: usize = 48 * 1024 * 1024;
/// Bytes of decoded records, by a rough measure.
const FLAGS_BYTES_MAX: usize = 96 * 1024 * 1024;

/// The memory of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    rows: Bounded<ProjectId, Rows>,
    flags: Bounded<(ProjectId, i64), Arc<Stored>>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner { rows: Bounded::new(ROWS_BYTES_MAX), flags: Bounded::new(FLAGS_BYTES_MAX) }
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

    /// Forgets everything, as a new process would.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A map that starts anew when it has grown too large.
#[derive(Debug)]
pub struct Bounded<K, V> {
    entries: HashMap<K, (V, usize)>,
    bytes: usize,
    most: usize,
}

impl<K: Hash + Eq, V> Bounded<K, V> {
    /// An empty map that takes `most` bytes.
    pub fn new(most: usize) -> Bounded<K, V> {
        Bounded { entries: HashMap::new(), bytes: 0, most }
    }

    /// What is kept under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Keeps a value that takes `bytes`, if it fits at all.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, before)) = self.entries.remove(&key) {
            self.bytes -= before;
        }
        if self.bytes + bytes > self.most {
            self.entries.clear();
            self.bytes = 0;
        }
        if bytes <= self.most {
            self.bytes += bytes;
            self.entries.insert(key, (value, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_never_holds_more_bytes_than_it_may() {
        let mut map = Bounded::new(10);
        map.insert(1, 'a', 4);
        map.insert(2, 'b', 6);
        assert_eq!((map.get(&1), map.get(&2), map.bytes), (Some(&'a'), Some(&'b'), 10));
        map.insert(2, 'c', 5);
        assert_eq!((map.get(&1), map.get(&2), map.bytes), (Some(&'a'), Some(&'c'), 9));
        map.insert(3, 'd', 2);
        assert_eq!((map.get(&1), map.get(&3), map.bytes), (None, Some(&'d'), 2));
        map.insert(4, 'e', 11);
        assert_eq!((map.get(&3), map.get(&4), map.bytes), (None, None, 0));
    }
}
