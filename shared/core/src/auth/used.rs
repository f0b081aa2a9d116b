//! When a key was last used.
//!
//! Must stay true: it is noted at most once an hour, beside the answer and never before it; a note that fails changes no
//! answer and is made again with a later use; a key that was revoked meanwhile does not come back by it.

use chrono::{DateTime, Utc};

use super::cache::KeyCache;
use crate::caller;
use crate::store::round_trips::aside;
use crate::store::{Store, keys};

/// A use less than this after the noted one is not noted.
pub const USE_NOTED_EVERY_SECONDS: i64 = 3600;

/// Notes that the key of `hash` was used at `now`, unless the note that was read with it is fresh enough.
///
/// On Lambda a process is halted after its answer; what it has not sent by then it sends when it is woken, or not at
/// all. The time shown is therefore at least as old as the last use, and as a rule less than an hour older.
pub(super) fn note(store: &Store, cache: &KeyCache, hash: &str, noted: i64, now: DateTime<Utc>) {
    let now = now.timestamp();
    let before = now - USE_NOTED_EVERY_SECONDS;
    if noted > before {
        return;
    }
    let (records, key) = (store.records.clone(), keys::api_key(hash));
    let task = aside(async move {
        if let Err(error) = records.advance(&key, now, before).await {
            tracing::warn!(cause = %error, "the use of a key could not be noted");
        }
    });
    cache.follow(tokio::spawn(caller::kept(task)));
}
