//! Records the calls to the object store.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::keys::folder_of;
use super::note;
use crate::Meter;

/// A directory whose calls are noted, as the actions that a bucket's policy names.
#[derive(Debug)]
pub(super) struct NotingObjects(pub(super) LocalFileSystem, pub(super) Meter);

fn noted(action: &str, path: &Path) {
    note("objects", action, || folder_of(path.as_ref()));
}

impl fmt::Display for NotingObjects {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("noting")
    }
}

#[async_trait]
impl ObjectStore for NotingObjects {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        noted("s3:PutObject", path);
        self.1.add(|spent| spent.puts += 1);
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        noted("s3:AbortMultipartUpload", path);
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        noted("s3:GetObject", path);
        let is_head = options.head;
        let read = self.0.get_opts(path, options).await;
        let bytes = read.as_ref().map_or(0, |read| read.range.end - read.range.start);
        self.1.add(|spent| {
            spent.gets += 1;
            spent.bytes += if is_head { 0 } else { bytes };
        });
        read
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        noted("s3:GetObject", path);
        // One call each; the client may request adjacent ranges together.
        self.1.add(|spent| {
            spent.gets += u32::try_from(ranges.len()).unwrap_or(u32::MAX);
            spent.bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        });
        self.0.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        // The stream may be polled by a task without a function name, so the name is passed with it.
        let name = pennon_core::function_name::function_name();
        let paths = paths.and_then(move |path| {
            let name = name.clone();
            async move {
                let noting = async { noted("s3:DeleteObject", &path) };
                match name {
                    Some(name) => pennon_core::function_name::with_function_name(&name, noting).await,
                    None => noting.await,
                }
                Ok(path)
            }
        });
        self.0.delete_stream(paths.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.map(ToString::to_string).unwrap_or_default();
        noted("s3:ListBucket", &Path::from(format!("{folder}/any")));
        self.1.add(|spent| spent.puts += 1);
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        noted("s3:GetObject", from);
        noted("s3:PutObject", to);
        self.0.copy_opts(from, to, options).await
    }
}
