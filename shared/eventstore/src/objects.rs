//! The object store: a local directory or a bucket. Nothing else in the crate knows which.
//!
//! Must stay true: objects are only ever created, never changed, and lie safely on the disk (file and directory
//! synced) or in the bucket when [`Objects::create`] returns.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use crate::error::EventStoreError;

/// Where the objects of all projects lie.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Objects {
    /// The objects at `file:///directory` (made when missing) or `s3://bucket/prefix` (settings from the environment).
    pub(crate) fn open(url: &str) -> Result<Objects, EventStoreError> {
        if let Some(directory) = url.strip_prefix("file://") {
            let directory = PathBuf::from(directory);
            if !directory.is_absolute() {
                return Err(EventStoreError::Location(format!("{url} names no absolute directory")));
            }
            std::fs::create_dir_all(&directory).map_err(|e| {
                EventStoreError::Location(format!("{} cannot be made: {e}", directory.display()))
            })?;
            let store = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
            return Ok(Objects { store: Arc::new(store), prefix: String::new() });
        }
        let Some(place) = url.strip_prefix("s3://") else {
            return Err(EventStoreError::Location(format!(
                "{url} is neither file:///directory nor s3://bucket/prefix"
            )));
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .build()?;
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Objects { store: Arc::new(store), prefix })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }

    /// Stores a new object; one of that name must not be there.
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.store.put_opts(&self.path(name), bytes.into(), options).await?;
        Ok(())
    }

    /// A whole object.
    pub(crate) async fn get(&self, name: &str) -> Result<Bytes, EventStoreError> {
        Ok(self.store.get(&self.path(name)).await?.bytes().await?)
    }

    /// How many bytes an object has.
    pub(crate) async fn size(&self, name: &str) -> Result<u64, EventStoreError> {
        Ok(self.store.head(&self.path(name)).await?.size)
    }

    /// Parts of an object.
    pub(crate) async fn ranges(
        &self,
        name: &str,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>, EventStoreError> {
        Ok(self.store.get_ranges(&self.path(name), ranges).await?)
    }

    /// Removes an object; that it is gone already is no error.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), EventStoreError> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn an_object_is_created_once_and_never_changed() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(&format!("file://{}/new", directory.path().display())).unwrap();
        objects.create("a/b", Bytes::from_static(b"one")).await.unwrap();
        assert!(objects.create("a/b", Bytes::from_static(b"two")).await.is_err());
        assert_eq!(objects.get("a/b").await.unwrap(), "one");
        assert_eq!(objects.ranges("a/b", &[0..1, 1..3]).await.unwrap(), ["o", "ne"]);
        objects.delete("a/b").await.unwrap();
        objects.delete("a/b").await.unwrap();
    }

    #[test]
    fn other_addresses_are_refused() {
        for url in ["", "/tmp", "file://here", "gs://bucket"] {
            assert!(matches!(Objects::open(url), Err(EventStoreError::Location(_))), "{url}");
        }
    }
}
