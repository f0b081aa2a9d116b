//! The one place that calls DynamoDB: get, batch get, query, transaction, counter.
//!
//! Must stay true: all reads are strongly consistent, so that a list right after a write shows it; all changes go
//! through [`Table::transact`] (or are one atomic item), so that a reader never sees half of one; nothing scans.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnValue};

use super::StoreError;
use super::change::{Action, Change, changes};
use super::item::{Attributes, COUNT, EXPIRES_AT, Item, Key, PK, RowChecksums, number, parsed};
use super::local_backend::LocalBackend;
use super::parts::size;

/// Most writes of one transaction, by DynamoDB's rule.
pub const TRANSACTION_WRITES_MAX: usize = 100;
/// Bytes of one transaction: DynamoDB takes 4 MB.
const TRANSACTION_BYTES_MAX: usize = 4_000_000;
const BATCH_GET_KEYS_MAX: usize = 100;
const CONFLICT_TRIES: u32 = 10;

/// One table.
#[derive(Debug, Clone)]
pub struct Table {
    pub(super) client: Client,
    pub(super) name: Arc<str>,
    /// What answers before the client is asked.
    pub(super) local_backend: Option<Arc<dyn LocalBackend>>,
}

/// What must hold of the stored item for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    None,
    /// There is no item.
    Absent,
    /// There is an item.
    Present,
    /// The item is there and has this version.
    Version(u64),
    /// There is no item, it has no counter, or its counter is at most this.
    CountAtMost(i64),
}

/// One write of a transaction.
#[derive(Debug, Clone)]
pub enum Write {
    /// Store the item, replacing what is there.
    Put(Item, Guard),
    /// Remove the item.
    Delete(Key, Guard),
    /// Write nothing, but demand the condition.
    Check(Key, Guard),
    /// Add to the item's counter, which starts at 0.
    Add(Key, i64),
    /// VersionBump a project's version.
    BumpVersion(Key, VersionBump),
    /// Set what the version with this number says of the feed's room ([`RowChecksums::used`]), and leave its number.
    SetFeedBytes(Key, i64, i64),
}

/// How a project's version is raised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionBump {
    /// What is added to the sums; `last` is set.
    pub by: RowChecksums,
    /// What [`RowChecksums::used`] becomes, where it was measured; `by` adds nothing to it then.
    pub used: Option<i64>,
    /// What has to be as it was read.
    pub when: Precondition,
}

/// What of a project's version has to be as a writer saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Precondition {
    /// The sum of the rows.
    pub rows: Option<i64>,
    /// The sum of the rows that depend on others.
    pub edges: Option<i64>,
    /// The number: nothing at all was written that raises it.
    pub number: Option<i64>,
    /// The most that may be used of the feed's room before the write.
    pub used_at_most: Option<i64>,
}

impl Table {
    /// The table called `name`, reached through `client`.
    pub fn new(client: Client, name: &str) -> Table {
        Table { client, name: name.into(), local_backend: None }
    }

    /// The same table, which asks `local_backend` first.
    #[must_use]
    pub fn with_local_backend(self, local_backend: Arc<dyn LocalBackend>) -> Table {
        Table { local_backend: Some(local_backend), ..self }
    }

    /// The item at `key`, if there is one.
    pub async fn get(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        let item = self.get_head(key).await?;
        Ok(self.completed(item.into_iter().collect()).await?.pop())
    }

    /// The item at `key` without the parts that it may have.
    pub(super) async fn get_head(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        self.get_stored(key).await?.map(Item::from_attributes).transpose()
    }

    /// The item at `key` as it is stored.
    async fn get_stored(&self, key: &Key) -> Result<Option<Attributes>, StoreError> {
        if let Some(mut found) = self.local_backend.as_ref().and_then(|local| local.items(&self.name, &[key]))
        {
            return Ok(found.pop());
        }
        let answer = self
            .client
            .get_item()
            .table_name(&*self.name)
            .set_key(Some(key.attributes()))
            .consistent_read(true)
            .send()
            .await?;
        Ok(answer.item)
    }

