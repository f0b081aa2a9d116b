//! Results larger than a DynamoDB item: a compressed object in the object store, referenced by the item.
//!
//! The item has all fields but the result, so an object is only fetched when its result is returned, by one more read.
//!
//! Must stay true: an object is written before the item that refers to it, and checked against the item's digest when it
//! is read; a missing or damaged object counts as a cache miss, never as an error. No object is overwritten. Orphaned
//! objects are deleted by [`Calculator::sweep_results`], and by the bucket's lifecycle rule.

use std::borrow::Cow;

use bytes::Bytes;
use chrono::{DateTime, Duration, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, StoreError};
use pennon_eventstore::{EventStoreError, ResultObject};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Calculator;
use super::cache::{CachedResult, RESULT_TTL, ResultObjectRef, result_key};

/// Longest JSON text of a result that is cached. A longer one is calculated each time; no gateway would let it through.
pub const RESULT_BYTES_MAX: usize = 16_000_000;
/// zstd level: the fastest, because a request waits.
const ZSTD_LEVEL: i32 = 1;
/// An object without an item is not deleted before this age: its item may be about to be written.
const UPLOAD_GRACE: Duration = Duration::hours(1);
/// Objects older than this are deleted. Their items expire a day earlier.
const OBJECT_AGE_MAX: Duration = Duration::days(RESULT_TTL.num_days() + 1);
/// Items that are read in one step of a sweep.
const SWEEP_BATCH: usize = 100;

/// An object to upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewObject {
    at: ResultObject,
    bytes: Bytes,
}

/// The item of a result, and the object to upload before it, if the result does not fit into the item.
///
/// [`StoreError::TooLarge`] where the result is longer than [`RESULT_BYTES_MAX`].
pub(super) fn encode(
    project: ProjectId,
    cache_key: &str,
    mut stored: CachedResult,
) -> Result<(Item, Option<NewObject>), StoreError> {
    let key = result_key(project, cache_key);
    let item = Item::new(key.clone(), &stored)?;
    if item.fits() {
        return Ok((item, None));
    }
    let text = stored.result.to_string();
    if text.len() > RESULT_BYTES_MAX {
        return Err(StoreError::TooLarge);
    }
    let compressed = zstd::bulk::compress(text.as_bytes(), ZSTD_LEVEL);
    let bytes = Bytes::from(compressed.map_err(|e| StoreError::Failed(e.to_string()))?);
    let id = format!("{}.json.zst", Uuid::new_v4());
    let object_ref = ResultObjectRef { id: id.clone(), digest: digest(&bytes), bytes: text.len() };
    stored.result = Value::Null;
    stored.object_ref = Some(object_ref);
    let at = ResultObject { project, cache_key: cache_key.to_owned(), id };
    Ok((Item::new(key, &stored)?, Some(NewObject { at, bytes })))
}

/// The result in an object; `None` where its digest or length does not match.
fn decode(object_ref: &ResultObjectRef, object: &[u8]) -> Option<Value> {
    if digest(object) != object_ref.digest || object_ref.bytes > RESULT_BYTES_MAX {
        return None;
    }
    let text = zstd::bulk::decompress(object, object_ref.bytes).ok()?;
    serde_json::from_slice(&text).ok()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Calculator {
    /// The item of a result. Its object, if it has one, is uploaded first.
    pub(super) async fn encode_and_upload(
        &self,
        project: ProjectId,
        cache_key: &str,
        stored: CachedResult,
    ) -> Result<Item, StoreError> {
        let cache_key = cache_key.to_owned();
        // Off the runtime's threads: long texts take a while.
        let encoded = tokio::task::spawn_blocking(move || encode(project, &cache_key, stored));
        let (item, object) = encoded.await.map_err(|e| StoreError::Failed(e.to_string()))??;
        if let Some(NewObject { at, bytes }) = object {
            let put = self.events.put_result(&at, bytes).await;
            put.map_err(|e| StoreError::Failed(e.to_string()))?;
        }
        Ok(item)
    }

    /// `stored` with its result, fetched from its object if it has one. `None` where that cannot be read.
    pub(crate) async fn load_result<'s>(
        &self,
        project: ProjectId,
        cache_key: &str,
        stored: &'s CachedResult,
    ) -> Option<Cow<'s, CachedResult>> {
        let Some(object_ref) = stored.object_ref.clone() else { return Some(Cow::Borrowed(stored)) };
        let at = ResultObject { project, cache_key: cache_key.to_owned(), id: object_ref.id.clone() };
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
        let decoded = tokio::task::spawn_blocking(move || decode(&object_ref, &object)).await.ok()?;
        if decoded.is_none() {
            tracing::warn!(?at, "the object of a stored result is damaged");
        }
        let mut loaded = stored.clone();
        (loaded.result, loaded.object_ref) = (decoded?, None);
        Some(Cow::Owned(loaded))
    }

    /// Deletes result objects that no item refers to, and those past [`OBJECT_AGE_MAX`]. Returns how many.
    pub async fn sweep_results(&self, now: DateTime<Utc>) -> Result<usize, EventStoreError> {
        let age = |at: i64| Duration::microseconds(now.timestamp_micros().saturating_sub(at));
        let mut objects = self.events.list_results(None).await?;
        objects.retain(|(_, at)| age(*at) > UPLOAD_GRACE);
        let mut removed = 0;
        for batch in objects.chunks(SWEEP_BATCH) {
            let keys: Vec<_> =
                batch.iter().map(|(object, _)| result_key(object.project, &object.cache_key)).collect();
            let items = self.records.batch_get(&keys).await?;
            let is_referenced = |object: &ResultObject, item: &Option<Item>| {
                let stored = CachedResult::from_item(item.as_ref());
                stored.and_then(|stored| stored.object_ref).is_some_and(|it| it.id == object.id)
            };
            let orphans = batch.iter().zip(&items);
            let orphans = orphans
                .filter(|((object, at), item)| age(*at) > OBJECT_AGE_MAX || !is_referenced(object, item));
            let orphans: Vec<_> = orphans.map(|((object, _), _)| object.clone()).collect();
            self.events.remove_results(&orphans).await?;
            removed += orphans.len();
        }
        if removed > 0 {
            tracing::info!(removed, "orphaned objects of results were deleted");
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
