//! What a process remembers of keys and tokens.
//!
//! Must stay true: a revoked key works for [`REMEMBERED_SECONDS`] at most; which project a token or a key leads to is
//! only a guess, which the request that uses it proves by what it reads; both are bounded in number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use uuid::Uuid;

use super::key::KeyRecord;
use crate::clock::MonotonicInstant;
use crate::store::keys::ProjectId;

/// How long a key is remembered by a process.
pub const REMEMBERED_SECONDS: u64 = 5;
const REMEMBERED_KEYS_MAX: usize = 10_000;
const REMEMBERED_PROJECTS_MAX: usize = 10_000;

/// Keys seen a moment ago, and the projects that tokens and keys led to.
#[derive(Debug, Clone, Default)]
pub struct KeyCache(Arc<Cached>);

#[derive(Debug, Default)]
struct Cached {
    keys: Mutex<HashMap<String, Remembered>>,
    guesses: Mutex<HashMap<String, Guess>>,
    /// Notes of a key's use that are being written.
    notes: Mutex<Vec<JoinHandle<()>>>,
}

/// A key, and since when it is remembered.
type Remembered = (Arc<KeyRecord>, MonotonicInstant);

/// Where a token or a key led to the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guess {
    /// The project.
    pub project: ProjectId,
    /// The organizations whose projects were compared to find it; none where the token or the key itself names it.
    pub organizations: Vec<Uuid>,
}

impl KeyCache {
    pub(super) fn get(&self, hash: &str) -> Option<Arc<KeyRecord>> {
        let keys = lock(&self.0.keys);
        let (record, mark) = keys.get(hash)?;
        mark.is_younger_than(Duration::from_secs(REMEMBERED_SECONDS)).then(|| record.clone())
    }

    pub(super) fn remember(&self, hash: String, record: Arc<KeyRecord>) {
        self.remember_since(hash, record, MonotonicInstant::now());
    }

    fn remember_since(&self, hash: String, record: Arc<KeyRecord>, mark: MonotonicInstant) {
        let mut keys = lock(&self.0.keys);
        if keys.len() >= REMEMBERED_KEYS_MAX {
            keys.clear();
        }
        keys.insert(hash, (record, mark));
    }

    /// Forgets every key, as if more than [`REMEMBERED_SECONDS`] had passed.
    pub fn clear(&self) {
        lock(&self.0.keys).clear();
    }

    /// Where `name`, a token or the hash of a key, led to the last time.
    pub(super) fn guess(&self, name: &str) -> Option<Guess> {
        lock(&self.0.guesses).get(name).cloned()
    }

    pub(super) fn remember_guess(&self, name: &str, guess: Guess) {
        let mut guesses = lock(&self.0.guesses);
        if guesses.get(name) == Some(&guess) {
            return;
        }
        if guesses.len() >= REMEMBERED_PROJECTS_MAX {
            guesses.clear();
        }
        guesses.insert(name.to_owned(), guess);
    }

    /// Remembers a note that is being written, for [`KeyCache::settled`].
    pub(crate) fn follow(&self, note: JoinHandle<()>) {
        let mut notes = lock(&self.0.notes);
        notes.retain(|note| !note.is_finished());
        notes.push(note);
    }

    /// Waits for what is being written beside answers: the times at which keys were used.
    pub async fn settled(&self) {
        let notes = std::mem::take(&mut *lock(&self.0.notes));
        for note in notes {
            // A note that was cut off is written with the next use of its key.
            let _ = note.await;
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_key_is_remembered_for_less_than_five_seconds() {
        assert_eq!(REMEMBERED_SECONDS, 5);
        let cache = KeyCache::default();
        cache.remember_since(
            "young".to_owned(),
            record(),
            MonotonicInstant::ago(Duration::from_millis(4_000)),
        );
        cache.remember_since("old".to_owned(), record(), MonotonicInstant::ago(Duration::from_millis(5_001)));
        assert!(cache.get("young").is_some());
        assert!(cache.get("old").is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_in_number() {
        let cache = KeyCache::default();
        let guess = Guess { project: 1, organizations: Vec::new() };
        for n in 0..=REMEMBERED_KEYS_MAX {
            cache.remember(n.to_string(), record());
            cache.remember_guess(&n.to_string(), guess.clone());
        }
        assert_eq!(lock(&cache.0.keys).len(), 1);
        assert_eq!(lock(&cache.0.guesses).len(), 1);
    }
}
