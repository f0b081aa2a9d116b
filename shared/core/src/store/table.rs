//! Operations on a DynamoDB table: get, batch get, transaction, counters.
//!
//! Must stay true: all reads are strongly consistent, so that a list right after a write includes it; all changes go through
//! [`Table::transact`], which writes a single item without a transaction ([`super::single_write`]), or are atomic updates of
//! one item, so that a reader never sees a partial change; nothing uses `Scan`.
//!
//! The futures that call the SDK are boxed: its code is compiled once, here, and not again in every crate that awaits a call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnValue};
use futures::future::BoxFuture;

use super::StoreError;
use super::change::{ItemAction, ItemChange, changes};
use super::item::{Attributes, COUNT, EXPIRES_AT, Item, Key, PK, RowChecksums, number, parsed};
use super::item_parts::size;
use super::local_backend::LocalBackend;

/// Maximum writes of one transaction, by DynamoDB.
pub const TRANSACTION_WRITES_MAX: usize = 100;
/// Maximum bytes of one transaction: DynamoDB accepts 4 MB.
const TRANSACTION_BYTES_MAX: usize = 4_000_000;
const BATCH_GET_KEYS_MAX: usize = 100;
pub(super) const ATTEMPTS_MAX: u32 = 10;

/// One table.
#[derive(Debug, Clone)]
pub struct Table {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
    /// Tried before the client.
    pub(super) local_backend: Option<Arc<dyn LocalBackend>>,
}

/// The condition of a write on the stored item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCondition {
    /// No condition.
    None,
    /// The item does not exist.
    Absent,
    /// The item exists.
    Present,
    /// The item exists and has this version.
    Version(u64),
    /// The item does not exist, has no counter, or its counter is at most this number.
    CountAtMost(i64),
}

/// One write of a transaction.
#[derive(Debug, Clone)]
pub enum Write {
    /// Store the item, replacing an existing one.
    Put(Item, WriteCondition),
    /// Delete the item.
    Delete(Key, WriteCondition),
    /// Only check the condition.
    Check(Key, WriteCondition),
    /// Add to the item's counter, which starts at 0.
    Add(Key, i64),
    /// Increment a project's version and update its checksums.
    BumpVersion(Key, VersionBump),
    /// Set the feed size ([`RowChecksums::used`]) of the version with this number, without incrementing it: key, number, bytes.
    SetFeedBytes(Key, i64, i64),
}

/// An increment of a project's version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionBump {
    /// The numbers to add to the checksums; `last` is set.
    pub by: RowChecksums,
    /// The new value of [`RowChecksums::used`], if it was measured; then `by.used` is ignored.
    pub used: Option<i64>,
    /// Values that must not have changed since they were read.
    pub when: Precondition,
}

/// The expected values of a project's version row, for optimistic concurrency. `None` is not checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Precondition {
    /// [`RowChecksums::rows`].
    pub rows: Option<i64>,
    /// [`RowChecksums::edges`].
    pub edges: Option<i64>,
    /// The version number: no write that increments it has happened.
    pub number: Option<i64>,
    /// Maximum of [`RowChecksums::used`] before the write.
    pub used_at_most: Option<i64>,
}

impl Table {
    /// The table `name`, accessed by `client`.
    pub fn new(client: Client, name: &str) -> Table {
        Table { client, name: name.into(), local_backend: None }
    }

    /// The same table, with a backend in this process that is tried before the SDK.
    #[must_use]
    pub fn with_local_backend(self, local_backend: Arc<dyn LocalBackend>) -> Table {
        Table { local_backend: Some(local_backend), ..self }
    }

    /// Gets the item at `key`, if it exists.
    pub async fn get(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        let item = self.get_head(key).await?;
        Ok(self.load_parts(item.into_iter().collect()).await?.pop())
    }

    /// Gets the item at `key` without its parts.
    pub(super) async fn get_head(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        self.get_stored(key).await?.map(Item::from_attributes).transpose()
    }

    /// Gets the attributes of the item at `key`.
    fn get_stored<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Attributes>, StoreError>> {
        Box::pin(async move {
            if let Some(found) = self.local_backend.as_ref().and_then(|local| local.items(&self.name, &[key]))
            {
                return Ok(found?.pop());
            }
            let response = self
                .client
                .get_item()
                .table_name(&*self.name)
                .set_key(Some(key.attributes()))
                .consistent_read(true)
                .send()
                .await?;
            Ok(response.item)
        })
    }

    /// Gets the items at `keys`, in their order. Up to 100 keys take one round trip.
    pub async fn batch_get(&self, keys: &[Key]) -> Result<Vec<Option<Item>>, StoreError> {
        let mut items = self.batch_get_heads(keys).await?;
        let with_parts = items.values().filter(|item| item.parts().is_some()).cloned().collect::<Vec<_>>();
        if !with_parts.is_empty() {
            for item in &with_parts {
                items.remove(&item.key);
            }
            items.extend(self.load_parts(with_parts).await?.into_iter().map(|item| (item.key.clone(), item)));
        }
        Ok(keys.iter().map(|key| items.get(key).cloned()).collect())
    }