    /// The items at `keys`, in their order, in one round trip up to a hundred keys.
    pub async fn batch_get(&self, keys: &[Key]) -> Result<Vec<Option<Item>>, StoreError> {
        let mut found = self.batch_get_heads(keys).await?;
        let items = found.values().filter(|item| item.parts().is_some()).cloned().collect::<Vec<_>>();
        if !items.is_empty() {
            for item in &items {
                found.remove(&item.key);
            }
            found.extend(self.completed(items).await?.into_iter().map(|item| (item.key.clone(), item)));
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// The items at `keys` that are there, without the parts that they may have.
    pub(super) async fn batch_get_heads(&self, keys: &[Key]) -> Result<HashMap<Key, Item>, StoreError> {
        let items = self.batch_get_stored(keys).await?.into_iter().map(Item::from_attributes);
        items.map(|item| item.map(|item| (item.key.clone(), item))).collect()
    }

    /// The items at `keys` that are there, as they are stored, in any order.
    pub(super) async fn batch_get_stored(&self, keys: &[Key]) -> Result<Vec<Attributes>, StoreError> {
        // A key may be named once only in a batch.
        let mut distinct: Vec<&Key> = keys.iter().collect();
        distinct.sort();
        distinct.dedup();
        let chunks = distinct.chunks(BATCH_GET_KEYS_MAX).map(|chunk| self.batch_get_chunk(chunk));
        Ok(futures::future::try_join_all(chunks).await?.into_iter().flatten().collect())
    }

    async fn batch_get_chunk(&self, keys: &[&Key]) -> Result<Vec<Attributes>, StoreError> {
        if let [key] = keys {
            return Ok(self.get_stored(key).await?.into_iter().collect());
        }
        if let Some(found) = self.local_backend.as_ref().and_then(|local| local.items(&self.name, keys)) {
            return Ok(found);
        }
        let mut wanted: Vec<Attributes> = keys.iter().map(|key| key.attributes()).collect();
        let mut found = Vec::with_capacity(keys.len());
        for attempt in 0.. {
            let request = KeysAndAttributes::builder()
                .set_keys(Some(wanted))
                .consistent_read(true)
                .build()
                .map_err(|e| StoreError::Failed(e.to_string()))?;
            let answer = self.client.batch_get_item().request_items(&*self.name, request).send().await?;
            found.extend(answer.responses.into_iter().flatten().flat_map(|(_, items)| items));
            wanted = answer
                .unprocessed_keys
                .and_then(|mut left| left.remove(&*self.name))
                .map(|left| left.keys)
                .unwrap_or_default();
            if wanted.is_empty() {
                break;
            }
            pause(attempt, "unread keys").await?;
        }
        Ok(found)
    }

    /// Writes all of `writes` or nothing. Waits and tries again while other transactions hold the items.
    pub async fn transact(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        let changes = changes(&writes)?;
        if changes.len() > TRANSACTION_WRITES_MAX {
            return Err(StoreError::Failed(format!("a transaction of {} writes", changes.len())));
        }
        let bytes = |change: &Change| if let Action::Put(item) = &change.action { size(item) } else { 0 };
        if changes.iter().map(bytes).sum::<usize>() > TRANSACTION_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        let changes = Arc::new(changes);
        if let Some(local) = &self.local_backend
            && let Some(done) = local.transact(&self.name, changes.clone()).await
        {
            return done.map(|_| ());
        }
        let items = changes.iter().map(|change| change.to_sdk(&self.name));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        for attempt in 0.. {
            let sent =
                self.client.transact_write_items().set_transact_items(Some(items.clone())).send().await;
            let Err(error) = sent else { return Ok(()) };
            let failure = match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                    cancellation(canceled.cancellation_reasons())
                }
                _ => error.into(),
            };
            match failure {
                StoreError::Conflict if attempt + 1 < CONFLICT_TRIES => pause(attempt, "conflict").await?,
                other => return Err(other),
            }
        }
        Ok(())
    }

    /// Stores one item, if `guard` holds.
    pub async fn put(&self, item: Item, guard: Guard) -> Result<(), StoreError> {
        self.transact(vec![Write::Put(item, guard)]).await
    }

