//! Uploads of large objects in parts, which are retried one by one.
//!
//! Must stay true: an object exists as a whole or not at all; an upload that failed is aborted, so that its parts are not kept
//! (those of a process that was killed are deleted by a lifecycle rule of the bucket); a large object is not created over an
//! existing one, because every completion has the precondition that there is none ([`require_absent_object`]). S3 refuses it
//! with 412 if the object exists, and with 409 if another write of the name is running; parts of a refused upload are not used.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::client::HttpRequest;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::{HeaderValue, Method};
use object_store::{Error, MultipartId, ObjectStoreExt};
use tokio::sync::Semaphore;

use super::retry::{LOG_TARGET, RetryPolicy};
use super::{Shared, is_same_object};

/// Objects from this size on are uploaded in parts.
pub(super) const LARGE_BYTES_MIN: usize = 16 << 20;
/// Bytes of a part but the last one. S3 accepts parts from 5 MiB on.
const PART_BYTES: usize = 8 << 20;
/// Parts that a process uploads concurrently: they share the line.
const PARTS_AT_ONCE: usize = 4;
/// Uploads of an object that other writers of the same name may refuse.
const UPLOADS_MAX: usize = 3;

/// Adds the precondition to the completion of an upload in parts that the object does not exist, which the interface of object
/// stores lacks. S3 accepts it although the signature does not cover it.
pub(super) fn require_absent_object(request: &mut HttpRequest) {
    let has_upload_id = |query: &str| query.split('&').any(|parameter| parameter.starts_with("uploadId="));
    if request.method() == Method::POST && request.uri().query().is_some_and(has_upload_id) {
        request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
    }
}

/// The part of an object store that uploads in parts.
#[derive(Clone)]
pub(super) struct LargeUploads {
    store: Arc<dyn MultipartStore>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for LargeUploads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LargeUploads")
    }
}

/// A large object to create.
pub(super) struct LargeObject {
    pub store: Shared,
    pub path: Path,
    pub bytes: Bytes,
    pub retries: RetryPolicy,
}

impl LargeUploads {
    pub(super) fn new(store: Arc<dyn MultipartStore>) -> LargeUploads {
        LargeUploads { store, permits: Arc::new(Semaphore::new(PARTS_AT_ONCE)) }
    }

    /// Creates an object. An existing one with identical content is a success: an earlier attempt may have succeeded without
    /// a response.
    pub(super) async fn create(self, object: LargeObject) -> Result<(), Error> {
        let (path, retries) = (&object.path, object.retries);
        let mut refused = None;
        for _ in 0..UPLOADS_MAX {
            if object.exists().await? {
                return Ok(());
            }
            let id = retries.with(|| self.store.create_multipart(path)).await?;
            let uploaded = self.upload(&object, &id).await;
            if matches!(uploaded, Ok(None)) {
                return Ok(());
            }
            match retries.with(|| self.store.abort_multipart(path, &id)).await {
                // A completion without a response, or the refusal, has ended the upload.
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => tracing::warn!(
                    target: LOG_TARGET, %error, %path,
                    "a failed upload could not be aborted; the bucket's lifecycle rule deletes its parts"
                ),
            }
            refused = uploaded?;
        }
        Err(refused.unwrap_or_else(|| Error::Generic { store: "object store", source: "no upload".into() }))
    }

    /// Uploads the object; returns the refusal if another writer created it meanwhile or is creating it.
    async fn upload(&self, object: &LargeObject, id: &MultipartId) -> Result<Option<Error>, Error> {
        let (path, bytes) = (&object.path, &object.bytes);
        let parts = (0..bytes.len()).step_by(PART_BYTES).enumerate().map(|(index, start)| async move {
            // The timeout of a part begins when it may use the line.
            let _permit = self
                .permits
                .acquire()
                .await
                .map_err(|error| Error::Generic { store: "object store", source: error.into() })?;
            let part = bytes.slice(start..bytes.len().min(start + PART_BYTES));
            let retries = object.retries.for_bytes(part.len() as u64);
            retries.with(|| self.store.put_part(path, id, index, part.clone().into())).await
        });
        let parts = parts.collect::<Vec<_>>();
        let parts: Vec<PartId> =
            futures::stream::iter(parts).buffered(PARTS_AT_ONCE).try_collect::<Vec<_>>().await?;
        match object.retries.with(|| self.store.complete_multipart(path, id, parts.clone())).await {
            Ok(_) => Ok(None),
            Err(refusal @ (Error::Precondition { .. } | Error::AlreadyExists { .. })) => Ok(Some(refusal)),
            // An earlier attempt may have completed it without a response.
            Err(Error::NotFound { path, source }) => match object.exists().await? {
                true => Ok(None),
                false => Err(Error::NotFound { path, source }),
            },
            Err(error) => Err(error),
        }
    }
}

impl LargeObject {
    /// Whether the object exists with this content; an error if it has another.
    async fn exists(&self) -> Result<bool, Error> {
        let (store, path) = (&self.store, &self.path);
        match self.retries.with(|| async { store.head(path).await }).await {
            Err(Error::NotFound { .. }) => return Ok(false),
            other => drop(other?),
        }
        let retries = self.retries.for_bytes(self.bytes.len() as u64);
        match retries.with(|| is_same_object(store, path, &self.bytes)).await? {
            true => Ok(true),
            false => Err(Error::AlreadyExists {
                path: path.to_string(),
                source: "an object of this name has other content".into(),
            }),
        }
    }
}

