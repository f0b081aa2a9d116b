//! Object store client: a local directory or an S3 bucket, with retries and checksums.
//!
//! Must stay true: objects are created and never changed, and are durable (file and directory synced, or stored
//! in the bucket) when [`Objects::create_all`] returns; every read is verified, and a mismatch is an error that
//! names the object; transient failures are retried with a limit. Nothing here knows what objects contain, and
//! no other folder knows where they are stored. The public interface is [`Objects`].

pub(crate) mod checksums;
mod fresh_connections;
mod large_uploads;
pub(crate) mod object_versions;
mod open;
mod quarantine;
mod relocate;
mod result_objects;
mod retry;
mod standalone;
mod table_files;

pub use object_versions::VersionReport;
pub use quarantine::Damage;
pub(crate) use quarantine::{Quarantine, segment_of};
pub(crate) use retry::RetryBudget;

pub use result_objects::ResultObject;
pub(crate) use result_objects::ResultObjects;
pub use table_files::TableFiles;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, OBJECT_STORE_COALESCE_DEFAULT, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use pennon_analytics::scan::Micros;
use pennon_core::request_metrics;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::EventStoreError;
use crate::threads::cores;
use checksums::{Checksums, ObjectChecksums};
use large_uploads::{LARGE_BYTES_MIN, LargeObject, LargeUploads};
use object_versions::ObjectVersions;
use retry::RetryPolicy;

/// Bytes of cached checksums: for about 60 GB of objects.
const SUMS_BYTES: u64 = 64 << 20;
/// Objects that are written concurrently.
const WRITTEN_AT_ONCE: usize = 4;
/// Person ranges that are read from a bucket at once, where each read waits some 15 ms for its first byte. A range takes about four
/// connections, of which the first handshake takes CPU time; more of them do not respond sooner.
const BUCKET_RANGES_AT_ONCE: usize = 16;
/// Error text for a missing object.
const MISSING: &str = "it is missing";
/// Size above which checksums are verified on a blocking thread.
const COMPARED_ASIDE: u64 = 1 << 20;

/// The objects of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    /// The URL of the folder of all objects, for other engines; of a store that was passed in, none that they know.
    location: Arc<str>,
    /// Whether the store is a directory, so that reads have no latency to hide.
    is_directory: bool,
    sums: Arc<Cache<String, Arc<Checksums>, ChecksumsWeight>>,
    quarantine: Option<Quarantine>,
    /// Uploads in parts; `None` in a directory.
    large_uploads: Option<LargeUploads>,
    /// The versions of objects; `None` in a directory.
    versions: Option<ObjectVersions>,
    read: RetryPolicy,
    whole: RetryPolicy,
    brief: RetryPolicy,
}

#[derive(Debug, Clone)]
struct ChecksumsWeight;

impl Weighter<String, Arc<Checksums>> for ChecksumsWeight {
    fn weight(&self, name: &String, sums: &Arc<Checksums>) -> u64 {
        name.len() as u64 + sums.weight()
    }
}

/// Name, size and time of a stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectInfo {
    pub name: String,
    pub bytes: u64,
    /// Last modified, by the clock of the store.
    pub at: Micros,
}