    /// Adds `by` to the counter at `key` and returns what it then is. Never gives the same number twice.
    pub async fn increment(&self, key: &Key, by: i64) -> Result<i64, StoreError> {
        if let Some(local) = &self.local_backend {
            let add = Action::Count { add: vec![(COUNT, by)], set: Vec::new() };
            let change = Change { key: key.clone(), action: add, when: Vec::new() };
            if let Some(done) = local.transact(&self.name, Arc::new(vec![change])).await {
                return done;
            }
        }
        let answer = self
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
        answer
            .attributes
            .and_then(|map| parsed(&map, COUNT))
            .ok_or_else(|| StoreError::Corrupt(format!("no counter at {}/{}", key.pk, key.sk)))
    }

    /// Adds one to the counter at `key` if it is below `most`, and says whether it was. DynamoDB may remove the counter
    /// after `seconds` since the epoch.
    pub async fn count_below(&self, key: &Key, most: i64, seconds: i64) -> Result<bool, StoreError> {
        if most <= 0 {
            return Ok(false);
        }
        let sent = self
            .client
            .update_item()
            .table_name(&*self.name)
            .set_key(Some(key.attributes()))
            .update_expression("SET #e = :e ADD #n :one")
            .condition_expression("attribute_not_exists(#n) OR #n < :most")
            .expression_attribute_names("#n", COUNT)
            .expression_attribute_names("#e", EXPIRES_AT)
            .expression_attribute_values(":one", number(1))
            .expression_attribute_values(":most", number(most))
            .expression_attribute_values(":e", number(seconds))
            .send()
            .await;
        happened(sent)
    }

    /// Raises the counter at `key` to `least`, if it is lower.
    pub async fn raise(&self, key: &Key, least: i64) -> Result<(), StoreError> {
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
        happened(sent).map(|_| ())
    }

    /// Sets the counter of the item at `key` to `to`, if the item is there and its counter is unset or at most `most`.
    /// Returns whether it was set.
    pub async fn advance(&self, key: &Key, to: i64, most: i64) -> Result<bool, StoreError> {
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
        happened(sent)
    }
}

/// The error that a cancelled transaction stands for: a failed condition outweighs a conflict, because it is final.
fn cancellation(reasons: &[aws_sdk_dynamodb::types::CancellationReason]) -> StoreError {
    let code = |wanted: &str| reasons.iter().position(|reason| reason.code() == Some(wanted));
    if let Some(index) = code("ConditionalCheckFailed") {
        return StoreError::Condition { index };
    }
    if code("TransactionConflict").is_some() {
        return StoreError::Conflict;
    }
    if code("ThrottlingError").or(code("ProvisionedThroughputExceeded")).is_some() {
        return StoreError::Busy("throttled".to_owned());
    }
    if code("ItemCollectionSizeLimitExceeded").is_some() {
        return StoreError::TooLarge;
    }
    StoreError::Failed(format!("transaction cancelled: {reasons:?}"))
}

/// Whether a conditional write was done; it was not where its condition did not hold.
fn happened<T, R>(sent: Result<T, SdkError<UpdateItemError, R>>) -> Result<bool, StoreError>
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

/// Waits before a write that others have overtaken so many times is judged again: not at all before the first try, then
/// longer with every one, by a random share, and about a twentieth of a second at most.
pub async fn back_off_after_conflict(tried: u32) {
    if tried > 0 {
        let most_ms = 2_u64 << tried.min(5);
        tokio::time::sleep(Duration::from_millis(crate::ids::random_below(most_ms))).await;
    }
}

/// Waits longer with every try, by a random share; gives up after the last.
pub(super) async fn pause(attempt: u32, what: &str) -> Result<(), StoreError> {
    if attempt >= CONFLICT_TRIES {
        return Err(StoreError::Busy(what.to_owned()));
    }
    let most_ms = 10_u64 << attempt.min(6);
    tokio::time::sleep(Duration::from_millis(1 + crate::ids::random_below(most_ms))).await;
    Ok(())
}
