//! Batch writes without a transaction, for rows that are no longer read and for copies that can be rebuilt.

use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, WriteRequest};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use super::item::{Item, Key};
use super::table::back_off;
use super::{StoreError, Table};

/// Maximum writes of one `BatchWriteItem` call, by DynamoDB.
const BATCH_WRITE_MAX: usize = 25;
/// Batches that are deleted concurrently: at 5 ms a call, 40,000 items a second.
const SWEPT_AT_ONCE: usize = 8;

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
        batches.buffer_unordered(SWEPT_AT_ONCE).try_collect().await
    }

    fn write_batch(&self, mut pending: Vec<WriteRequest>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            for attempt in 0.. {
                let response =
                    self.client.batch_write_item().request_items(&*self.name, pending).send().await?;
                pending = response
                    .unprocessed_items
                    .and_then(|mut unprocessed| unprocessed.remove(&*self.name))
                    .unwrap_or_default();
                if pending.is_empty() {
                    break;
                }
                back_off(attempt, "unwritten keys").await?;
            }
            Ok(())
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