impl Objects {
    /// The objects of `store` whose names start with `prefix`.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Objects {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let sums = Arc::new(Cache::with_weighter(1024, SUMS_BYTES, ChecksumsWeight));
        let (read, whole, brief) = (RetryPolicy::READ, RetryPolicy::WHOLE, RetryPolicy::BRIEF);
        let (quarantine, large_uploads, versions) = (None, None, None);
        Objects {
            store,
            prefix,
            location: "memory:".into(),
            is_directory: false,
            sums,
            quarantine,
            large_uploads,
            versions,
            read,
            whole,
            brief,
        }
    }

    fn with_large_uploads(self, large_uploads: LargeUploads) -> Objects {
        Objects { large_uploads: Some(large_uploads), ..self }
    }

    /// Sets timeouts that fit the size of a transfer over a slow line.
    fn for_slow_line(mut self) -> Objects {
        for policy in [&mut self.read, &mut self.whole, &mut self.brief] {
            policy.transfer_rate_min = Some(retry::SLOW_LINE_BYTES_PER_SECOND);
        }
        self
    }

    /// Sets where damage is marked.
    pub(crate) fn with_quarantine(self, quarantine: Quarantine) -> Objects {
        Objects { quarantine: Some(quarantine), ..self }
    }

    /// Limits the wait between retries.
    pub(crate) fn with_longest_wait(mut self, wait: std::time::Duration) -> Objects {
        for patience in [&mut self.read, &mut self.whole, &mut self.brief] {
            patience.first_wait = patience.first_wait.min(wait);
            patience.longest_wait = patience.longest_wait.min(wait);
        }
        self
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }

    /// Stores a new object with its own checksum file. The name must not exist, nor any other with the same
    /// start.
    #[cfg(test)]
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        self.create_all(&[(name.to_owned(), bytes)]).await
    }

    /// Stores the new objects of a segment or an import, whose names are equal up to the first dot, and their
    /// checksum file. The names must not exist, except with identical content: an earlier attempt may have
    /// succeeded without a response.
    pub(crate) fn create_all<'a>(
        &'a self,
        files: &'a [(String, Bytes)],
    ) -> BoxFuture<'a, Result<(), EventStoreError>> {
        Box::pin(self.create_with_sums(files))
    }

    async fn create_with_sums(&self, files: &[(String, Bytes)]) -> Result<(), EventStoreError> {
        let Some((first, _)) = files.first() else { return Ok(()) };
        let (start, _) = checksums::split(first);
        let copies = files.to_vec();
        let sums = tokio::task::spawn_blocking(move || {
            copies.iter().fold(Checksums::default(), |mut sums, (name, bytes)| {
                sums.add(name, ObjectChecksums::of(bytes));
                sums
            })
        });
        let sums = sums.await?;
        let beside = (checksums::object_of(first), sums.encode(start));
        let files = files.iter().chain([&beside]).map(|(name, bytes)| self.create_one(name, bytes));
        let files = files.collect::<Vec<_>>();
        futures::stream::iter(files).buffer_unordered(WRITTEN_AT_ONCE).try_collect::<()>().await?;
        self.sums.insert(beside.0.clone(), Arc::new(sums));
        Ok(())
    }

    fn create_one(&self, name: &str, bytes: &Bytes) -> BoxFuture<'static, Result<(), EventStoreError>> {
        let (store, whole) = (self.store.clone(), self.whole);
        let (path, bytes) = (self.path(name), bytes.clone());
        if let Some(large_uploads) = self.large_uploads.clone().filter(|_| bytes.len() >= LARGE_BYTES_MIN) {
            let object = LargeObject { store, path, bytes, retries: whole };
            return Box::pin(async move { Ok(large_uploads.create(object).await?) });
        }
        let whole = whole.for_bytes(bytes.len() as u64);
        Box::pin(
            async move { Ok(whole.with(|| put_once(store.clone(), path.clone(), bytes.clone())).await?) },
        )
    }

    /// Reads a whole object.
    pub(crate) async fn get(&self, name: &str) -> Result<Bytes, EventStoreError> {
        let size = self.size(name).await?;
        let whole = self.ranges(name, std::slice::from_ref(&(0..size))).await?;
        Ok(whole.into_iter().next().unwrap_or_default())
    }

    /// The size of an object.
    pub(crate) async fn size(&self, name: &str) -> Result<u64, EventStoreError> {
        let sums = self.sums(name).await?;
        match sums.get(name) {
            Some(sums) => Ok(sums.size()),
            None => Err(self.damaged(name, "it has no checksums").await),
        }
    }

    /// Person ranges of segments that a scan should read at once: enough to hide the latency of a bucket. A directory has none to
    /// hide, and what is read before a core can decode it only takes memory.
    pub(crate) fn ranges_at_once(&self) -> usize {
        if self.is_directory { cores() * 2 } else { BUCKET_RANGES_AT_ONCE.max(cores() * 2) }
    }

    /// Reads ranges of an object.
    pub(crate) fn ranges<'a>(
        &'a self,
        name: &'a str,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>, EventStoreError>> {
        Box::pin(self.compared(name, ranges))
    }

    async fn compared(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, EventStoreError> {
        let all = self.sums(name).await?;
        let Some(sums) = all.get(name) else {
            return Err(self.damaged(name, "it has no checksums").await);
        };
        let Some(units) = together(sums, ranges) else {
            let size = sums.size();
            let what = format!("it had {size} bytes when it was written, and more are requested");
            return Err(self.damaged(name, &what).await);
        };
        let mut parts = self.fetch(name, sums, &units).await?;
        if !self.hold(name, &all, &units, &parts).await? {
            // Retry: the stored data may be intact, and only the transfer was damaged.
            parts = self.fetch(name, sums, &units).await?;
            if !self.hold(name, &all, &units, &parts).await? {
                return Err(self.damaged(name, "its checksum does not match").await);
            }
        }
        let cut = |range: &Range<u64>| {
            let unit = units.partition_point(|unit| unit.start <= range.start).checked_sub(1)?;
            let start = usize::try_from(range.start - units[unit].start).ok()?;
            let length = usize::try_from(range.end - range.start).ok()?;
            Some(parts[unit].slice(start..start + length))
        };
        Ok(ranges.iter().map(|range| cut(range).unwrap_or_default()).collect())
    }

    /// Reads whole units of an object, each of the requested length.
    async fn fetch(
        &self,
        name: &str,
        sums: &ObjectChecksums,
        units: &[Range<u64>],
    ) -> Result<Vec<Bytes>, EventStoreError> {
        request_metrics::record(|metrics| metrics.add_gets(gets_of(units)));
        let path = self.path(name);
        let bytes = units.iter().map(|unit| unit.end - unit.start).sum::<u64>();
        let patience = if bytes > COMPARED_ASIDE { self.whole } else { self.read }.for_bytes(bytes);
        let (written, units) = (sums.size(), Arc::new(units.to_vec()));
        let read = patience.with(|| get_units(self.store.clone(), path.clone(), units.clone(), written));
        match read.await? {
            Ok(parts) => Ok(parts),
            Err(what) => Err(self.damaged(name, &what).await),
        }
    }

    async fn hold(
        &self,
        name: &str,
        all: &Arc<Checksums>,
        units: &[Range<u64>],
        parts: &[Bytes],
    ) -> Result<bool, EventStoreError> {
        let compare = |sums: &Checksums, name: &str, units: &[Range<u64>], parts: &[Bytes]| {
            let of = sums.get(name);
            of.is_some_and(|of| units.iter().zip(parts).all(|(unit, part)| of.holds(unit.start, part)))
        };
        if parts.iter().map(|part| part.len() as u64).sum::<u64>() <= COMPARED_ASIDE {
            return Ok(compare(all, name, units, parts));
        }
        let (all, name, units, parts) = (all.clone(), name.to_owned(), units.to_vec(), parts.to_vec());
        Ok(tokio::task::spawn_blocking(move || compare(&all, &name, &units, &parts)).await?)
    }

    /// Checks that an object has the size that it was written with: ranges of an object that has grown would
    /// verify.
    pub(crate) async fn require_size(&self, name: &str, written: u64) -> Result<(), EventStoreError> {
        let path = self.path(name);
        let size = self.whole.with(|| size_if_there(self.store.clone(), path.clone())).await?;
        let what = match size {
            Some(size) if size == written => return Ok(()),
            Some(size) => format!("it has {size} bytes and had {written} when it was written"),
            None => MISSING.to_owned(),
        };
        Err(self.damaged(name, &what).await)
    }

    /// The checksums of an object and those beside it, from the cache if possible.
    pub(crate) fn sums<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Checksums>, EventStoreError>> {
        Box::pin(self.read_sums(name))
    }

    async fn read_sums(&self, name: &str) -> Result<Arc<Checksums>, EventStoreError> {
        let beside = checksums::object_of(name);
        if let Some(known) = self.sums.get(&beside) {
            return Ok(known);
        }
        request_metrics::record(|metrics| metrics.add_gets(1));
        let path = self.path(&beside);
        let start = checksums::split(name).0;
        let mut again = true;
        let decoded = loop {
            let read = self.read.with(|| get_if_there(self.store.clone(), path.clone()));
            let Some(bytes) = read.await? else { return Err(self.damaged(&beside, MISSING).await) };
            match Checksums::decode(start, &bytes) {
                Err(what) if what == checksums::NEWER => {
                    return Err(EventStoreError::Corrupt(format!("{beside}: {what}")));
                }
                Err(_) if std::mem::take(&mut again) => {}
                decoded => break decoded,
            }
        };
        match decoded {
            Ok(sums) => {
                let sums = Arc::new(sums);
                self.sums.insert(beside, sums.clone());
                Ok(sums)
            }
            Err(what) => Err(self.damaged(&beside, what).await),
        }
    }

    /// Removes the checksums of an object from the cache, because it may have been restored.
    pub(crate) fn forget(&self, name: &str) {
        self.sums.remove(&checksums::object_of(name));
    }

    /// The error for a damaged object. The damage is marked.
    pub(crate) fn damaged<'a>(&'a self, name: &'a str, what: &'a str) -> BoxFuture<'a, EventStoreError> {
        let error = EventStoreError::Damaged { object: name.to_owned(), what: what.to_owned() };
        match &self.quarantine {
            Some(quarantine) => Box::pin(quarantine.note(name, what, error)),
            None => Box::pin(std::future::ready(error)),
        }
    }

    /// Deletes an object but not its checksum file, which others share. A missing object is no error.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), EventStoreError> {
        let path = self.path(name);
        Ok(self.whole.with(|| delete_if_there(self.store.clone(), path.clone())).await?)
    }

    /// Deletes objects with their checksum files. Missing ones are no error.
    pub(crate) fn delete_all(&self, names: Vec<String>) -> BoxFuture<'_, Result<(), EventStoreError>> {
        let mut beside = names.iter().map(|name| checksums::object_of(name)).collect::<Vec<_>>();
        beside.dedup();
        Box::pin(async move {
            // The checksum file last: a reader of an object still needs it.
            for name in names.into_iter().chain(beside) {
                self.delete(&name).await?;
            }
            Ok(())
        })
    }

    /// Lists the objects below a folder, unordered.
    pub(crate) fn list<'a>(
        &'a self,
        folder: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ObjectInfo>, EventStoreError>> {
        let path = self.path(folder);
        Box::pin(async move {
            let found = self.whole.with(|| self.store.list(Some(&path)).try_collect::<Vec<_>>()).await?;
            let listed = found.into_iter().filter_map(|meta| {
                let name = meta.location.as_ref().strip_prefix(self.prefix.as_str())?.to_owned();
                Some(ObjectInfo { name, bytes: meta.size, at: meta.last_modified.timestamp_micros() })
            });
            Ok(listed.collect())
        })
    }
}