#[cfg(test)]
mod over_s3;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;
    use std::time::Duration;

    use async_trait::async_trait;
    use object_store::memory::InMemory;
    use object_store::{PutPayload, PutResult};

    use super::super::Objects;
    use super::*;

    /// Counts the calls, and fails those that `fails` selects.
    struct Recorded<F> {
        inner: Arc<InMemory>,
        calls: Arc<Mutex<Vec<String>>>,
        fails: F,
    }

    impl<F: Fn(&str, usize) -> bool> Recorded<F> {
        /// Records the call; the error if it fails.
        fn call(&self, name: String) -> Result<(), Error> {
            let mut calls = self.calls.lock().unwrap();
            calls.push(name.clone());
            let count = calls.iter().filter(|call| **call == name).count();
            match (self.fails)(&name, count) {
                true => Err(Error::Generic { store: "test", source: "503 SlowDown".into() }),
                false => Ok(()),
            }
        }
    }

    #[async_trait]
    impl<F: Fn(&str, usize) -> bool + Send + Sync + 'static> MultipartStore for Recorded<F> {
        async fn create_multipart(&self, path: &Path) -> Result<MultipartId, Error> {
            self.call("create".to_owned())?;
            self.inner.create_multipart(path).await
        }

        async fn put_part(
            &self,
            path: &Path,
            id: &MultipartId,
            index: usize,
            data: PutPayload,
        ) -> Result<PartId, Error> {
            self.call(format!("part {index} of {}", data.content_length()))?;
            self.inner.put_part(path, id, index, data).await
        }

        async fn complete_multipart(
            &self,
            path: &Path,
            id: &MultipartId,
            parts: Vec<PartId>,
        ) -> Result<PutResult, Error> {
            let done = self.inner.complete_multipart(path, id, parts).await;
            self.call("complete".to_owned())?;
            done.map_err(|_| Error::NotFound { path: path.to_string(), source: "NoSuchUpload".into() })
        }

        async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<(), Error> {
            self.call("abort".to_owned())?;
            self.inner.abort_multipart(path, id).await
        }
    }

    fn objects(
        fails: impl Fn(&str, usize) -> bool + Send + Sync + 'static,
    ) -> (Objects, Arc<Mutex<Vec<String>>>) {
        let (inner, calls) = (Arc::new(InMemory::new()), Arc::new(Mutex::new(Vec::new())));
        let recorded = Recorded { inner: inner.clone(), calls: calls.clone(), fails };
        let objects = Objects::new(inner, "").with_large_uploads(LargeUploads::new(Arc::new(recorded)));
        (objects.with_longest_wait(Duration::from_micros(10)), calls)
    }

    fn content(bytes: usize) -> Bytes {
        (0..bytes).map(|n| (n % 251) as u8).collect::<Vec<_>>().into()
    }

    fn sorted(calls: &Mutex<Vec<String>>) -> Vec<String> {
        let mut calls = std::mem::take(&mut *calls.lock().unwrap());
        calls.sort();
        calls
    }

    #[tokio::test]
    async fn an_object_is_uploaded_in_parts_from_16_mib_on() {
        let (objects, calls) = objects(|_, _| false);
        let (small, large) = (content((16 << 20) - 1), content((16 << 20) + 1));
        objects.create("a/small", small.clone()).await.unwrap();
        assert_eq!(sorted(&calls), [""; 0]);
        assert_eq!(objects.get("a/small").await.unwrap(), small);
        objects.create("a/large", large.clone()).await.unwrap();
        let expected = ["complete", "create", "part 0 of 8388608", "part 1 of 8388608", "part 2 of 1"];
        assert_eq!(sorted(&calls), expected);
        assert_eq!(objects.get("a/large").await.unwrap(), large);
        // Sent again because the response was lost.
        objects.create("a/large", large.clone()).await.unwrap();
        assert_eq!(sorted(&calls), [""; 0]);
        let mut other = large.to_vec();
        other[9 << 20] ^= 1;
        assert!(objects.create("a/large", other.into()).await.is_err());
        assert_eq!(sorted(&calls), [""; 0]);
        assert_eq!(objects.get("a/large").await.unwrap(), large);
    }

    #[tokio::test]
    async fn a_part_that_failed_is_sent_again_alone() {
        let (objects, calls) = objects(|call, count| call.starts_with("part 1") && count <= 2);
        let large = content(20 << 20);
        objects.create("a/large", large.clone()).await.unwrap();
        let expected = [
            "complete",
            "create",
            "part 0 of 8388608",
            "part 1 of 8388608",
            "part 1 of 8388608",
            "part 1 of 8388608",
            "part 2 of 4194304",
        ];
        assert_eq!(sorted(&calls), expected);
        assert_eq!(objects.get("a/large").await.unwrap(), large);
    }

    #[tokio::test]
    async fn an_upload_that_fails_is_aborted_and_leaves_no_object() {
        let (objects, calls) = objects(|call, _| call.starts_with("part 2"));
        assert!(objects.create("a/large", content(20 << 20)).await.is_err());
        let calls = sorted(&calls);
        assert_eq!(calls.iter().filter(|call| *call == "abort").count(), 1, "{calls:?}");
        assert!(!calls.iter().any(|call| call == "complete"), "{calls:?}");
        assert!(objects.list("a").await.unwrap().iter().all(|object| object.name != "a/large"));
    }

    #[tokio::test]
    async fn a_completion_whose_response_was_lost_is_a_success() {
        let (objects, calls) = objects(|call, count| call == "complete" && count == 1);
        let large = content(17 << 20);
        objects.create("a/large", large.clone()).await.unwrap();
        assert!(!sorted(&calls).iter().any(|call| call == "abort"));
        assert_eq!(objects.get("a/large").await.unwrap(), large);
    }
}
