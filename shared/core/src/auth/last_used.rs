//! Records when an API key was last used.
//!
//! Must stay true: the time is written at most once an hour, concurrently with the request; a failed or slow write changes
//! no response and is repeated with a later use; the write never re-creates a key that was revoked concurrently.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::cache::KeyCache;
use crate::function_name::inherit_function_name;
use crate::store::round_trips::in_background;
use crate::store::{Store, keys};

/// Minimum seconds between two recorded uses.
pub const LAST_USED_INTERVAL_SECONDS: i64 = 3600;
/// Timeout of the write, and the maximum delay of a response on Lambda.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Records that the key with this hash was used at `now`, unless `last_used`, in seconds since the epoch, is recent enough.
///
/// The write runs in the background. A local server responds without waiting for it; a function waits
/// ([`KeyCache::wait_for_background_writes`]), because Lambda freezes a process after its response.
pub(crate) fn record_use(store: &Store, cache: &KeyCache, hash: &str, last_used: i64, now: DateTime<Utc>) {
    let now = now.timestamp();
    let latest_stale = now - LAST_USED_INTERVAL_SECONDS;
    if last_used > latest_stale {
        return;
    }
    let (records, key) = (store.records.clone(), keys::api_key(hash));
    let task = in_background(async move {
        match tokio::time::timeout(WRITE_TIMEOUT, records.advance(&key, now, latest_stale)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(cause = %error, "the last use of an API key could not be written")
            }
            Err(_) => tracing::warn!("the last use of an API key was not written within 1 s"),
        }
    });
    cache.track(tokio::spawn(inherit_function_name(task)));
}