/// The requests that read ascending ranges of an object: ranges with a small gap are one.
fn gets_of(ranges: &[Range<u64>]) -> u64 {
    let is_apart =
        |pair: &[Range<u64>]| pair[1].start.saturating_sub(pair[0].end) > OBJECT_STORE_COALESCE_DEFAULT;
    let apart = ranges.windows(2).filter(|pair| is_apart(pair)).count();
    if ranges.is_empty() { 0 } else { apart as u64 + 1 }
}

type Shared = Arc<dyn ObjectStore>;

/// Creates an object. An existing one with identical content is a success: an earlier attempt may have
/// succeeded without a response.
async fn put_once(store: Shared, path: Path, bytes: Bytes) -> Result<(), Error> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let put = store.put_opts(&path, bytes.clone().into(), options).await;
    let Err(there @ Error::AlreadyExists { .. }) = put else { return put.map(|_| ()) };
    match is_same_object(&store, &path, &bytes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(there),
        // Another writer is writing it, and may still fail.
        Err(Error::NotFound { source, .. }) => Err(Error::Generic { store: "object store", source }),
        Err(error) => Err(error),
    }
}

/// Whether the object has this content.
async fn is_same_object(store: &Shared, path: &Path, bytes: &Bytes) -> Result<bool, Error> {
    let found = store.get(path).await?;
    Ok(found.meta.size == bytes.len() as u64 && found.bytes().await? == *bytes)
}

