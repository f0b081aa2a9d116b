//! Results that are larger than an item: compressed in an object of the object store, which the item names.
//!
//! The item has everything but the result itself, so that an object is read only when it will be shown, by one more read.
//!
//! Must stay true: an object is written before the item that names it, and compared with the item's digest when it is
//! read; one that is missing or damaged is no result, and never an error. No object is written twice. Those that no
//! item names go with [`Calculator::sweep_results`], and in a bucket by its rule for old ones.

use std::borrow::Cow;

use bytes::Bytes;
use chrono::{DateTime, Duration, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, StoreError};
use pennon_eventstore::{EventStoreError, ResultObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Calculator;
use super::cache::{KEPT, Stored, result_key};

/// Longest JSON text of a result that is kept. A longer one is calculated each time; no gateway would let it through.
pub const RESULT_BYTES_MAX: usize = 16_000_000;
/// How well texts are compressed: fast, as somebody waits.
const LEVEL: i32 = 1;
/// An object that no item names may get its item within this.
const NAMED_WITHIN: Duration = Duration::hours(1);
/// No object is older. Results are kept for a day less.
const OLDEST: Duration = Duration::days(KEPT.num_days() + 1);
/// Items that are read in one step of a sweep.
const AT_ONCE: usize = 100;

/// Where a result lies that is not in its item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Elsewhere {
    /// Which object of the question.
    id: String,
    /// SHA-256 of the object.
    digest: String,
    /// Bytes of the JSON text in it.
    bytes: usize,
}

impl Elsewhere {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An object as it is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    at: ResultObject,
    bytes: Bytes,
}

/// The item of a result, and the object that has to be stored before it.
///
/// [`StoreError::TooLarge`] where it is longer than [`RESULT_BYTES_MAX`].
pub(super) fn pack(
    project: ProjectId,
    cache_key: &str,
    mut stored: Stored,
) -> Result<(Item, Option<Object>), StoreError> {
    let key = result_key(project, cache_key);
    let item = Item::new(key.clone(), &stored)?;
    if item.fits() {
        return Ok((item, None));
    }
    let text = stored.result.to_string();
    if text.len() > RESULT_BYTES_MAX {
        return Err(StoreError::TooLarge);
    }
    let packed = zstd::bulk::compress(text.as_bytes(), LEVEL);
    let bytes = Bytes::from(packed.map_err(|e| StoreError::Failed(e.to_string()))?);
    let id = format!("{}.json.zst", Uuid::new_v4());
    let elsewhere = Elsewhere { id: id.clone(), digest: digest(&bytes), bytes: text.len() };
    stored.result = Value::Null;
    stored.elsewhere = Some(elsewhere);
    let at = ResultObject { project, cache_key: cache_key.to_owned(), id };
    Ok((Item::new(key, &stored)?, Some(Object { at, bytes })))
}

/// The result in an object; none where it is not the one that was written.
fn unpack(elsewhere: &Elsewhere, object: &[u8]) -> Option<Value> {
    if digest(object) != elsewhere.digest || elsewhere.bytes > RESULT_BYTES_MAX {
        return None;
    }
    let text = zstd::bulk::decompress(object, elsewhere.bytes).ok()?;
    serde_json::from_slice(&text).ok()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Calculator {
    /// The item of a result, whose object is stored where it has one.
    pub(super) async fn packed(
        &self,
        project: ProjectId,
        cache_key: &str,
        stored: Stored,
    ) -> Result<Item, StoreError> {
        let cache_key = cache_key.to_owned();
        // Long texts take a while.
        let packed = tokio::task::spawn_blocking(move || pack(project, &cache_key, stored));
        let (item, object) = packed.await.map_err(|e| StoreError::Failed(e.to_string()))??;
        if let Some(Object { at, bytes }) = object {
            let put = self.events.put_result(&at, bytes).await;
            put.map_err(|e| StoreError::Failed(e.to_string()))?;
        }
        Ok(item)
    }

    /// `stored` with its result, from its object where it lies in one. None where that cannot be read.
    pub(crate) async fn whole<'s>(
        &self,
        project: ProjectId,
        cache_key: &str,
        stored: &'s Stored,
    ) -> Option<Cow<'s, Stored>> {
        let Some(elsewhere) = stored.elsewhere.clone() else { return Some(Cow::Borrowed(stored)) };
        let at = ResultObject { project, cache_key: cache_key.to_owned(), id: elsewhere.id.clone() };
        let object = match self.events.get_result(&at).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                tracing::warn!(?at, "the object of a stored result is missing");
                return None;
            }
            Err(error) => {
                tracing::warn!(?at, %error, "the object of a stored result cannot be read");
                return None;
            }
        };
        let unpacked = tokio::task::spawn_blocking(move || unpack(&elsewhere, &object)).await.ok()?;
        if unpacked.is_none() {
            tracing::warn!(?at, "the object of a stored result is damaged");
        }
        let mut whole = stored.clone();
        (whole.result, whole.elsewhere) = (unpacked?, None);
        Some(Cow::Owned(whole))
    }

    /// Removes the objects of results that no item names any more, and those that are too old. Returns how many.
    pub async fn sweep_results(&self, now: DateTime<Utc>) -> Result<usize, EventStoreError> {
        let age = |at: i64| Duration::microseconds(now.timestamp_micros().saturating_sub(at));
        let mut listed = self.events.list_results(None).await?;
        listed.retain(|(_, at)| age(*at) > NAMED_WITHIN);
        let mut removed = 0;
        for some in listed.chunks(AT_ONCE) {
            let keys: Vec<_> =
                some.iter().map(|(object, _)| result_key(object.project, &object.cache_key)).collect();
            let items = self.records.batch_get(&keys).await?;
            let is_named = |object: &ResultObject, item: &Option<Item>| {
                let stored = Stored::read(item.as_ref());
                stored.and_then(|stored| stored.elsewhere).is_some_and(|it| it.id == object.id)
            };
            let gone = some.iter().zip(&items);
            let gone = gone.filter(|((object, at), item)| age(*at) > OLDEST || !is_named(object, item));
            let gone: Vec<_> = gone.map(|((object, _), _)| object.clone()).collect();
            self.events.remove_results(&gone).await?;
            removed += gone.len();
        }
        if removed > 0 {
            tracing::info!(removed, "objects of results that nothing names were removed");
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
