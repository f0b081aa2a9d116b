//! Standalone objects, which no manifest names and which have no checksum file. The reader verifies the content
//! by its own means, and can do without it.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::{Objects, get_if_there, put_once};
use crate::error::EventStoreError;

/// Objects that are deleted concurrently.
const REMOVED_AT_ONCE: usize = 8;

impl Objects {
    /// Stores a new object.
    pub(crate) async fn put_standalone(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        let path = self.path(name);
        let put = || put_once(self.store.clone(), path.clone(), bytes.clone());
        Ok(self.brief.with(put).await?)
    }

    /// Reads an object, if it exists.
    pub(crate) async fn get_standalone(&self, name: &str) -> Result<Option<Bytes>, EventStoreError> {
        let path = self.path(name);
        Ok(self.brief.with(|| get_if_there(self.store.clone(), path.clone())).await?)
    }

    /// Deletes objects; missing ones are no error.
    pub(crate) async fn remove_standalone(&self, names: &[String]) -> Result<(), EventStoreError> {
        let removals = names.iter().map(|name| self.delete(name)).collect::<Vec<_>>();
        futures::stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE).try_collect().await
    }
}