/// Reads ranges of an object of `written` bytes; the error states whether it is missing or has another size.
async fn get_units(
    store: Shared,
    path: Path,
    units: Arc<Vec<Range<u64>>>,
    written: u64,
) -> Result<Result<Vec<Bytes>, String>, Error> {
    let read = store.get_ranges(&path, &units).await;
    match &read {
        Ok(parts) if fit(&units, parts) => return read.map(Ok),
        Err(Error::NotFound { .. }) => return Ok(Err(MISSING.to_owned())),
        _ => {}
    }
    // Truncated or grown: a retry does not help.
    let size = store.head(&path).await?.size;
    if size != written {
        return Ok(Err(format!("it has {size} bytes and had {written} when it was written")));
    }
    read.and(Err(Error::Generic { store: "object store", source: "a response was cut off".into() }))
}

async fn get_if_there(store: Shared, path: Path) -> Result<Option<Bytes>, Error> {
    match store.get(&path).await {
        Ok(found) => found.bytes().await.map(Some),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn size_if_there(store: Shared, path: Path) -> Result<Option<u64>, Error> {
    match store.head(&path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn delete_if_there(store: Shared, path: Path) -> Result<(), Error> {
    match store.delete(&path).await {
        Err(Error::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// The units around `ranges`, ascending, overlapping ones merged; none when a range exceeds the object.
fn together(sums: &ObjectChecksums, ranges: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
    let mut units = ranges.iter().map(|range| sums.around(range)).collect::<Option<Vec<_>>>()?;
    units.retain(|unit| !unit.is_empty());
    units.sort_unstable_by_key(|unit| unit.start);
    let mut together: Vec<Range<u64>> = Vec::with_capacity(units.len());
    for unit in units {
        match together.last_mut() {
            Some(last) if unit.start <= last.end => last.end = last.end.max(unit.end),
            _ => together.push(unit),
        }
    }
    Some(together)
}

/// Whether each part has the length of its range.
fn fit(ranges: &[Range<u64>], parts: &[Bytes]) -> bool {
    ranges.len() == parts.len()
        && ranges.iter().zip(parts).all(|(range, part)| range.end - range.start == part.len() as u64)
}

#[cfg(test)]
mod tests;