    /// Gets the existing items at `keys`, without their parts.
    pub(super) async fn batch_get_heads(&self, keys: &[Key]) -> Result<HashMap<Key, Item>, StoreError> {
        let items = self.batch_get_stored(keys).await?.into_iter().map(Item::from_attributes);
        items.map(|item| item.map(|item| (item.key.clone(), item))).collect()
    }

    /// Gets the attributes of the existing items at `keys`, in any order.
    pub(super) async fn batch_get_stored(&self, keys: &[Key]) -> Result<Vec<Attributes>, StoreError> {
        // DynamoDB rejects duplicate keys in a batch.
        let mut distinct: Vec<&Key> = keys.iter().collect();
        distinct.sort();
        distinct.dedup();
        let chunks = distinct.chunks(BATCH_GET_KEYS_MAX).map(|chunk| self.batch_get_chunk(chunk));
        Ok(futures::future::try_join_all(chunks).await?.into_iter().flatten().collect())
    }

    fn batch_get_chunk<'a>(
        &'a self,
        keys: &'a [&'a Key],
    ) -> BoxFuture<'a, Result<Vec<Attributes>, StoreError>> {
        Box::pin(async move {
            if let [key] = keys {
                return Ok(self.get_stored(key).await?.into_iter().collect());
            }
            if let Some(found) = self.local_backend.as_ref().and_then(|local| local.items(&self.name, keys)) {
                return found;
            }
            let mut pending: Vec<Attributes> = keys.iter().map(|key| key.attributes()).collect();
            let mut found = Vec::with_capacity(keys.len());
            for attempt in 0.. {
                let request = KeysAndAttributes::builder()
                    .set_keys(Some(pending))
                    .consistent_read(true)
                    .build()
                    .map_err(|e| StoreError::Failed(e.to_string()))?;
                let response =
                    self.client.batch_get_item().request_items(&*self.name, request).send().await?;
                found.extend(response.responses.into_iter().flatten().flat_map(|(_, items)| items));
                pending = response
                    .unprocessed_keys
                    .and_then(|mut unprocessed| unprocessed.remove(&*self.name))
                    .map(|unprocessed| unprocessed.keys)
                    .unwrap_or_default();
                if pending.is_empty() {
                    break;
                }
                back_off(attempt, "unread keys").await?;
            }
            Ok(found)
        })
    }

    /// Executes all of `writes` or none. On a conflict with another transaction it retries with exponential backoff and jitter, at
    /// most 10 attempts. A single put or deletion is no transaction: it costs half.
    pub fn transact(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.transact_within(writes, ATTEMPTS_MAX)
    }

    /// As [`Table::transact`], without retries: a conflict is [`StoreError::Conflict`]. For writes that a concurrent transaction
    /// on the same items makes useless.
    pub fn transact_once(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.transact_within(writes, 1)
    }

    fn transact_within(
        &self,
        writes: Vec<Write>,
        attempts_max: u32,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let changes = changes(&writes)?;
            if changes.len() > TRANSACTION_WRITES_MAX {
                return Err(StoreError::Failed(format!("a transaction of {} writes", changes.len())));
            }
            let bytes =
                |change: &ItemChange| if let ItemAction::Put(item) = &change.action { size(item) } else { 0 };
            if changes.iter().map(bytes).sum::<usize>() > TRANSACTION_BYTES_MAX {
                return Err(StoreError::TooLarge);
            }
            let changes = Arc::new(changes);
            if let Some(local) = &self.local_backend
                && let Some(done) = local.transact(&self.name, changes.clone()).await
            {
                return done.map(|_| ());
            }
            if let [change] = changes.as_slice()
                && let Some(written) = self.write_single(change)
            {
                return written.await;
            }
            let items = changes.iter().map(|change| change.to_sdk(&self.name));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            for attempt in 0.. {
                let sent =
                    self.client.transact_write_items().set_transact_items(Some(items.clone())).send().await;
                let Err(error) = sent else { return Ok(()) };
                let failure = match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                        cancellation_error(canceled.cancellation_reasons())
                    }
                    _ => error.into(),
                };
                match failure {
                    StoreError::Conflict if attempt + 1 < attempts_max => {
                        back_off(attempt, "conflict").await?
                    }
                    other => return Err(other),
                }
            }
            Ok(())
        })
    }

    /// Stores one item if `guard` holds.
    pub async fn put(&self, item: Item, guard: WriteCondition) -> Result<(), StoreError> {
        self.transact(vec![Write::Put(item, guard)]).await
    }

    /// Adds `by` to the counter at `key` and returns its new value, which no other call returns.
    pub fn increment<'a>(&'a self, key: &'a Key, by: i64) -> BoxFuture<'a, Result<i64, StoreError>> {
        Box::pin(async move {
            if let Some(local) = &self.local_backend {
                let add = ItemAction::Count { add: vec![(COUNT, by)], set: Vec::new() };
                let change = ItemChange { key: key.clone(), action: add, when: Vec::new() };
                if let Some(done) = local.transact(&self.name, Arc::new(vec![change])).await {
                    return done;
                }
            }
            let response = self
                .client
                .update_item()
                .table_name(&*self.name)
                .set_key(Some(key.attributes()))
                .update_expression("ADD #n :by")
                .expression_attribute_names("#n", COUNT)
                .expression_attribute_values(":by", number(by))
                .return_values(ReturnValue::UpdatedNew)
                .send()
                .await?;
            response
                .attributes
                .and_then(|map| parsed(&map, COUNT))
                .ok_or_else(|| StoreError::Corrupt(format!("no counter at {}/{}", key.pk, key.sk)))
        })
    }

    /// Adds `by` to the counter at `key` if it is below `most`. Returns whether it was. The counter expires at `seconds` since
    /// the epoch.
    pub fn add_if_below<'a>(
        &'a self,
        key: &'a Key,
        by: i64,
        most: i64,
        seconds: i64,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            if most <= 0 {
                return Ok(false);
            }
            let sent = self
                .client
                .update_item()
                .table_name(&*self.name)
                .set_key(Some(key.attributes()))
                .update_expression("SET #e = :e ADD #n :by")
                .condition_expression("attribute_not_exists(#n) OR #n < :most")
                .expression_attribute_names("#n", COUNT)
                .expression_attribute_names("#e", EXPIRES_AT)
                .expression_attribute_values(":by", number(by))
                .expression_attribute_values(":most", number(most))
                .expression_attribute_values(":e", number(seconds))
                .send()
                .await;
            was_applied(sent)
        })
    }

    /// Sets the counter at `key` to `least` if it is lower.
    pub fn raise<'a>(&'a self, key: &'a Key, least: i64) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let sent = self
                .client
                .update_item()
                .table_name(&*self.name)
                .set_key(Some(key.attributes()))
                .update_expression("SET #n = :least")
                .condition_expression("attribute_not_exists(#n) OR #n < :least")
                .expression_attribute_names("#n", COUNT)
                .expression_attribute_values(":least", number(least))
                .send()
                .await;
            was_applied(sent).map(|_| ())
        })
    }

    /// Sets the counter of the item at `key` to `to` if the item exists and its counter is unset or at most `most`. Returns
    /// whether it was set.
    pub fn advance<'a>(
        &'a self,
        key: &'a Key,
        to: i64,
        most: i64,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let sent = self
                .client
                .update_item()
                .table_name(&*self.name)
                .set_key(Some(key.attributes()))
                .update_expression("SET #n = :to")
                .condition_expression("attribute_exists(#p) AND (attribute_not_exists(#n) OR #n <= :most)")
                .expression_attribute_names("#p", PK)
                .expression_attribute_names("#n", COUNT)
                .expression_attribute_values(":to", number(to))
                .expression_attribute_values(":most", number(most))
                .send()
                .await;
            was_applied(sent)
        })
    }
}

