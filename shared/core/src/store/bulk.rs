//! Writes without a transaction: for what no reader looks at any more, and for copies that can be made again.

use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, WriteRequest};

use super::item::{Item, Key};
use super::table::pause;
use super::{StoreError, Table};

/// Most writes of one call, by DynamoDB's rule.
const BATCH_WRITE_MAX: usize = 25;

impl Table {
    /// Stores `items` and removes those at `gone`, in any order, one round trip for all. A reader may see some of it
    /// before the rest, and a failure may leave some of it undone.
    pub async fn replace(&self, items: Vec<Item>, gone: Vec<Key>) -> Result<(), StoreError> {
        let mut writes = removals(&gone)?;
        for item in items {
            let put = PutRequest::builder().set_item(Some(item.attributes()?)).build();
            let put = put.map_err(|e| StoreError::Failed(e.to_string()))?;
            writes.push(WriteRequest::builder().put_request(put).build());
        }
        let chunks = writes.chunks(BATCH_WRITE_MAX).map(|chunk| self.write_all(chunk.to_vec()));
        futures::future::try_join_all(chunks).await?;
        Ok(())
    }

    /// Removes the items at `keys`, in any number of steps; for what no reader looks at any more.
    pub async fn sweep(&self, keys: Vec<Key>) -> Result<(), StoreError> {
        for chunk in removals(&keys)?.chunks(BATCH_WRITE_MAX) {
            self.write_all(chunk.to_vec()).await?;
        }
        Ok(())
    }

    async fn write_all(&self, mut wanted: Vec<WriteRequest>) -> Result<(), StoreError> {
        for attempt in 0.. {
            let answer = self.client.batch_write_item().request_items(&*self.name, wanted).send().await?;
            wanted =
                answer.unprocessed_items.and_then(|mut left| left.remove(&*self.name)).unwrap_or_default();
            if wanted.is_empty() {
                break;
            }
            pause(attempt, "unwritten keys").await?;
        }
        Ok(())
    }
}

fn removals(keys: &[Key]) -> Result<Vec<WriteRequest>, StoreError> {
    let removal = |key: &Key| {
        let delete = DeleteRequest::builder().set_key(Some(key.attributes())).build();
        delete.map(|delete| WriteRequest::builder().delete_request(delete).build())
    };
    keys.iter().map(removal).collect::<Result<_, _>>().map_err(|e| StoreError::Failed(e.to_string()))
}
