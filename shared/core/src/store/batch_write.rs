//! Batch writes without a transaction, for rows that are no longer read and for copies that can be rebuilt.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, WriteRequest};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::item::{Item, Key};
use super::table::back_off;
use super::{StoreError, Table};

/// Maximum writes of one `BatchWriteItem` call, by DynamoDB.
const BATCH_WRITE_MAX: usize = 25;
/// Batches that are deleted concurrently: at 5 ms a call, 40,000 items a second.
const SWEPT_AT_ONCE: usize = 8;
/// Partition keys that are swept concurrently where each has a limit of its own.
const PARTITIONS_AT_ONCE: usize = 64;

impl Table {
    /// Stores `items` and deletes those at `deleted`, in any order and concurrently. Not atomic: a reader may see a part of it,
    /// and after an error a part may be missing.
    pub async fn replace(&self, items: Vec<Item>, deleted: Vec<Key>) -> Result<(), StoreError> {
        let mut writes = delete_requests(&deleted)?;
        for item in items {
            let put = PutRequest::builder().set_item(Some(item.attributes()?)).build();
            let put = put.map_err(|e| StoreError::Failed(e.to_string()))?;
            writes.push(WriteRequest::builder().put_request(put).build());
        }
        let chunks = writes.chunks(BATCH_WRITE_MAX).map(|chunk| self.write_batch(chunk.to_vec()));
        futures::future::try_join_all(chunks).await?;
        Ok(())
    }

    /// Deletes the items at `keys`, in any order. Not atomic; for rows that are no longer read.
    pub async fn sweep(&self, keys: Vec<Key>) -> Result<(), StoreError> {
        let requests = delete_requests(&keys)?;
        let batches = requests.chunks(BATCH_WRITE_MAX).map(|chunk| self.write_batch(chunk.to_vec()));
        let batches = futures::stream::iter(batches.collect::<Vec<_>>());
        batches.buffer_unordered(SWEPT_AT_ONCE).try_for_each(|_| async { Ok(()) }).await
    }

    /// [`Table::sweep`] that consumes at most `units` write units a second of each partition key, because DynamoDB limits a
    /// partition key to 1,000: what is written there meanwhile needs the rest.
    pub async fn sweep_at(&self, keys: Vec<Key>, units: u32) -> Result<(), StoreError> {
        let mut partitions: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        for key in keys {
            partitions.entry(key.pk.clone()).or_default().push(key);
        }
        let sweeps = partitions.into_values().map(|keys| self.sweep_partition(keys, units));
        let sweeps = futures::stream::iter(sweeps.collect::<Vec<_>>());
        sweeps.buffer_unordered(PARTITIONS_AT_ONCE).try_collect().await
    }

    async fn sweep_partition(&self, keys: Vec<Key>, units: u32) -> Result<(), StoreError> {
        let mut next = Instant::now();
        for chunk in delete_requests(&keys)?.chunks(BATCH_WRITE_MAX) {
            tokio::time::sleep_until(next).await;
            next = Instant::now();
            let consumed = self.write_batch(chunk.to_vec()).await?;
            next += Duration::from_secs_f64(consumed.max(chunk.len() as f64) / f64::from(units.max(1)));
        }
        Ok(())
    }

    /// Retries the requests that DynamoDB leaves unprocessed. Returns the consumed write units.
    fn write_batch(&self, mut pending: Vec<WriteRequest>) -> BoxFuture<'_, Result<f64, StoreError>> {
        Box::pin(async move {
            let mut consumed = 0.0;
            for attempt in 0.. {
                let response =
                    self.client.batch_write_item().request_items(&*self.name, pending).send().await?;
                consumed += response
                    .consumed_capacity
                    .iter()
                    .flatten()
                    .filter_map(|it| it.capacity_units)
                    .sum::<f64>();
                pending = response
                    .unprocessed_items
                    .and_then(|mut unprocessed| unprocessed.remove(&*self.name))
                    .unwrap_or_default();
                if pending.is_empty() {
                    break;
                }
                back_off(attempt, "unwritten keys").await?;
            }
            Ok(consumed)
        })
    }
}

fn delete_requests(keys: &[Key]) -> Result<Vec<WriteRequest>, StoreError> {
    let delete_request = |key: &Key| {
        let delete = DeleteRequest::builder().set_key(Some(key.attributes())).build();
        delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
    };
    keys.iter().map(delete_request).collect::<Result<_, _>>().map_err(|e| StoreError::Failed(e.to_string()))
}
