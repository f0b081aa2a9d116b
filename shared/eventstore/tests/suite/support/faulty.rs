//! An object store with faults in front of another one.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    None,
    /// Refused.
    Before,
    /// Carried out, and the response lost.
    After,
    /// Half of the response arrives.
    Cut,
    /// A bit of the response flips on the way.
    Flip,
}

/// An object store that has faults.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    faults: Mutex<Box<dyn Faults>>,
    pub calls: AtomicU64,
    /// Objects that were there already when they were to be created.
    pub there: AtomicU64,
}

pub trait Faults: Send + fmt::Debug {
    fn next(&mut self) -> Fault;
}

/// The same each time.
#[derive(Debug)]
pub struct Always(pub Fault);

impl Faults for Always {
    fn next(&mut self) -> Fault {
        self.0
    }
}

/// The first call alone.
#[derive(Debug)]
pub struct Once(pub Fault);

impl Faults for Once {
    fn next(&mut self) -> Fault {
        std::mem::replace(&mut self.0, Fault::None)
    }
}

/// One in `one_in` calls, by chance from a seed.
#[derive(Debug)]
pub struct Chance {
    pub state: u64,
    pub one_in: u64,
}

impl Faults for Chance {
    fn next(&mut self) -> Fault {
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        if !(self.state >> 32).is_multiple_of(self.one_in) {
            return Fault::None;
        }
        [Fault::Before, Fault::After, Fault::Cut][(self.state % 3) as usize]
    }
}

fn slow_down() -> Error {
    Error::Generic { store: "test", source: "503 SlowDown".into() }
}

impl Faulty {
    pub fn new(inner: Arc<dyn ObjectStore>, faults: impl Faults + 'static) -> Arc<Faulty> {
        let faults: Box<dyn Faults> = Box::new(faults);
        Arc::new(Faulty {
            inner,
            faults: Mutex::new(faults),
            calls: AtomicU64::new(0),
            there: AtomicU64::new(0),
        })
    }

    pub fn set(&self, faults: impl Faults + 'static) {
        *self.faults.lock().unwrap() = Box::new(faults);
    }

    fn fault(&self) -> Fault {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.faults.lock().unwrap().next()
    }

    async fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fault() {
            Fault::Before => Err(slow_down()),
            Fault::After => work.await.and(Err(slow_down())),
            _ => work.await,
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.inner.put_opts(path, payload, options);
        let put = async {
            put.await.inspect_err(|error| {
                if let Error::AlreadyExists { .. } = error {
                    self.there.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        self.call(put).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(self.inner.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let fault = self.fault();
        let mut parts = match fault {
            Fault::Before | Fault::After => return Err(slow_down()),
            _ => self.inner.get_ranges(path, ranges).await?,
        };
        if let Some(first) = parts.first_mut().filter(|part| !part.is_empty()) {
            match fault {
                Fault::Cut => *first = first.slice(..first.len() / 2),
                Fault::Flip => {
                    let mut flipped = first.to_vec();
                    flipped[first.len() / 2] ^= 16;
                    *first = flipped.into();
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.fault() {
            Fault::Before => futures::stream::once(async { Err(slow_down()) }).boxed(),
            Fault::After => self.inner.delete_stream(paths).map(|gone| gone.and(Err(slow_down()))).boxed(),
            _ => self.inner.delete_stream(paths),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fault() {
            Fault::None => self.inner.list(prefix),
            _ => self
                .inner
                .list(prefix)
                .take(1)
                .chain(futures::stream::once(async { Err(slow_down()) }))
                .boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call(self.inner.copy_opts(from, to, options)).await
    }
}