/// The error of a cancelled transaction. A failed condition takes precedence over a conflict, because a retry cannot succeed.
fn cancellation_error(reasons: &[aws_sdk_dynamodb::types::CancellationReason]) -> StoreError {
    let index_of = |code: &str| reasons.iter().position(|reason| reason.code() == Some(code));
    if let Some(index) = index_of("ConditionalCheckFailed") {
        return StoreError::Condition { index };
    }
    if index_of("TransactionConflict").is_some() {
        return StoreError::Conflict;
    }
    if index_of("ThrottlingError").or(index_of("ProvisionedThroughputExceeded")).is_some() {
        return StoreError::Busy("throttled".to_owned());
    }
    if index_of("ItemCollectionSizeLimitExceeded").is_some() {
        return StoreError::TooLarge;
    }
    StoreError::Failed(format!("transaction cancelled: {reasons:?}"))
}

/// Whether a conditional write was applied; `false` if its condition failed.
fn was_applied<T, R>(sent: Result<T, SdkError<UpdateItemError, R>>) -> Result<bool, StoreError>
where
    SdkError<UpdateItemError, R>: Into<StoreError>,
{
    match sent {
        Ok(_) => Ok(true),
        Err(error) if error.as_service_error().is_some_and(|e| e.is_conditional_check_failed_exception()) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits before an optimistic write is retried: not before the first attempt, then with exponential backoff and full jitter, at
/// most 64 ms.
pub async fn back_off_after_conflict(conflicts: u32) {
    if conflicts > 0 {
        let most_ms = 2_u64 << conflicts.min(5);
        tokio::time::sleep(Duration::from_millis(crate::ids::random_below(most_ms))).await;
    }
}

/// Waits with exponential backoff and jitter before the next attempt; [`StoreError::Busy`] after the last one.
pub(super) async fn back_off(attempt: u32, what: &str) -> Result<(), StoreError> {
    if attempt >= ATTEMPTS_MAX {
        return Err(StoreError::Busy(what.to_owned()));
    }
    let most_ms = 10_u64 << attempt.min(6);
    tokio::time::sleep(Duration::from_millis(1 + crate::ids::random_below(most_ms))).await;
    Ok(())
}
