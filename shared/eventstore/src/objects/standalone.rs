//! Objects that stand alone: no manifest names them and no checksums lie beside them. Whoever reads one compares it with
//! what it knows of it, and can do without.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::{Objects, get_if_there, put_once};
use crate::error::EventStoreError;

/// Objects that are removed at the same time.
const REMOVED_AT_ONCE: usize = 8;

impl Objects {
    /// Stores a new object.
    pub(crate) async fn put_standalone(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        let path = self.path(name);
        let put = || put_once(self.store.clone(), path.clone(), bytes.clone());
        Ok(self.brief.with(put).await?)
    }

    /// An object, if it is there.
    pub(crate) async fn get_standalone(&self, name: &str) -> Result<Option<Bytes>, EventStoreError> {
        let path = self.path(name);
        Ok(self.brief.with(|| get_if_there(self.store.clone(), path.clone())).await?)
    }

    /// Removes objects; that one is gone already is no error.
    pub(crate) async fn remove_standalone(&self, names: &[String]) -> Result<(), EventStoreError> {
        let removals = names.iter().map(|name| self.delete(name)).collect::<Vec<_>>();
        futures::stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE).try_collect().await
    }
}
