//! The objects of a simulated installation, in memory, with the times of the simulated clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::defects::Defect;
use super::switch::{Call, ConnectionLost, Switch};

/// All objects, each with the time when it was stored.
#[derive(Debug)]
pub struct Objects {
    objects: Mutex<BTreeMap<Path, (Bytes, i64)>>,
    pub clock: Arc<AtomicI64>,
    defect: Option<Defect>,
    puts: AtomicU64,
}

impl Objects {
    pub fn new(clock: Arc<AtomicI64>, defect: Option<Defect>) -> Objects {
        Objects { objects: Mutex::default(), clock, defect, puts: AtomicU64::new(0) }
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().map(Path::to_string).collect()
    }

    fn put(&self, path: &Path, bytes: Bytes, is_new: bool) -> Result<PutResult> {
        let mut objects = self.objects.lock().unwrap();
        if is_new && objects.contains_key(path) {
            return Err(Error::AlreadyExists { path: path.to_string(), source: "it exists".into() });
        }
        let put = self.puts.fetch_add(1, Ordering::Relaxed);
        if self.defect != Some(Defect::LostObject) || put % 16 != 15 {
            objects.insert(path.clone(), (bytes, self.clock.load(Ordering::Relaxed)));
        }
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    fn get(&self, path: &Path) -> Result<(ObjectMeta, Bytes)> {
        let objects = self.objects.lock().unwrap();
        let Some((bytes, at)) = objects.get(path) else {
            return Err(Error::NotFound { path: path.to_string(), source: "it is not there".into() });
        };
        Ok((meta(path, bytes, *at), bytes.clone()))
    }

    fn list(&self, prefix: Option<&Path>) -> Vec<ObjectMeta> {
        let objects = self.objects.lock().unwrap();
        let root = Path::default();
        let prefix = prefix.unwrap_or(&root);
        let is_below = |path: &Path| path.prefix_match(prefix).is_some_and(|mut rest| rest.next().is_some());
        let listed = objects.iter().filter(|(path, _)| is_below(path));
        listed.map(|(path, (bytes, at))| meta(path, bytes, *at)).collect()
    }
}

fn meta(path: &Path, bytes: &Bytes, at: i64) -> ObjectMeta {
    let last_modified = DateTime::from_timestamp_micros(at).unwrap();
    let size = bytes.len() as u64;
    ObjectMeta { location: path.clone(), last_modified, size, e_tag: None, version: None }
}

fn cut(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let end = range.end.min(bytes.len() as u64) as usize;
    bytes.slice((range.start as usize).min(end)..end)
}

/// The objects as one process calls them.
#[derive(Debug, Clone)]
pub struct ObjectCalls {
    pub objects: Arc<Objects>,
    pub switch: Arc<Switch>,
}

impl fmt::Display for ObjectCalls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("simulated objects")
    }
}

impl ObjectCalls {
    async fn call<T>(
        &self,
        operation: &'static str,
        path: &Path,
        is_write: bool,
        effect: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let done = self.switch.call(Call { operation, name: &|| path.to_string(), is_write }, effect).await;
        done.unwrap_or_else(|ConnectionLost| {
            Err(Error::Generic { store: "simulation", source: "no response".into() })
        })
    }
}

fn unsupported(what: &str) -> Error {
    Error::NotSupported { source: format!("{what} is not simulated").into() }
}

#[async_trait]
impl ObjectStore for ObjectCalls {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_new = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return Err(unsupported("an update")),
        };
        self.call("put", path, true, || self.objects.put(path, payload.into(), is_new)).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("an upload in parts"))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let (meta, bytes) = self.call("read", path, false, || self.objects.get(path)).await?;
        let whole = || Ok(0..meta.size);
        let range = options.range.map_or_else(whole, |range| range.as_range(meta.size));
        let range = range.map_err(|error| Error::Generic { store: "simulation", source: error.into() })?;
        let part = cut(&bytes, &range);
        let payload = GetResultPayload::Stream(futures::stream::once(async { Ok(part) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default(), extensions: Default::default() })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (_, bytes) = self.call("read", path, false, || self.objects.get(path)).await?;
        Ok(ranges.iter().map(|range| cut(&bytes, range)).collect())
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                let objects = &this.objects.objects;
                this.call("remove", &path, true, || Ok(objects.lock().unwrap().remove(&path))).await?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let name = prefix.clone().unwrap_or_default();
            this.call("list", &name, false, || Ok(this.objects.list(prefix.as_ref()))).await
        };
        let each = |listed: Result<Vec<ObjectMeta>>| {
            let each = match listed {
                Ok(listed) => listed.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(each)
        };
        futures::stream::once(listed).flat_map(each).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = prefix.cloned().unwrap_or_default();
        let listed = self.call("list", &root, false, || Ok(self.objects.list(prefix))).await?;
        let depth = root.parts().count() + 1;
        let (objects, below): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|object| object.location.parts().count() == depth);
        let folder = |object: &ObjectMeta| object.location.parts().take(depth).collect::<Path>();
        let folders = below.iter().map(folder).collect::<BTreeSet<Path>>();
        let common_prefixes = folders.into_iter().collect();
        Ok(ListResult { objects, common_prefixes, extensions: Default::default() })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        let copy = || {
            let (_, bytes) = self.objects.get(from)?;
            self.objects.put(to, bytes, false).map(drop)
        };
        self.call("copy", to, true, copy).await
    }
}
