//! How often a first query waits for the object store: each round of reads that depend on those before costs its latency.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use pennon::embedded::Embedded;
use pennon_analytics::scan::ScanRequest;
use pennon_eventstore::{EventStore, Settings};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};

use crate::support::{NOW, PROJECT, event, request};

/// A test that waits this long fails. Shorter than the timeout of a read, after which it would be repeated.
const PATIENCE: Duration = Duration::from_secs(11);

/// An object store that holds back reads until a test releases them.
#[derive(Debug)]
struct HeldReads {
    inner: InMemory,
    /// The reads that wait; `None` while none is held back.
    waiting: Mutex<Option<Vec<oneshot::Sender<()>>>>,
    /// A permit for each read that has arrived.
    arrived: Semaphore,
}

impl HeldReads {
    fn hold(&self) {
        *self.waiting.lock().unwrap() = Some(Vec::new());
    }

    async fn pass(&self) {
        let released = {
            let mut waiting = self.waiting.lock().unwrap();
            let Some(waiting) = waiting.as_mut() else { return };
            let (release, released) = oneshot::channel();
            waiting.push(release);
            released
        };
        self.arrived.add_permits(1);
        released.await.unwrap();
    }

    /// Waits until so many reads have arrived, and lets them pass at once.
    async fn release(&self, reads: usize) {
        let arrived = self.arrived.acquire_many(reads as u32);
        let arrived = tokio::time::timeout(PATIENCE, arrived).await;
        let waiting = self.waiting.lock().unwrap().as_ref().unwrap().len();
        arrived.unwrap_or_else(|_| panic!("{waiting} of {reads} reads at once")).unwrap().forget();
        let released = self.waiting.lock().unwrap().as_mut().unwrap().drain(..reads).collect::<Vec<_>>();
        released.into_iter().for_each(|read| read.send(()).unwrap());
    }
}

impl fmt::Display for HeldReads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("held reads")
    }
}

#[async_trait]
impl ObjectStore for HeldReads {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.pass().await;
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.pass().await;
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Person ranges of the segment, a power of two, and how many of them are read at once.
const RANGES: usize = 32;
const AT_ONCE: usize = 16;

/// A segment of many ranges, in a process that has read nothing of it.
async fn cold_store() -> (EventStore, Arc<HeldReads>) {
    let inner = InMemory::new();
    let objects = Arc::new(HeldReads { inner, waiting: Mutex::default(), arrived: Semaphore::new(0) });
    let store = Embedded::in_memory().await.unwrap().store(None);
    let settings = Settings { range_rows: 60, ..Settings::default() };
    let open =
        || EventStore::with_object_store(store.clone(), objects.clone(), Duration::from_millis(1), settings);
    let sent = (0..60 * RANGES as u64).map(|n| {
        let plan = ["free", "paid"][n as usize % 2];
        let properties = json!({ "plan": plan });
        (n, event(n.into(), "a", &format!("person-{n}"), n as i64, properties))
    });
    assert_eq!(open().ingest(PROJECT, sent.collect(), NOW).await.unwrap().stored, 60 * RANGES as u64);
    objects.hold();
    (open(), objects)
}

/// The rows of a scan whose reads are released in rounds, each of so many reads that depend on those before only.
async fn scan_in_rounds(request: ScanRequest, rounds: &[usize]) -> u64 {
    let (events, objects) = cold_store().await;
    let scan = tokio::spawn(async move { events.scan(PROJECT, &[], &request).await.unwrap().stats.rows });
    for reads in rounds {
        objects.release(*reads).await;
    }
    tokio::time::timeout(PATIENCE, scan).await.expect("more reads than in these rounds").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_query_waits_for_checksums_footer_and_then_all_columns_at_once() {
    let times = ScanRequest { columns: [].into(), arrivals: false, ..request(&["a"], &[]) };
    // Persons and numbers of each range.
    assert_eq!(scan_in_rounds(times, &[1, 1, 2 * AT_ONCE, 2 * (RANGES - AT_ONCE)]).await, 60 * RANGES as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_are_read_beside_persons_and_times() {
    let columns = [pennon_analytics::scan::ColumnKey::Property("plan".to_owned())].into();
    let plans = ScanRequest { columns, arrivals: false, ..request(&["a"], &[]) };
    assert_eq!(scan_in_rounds(plans, &[1, 1, 3 * AT_ONCE, 3 * (RANGES - AT_ONCE)]).await, 60 * RANGES as u64);
}
