//! The API key cache, and the cache of the project that a token or key resolved to.
//!
//! Must stay true: a revoked key works for at most [`KEY_CACHE_SECONDS`]; a cached project is only a prediction for
//! prefetching, which the request verifies by rows it reads; both caches have a maximum number of entries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::key::KeyRecord;
use crate::clock::CacheInstant;
use crate::store::keys::ProjectId;

/// Time to live of a cached API key, in seconds.
pub const KEY_CACHE_SECONDS: u64 = 5;
const CACHED_KEYS_MAX: usize = 10_000;
const PREDICTIONS_MAX: usize = 10_000;

/// The cached API keys and project predictions. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct KeyCache(Arc<CacheState>);

#[derive(Debug)]
struct CacheState {
    keys: Cache<String, CachedKey>,
    predictions: Cache<String, ProjectPrediction>,
    /// Running background writes of last-used times.
    background_writes: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for CacheState {
    fn default() -> CacheState {
        CacheState {
            keys: Cache::new(CACHED_KEYS_MAX),
            predictions: Cache::new(PREDICTIONS_MAX),
            background_writes: Mutex::default(),
        }
    }
}

/// A key, and when it was read.
type CachedKey = (Arc<KeyRecord>, CacheInstant);

/// The project that a token or key resolved to the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectPrediction {
    /// The project.
    pub project: ProjectId,
    /// The organizations whose projects were compared to find it; empty if the token or the key itself names it.
    pub organizations: Vec<Uuid>,
}

impl KeyCache {
    pub(crate) fn get(&self, hash: &str) -> Option<Arc<KeyRecord>> {
        let (record, read_at) = self.0.keys.get(hash)?;
        read_at.is_younger_than(Duration::from_secs(KEY_CACHE_SECONDS)).then_some(record)
    }

    /// Stores a key whose read began at `read_at`.
    pub(crate) fn insert(&self, hash: String, record: Arc<KeyRecord>, read_at: CacheInstant) {
        self.0.keys.insert(hash, (record, read_at));
    }

    /// Removes every key, as if [`KEY_CACHE_SECONDS`] had passed.
    pub fn clear(&self) {
        self.0.keys.clear();
    }

    /// The project that `name`, a token or the hash of a key, resolved to the last time.
    pub(crate) fn predict_project(&self, name: &str) -> Option<ProjectPrediction> {
        self.0.predictions.get(name)
    }

    pub(crate) fn insert_prediction(&self, name: &str, prediction: ProjectPrediction) {
        if self.0.predictions.get(name).as_ref() != Some(&prediction) {
            self.0.predictions.insert(name.to_owned(), prediction);
        }
    }

    /// Registers a background write, for [`KeyCache::wait_for_background_writes`].
    pub(crate) fn track(&self, write: JoinHandle<()>) {
        let mut writes = lock(&self.0.background_writes);
        writes.retain(|write| !write.is_finished());
        writes.push(write);
    }

    /// Waits for the background writes of last-used times.
    pub async fn wait_for_background_writes(&self) {
        let writes = std::mem::take(&mut *lock(&self.0.background_writes));
        for write in writes {
            // A failed write is repeated with a later use of the key.
            let _ = write.await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn record() -> Arc<KeyRecord> {
        let user = json!({"id": 1, "uuid": Uuid::nil(), "distinct_id": "", "first_name": "", "last_name": "",
                          "email": "", "is_email_verified": null, "hedgehog_config": null,
                          "role_at_organization": null});
        let record = json!({"label": "", "mask": "", "user": user, "is_active": true, "scopes": [], "projects": [],
                            "organizations": [], "memberships": [], "roles": [],
                            "created_at": "2026-01-05T10:00:00Z", "expires_at": null});
        Arc::new(serde_json::from_value(record).unwrap())
    }

    #[test]
    fn a_key_is_cached_for_less_than_five_seconds() {
        assert_eq!(KEY_CACHE_SECONDS, 5);
        let cache = KeyCache::default();
        cache.insert("young".to_owned(), record(), CacheInstant::ago(Duration::from_millis(4_000)));
        cache.insert("old".to_owned(), record(), CacheInstant::ago(Duration::from_millis(5_001)));
        assert!(cache.get("young").is_some());
        assert!(cache.get("old").is_none());
    }

    #[test]
    fn a_key_is_read_again_after_a_freeze() {
        let cache = KeyCache::default();
        for (name, seconds) in [("short", 4), ("long", 600)] {
            cache.insert(
                name.to_owned(),
                record(),
                CacheInstant::before_freeze(Duration::from_secs(seconds)),
            );
        }
        assert!(cache.get("short").is_some());
        assert!(cache.get("long").is_none(), "the monotonic clock alone would call it new");
    }

    #[test]
    fn both_caches_have_a_maximum_number_of_entries() {
        let cache = KeyCache::default();
        let prediction = ProjectPrediction { project: 1, organizations: Vec::new() };
        for n in 0..2 * CACHED_KEYS_MAX {
            cache.insert(n.to_string(), record(), CacheInstant::now());
            cache.insert_prediction(&n.to_string(), prediction.clone());
        }
        // Each shard rounds its part of the maximum up.
        assert!(cache.0.keys.len() <= CACHED_KEYS_MAX + cache.0.keys.num_shards());
        assert!(cache.0.predictions.len() <= PREDICTIONS_MAX + cache.0.predictions.num_shards());
    }
}
