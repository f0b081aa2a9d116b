//! When a key was last used.
//!
//! Must stay true: it is noted at most once an hour, beside the work of a request; a note that fails or takes long changes
//! no answer and is made again with a later use; a key that was revoked meanwhile does not come back by it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::cache::KeyCache;
use crate::function_name::inherit_function_name;
use crate::store::round_trips::aside;
use crate::store::{Store, keys};

/// A use less than this after the noted one is not noted.
pub const USE_NOTED_EVERY_SECONDS: i64 = 3600;
/// Longest that a note may take, and a response on Lambda wait for it.
const NOTE_TIME: Duration = Duration::from_secs(1);

/// Notes that the key of `hash` was used at `now`, unless the note that was read with it is fresh enough.
///
/// The note goes on beside the request. A local server answers without waiting for it; a function waits
/// ([`KeyCache::settled`]), because Lambda halts a process after its response.
pub(super) fn note(store: &Store, cache: &KeyCache, hash: &str, noted: i64, now: DateTime<Utc>) {
    let now = now.timestamp();
    let before = now - USE_NOTED_EVERY_SECONDS;
    if noted > before {
        return;
    }
    let (records, key) = (store.records.clone(), keys::api_key(hash));
    let task = aside(async move {
        match tokio::time::timeout(NOTE_TIME, records.advance(&key, now, before)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(cause = %error, "the use of a key could not be noted"),
            Err(_) => tracing::warn!("the use of a key could not be noted in time"),
        }
    });
    cache.follow(tokio::spawn(inherit_function_name(task)));
}
