//! What one request took, counted while it is answered and told in its line of the log.
//!
//! Whoever answers a request runs under [`with_metrics`]; whatever happens in the same task notes itself by [`record`], wherever
//! it is, without being handed anything. Must stay true: nothing that was sent is in it, no key, no token and no body;
//! outside of a request a note is nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::traces::CallSpan;

tokio::task_local! {
    static CURRENT: Arc<RequestMetrics>;
}

/// Hexadecimal digits of a key's hash that the log calls it by.
const KEY_ID_DIGITS: usize = 12;

/// Counts of one request.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    route: OnceLock<String>,
    key: OnceLock<String>,
    /// 0 is none: projects are numbered from 1.
    project: AtomicU64,
    round_trips: AtomicU64,
    /// In tenths, because a unit of reading may be half.
    read_tenths: AtomicU64,
    write_tenths: AtomicU64,
    bytes_read: AtomicU64,
    /// Where the request is traced: its calls to the tables.
    calls: Option<Mutex<Vec<CallSpan>>>,
}

/// Runs `work`, which notes what it takes in `metrics`.
pub async fn with_metrics<F: Future>(metrics: Arc<RequestMetrics>, work: F) -> F::Output {
    CURRENT.scope(metrics, work).await
}

/// Lets `change` note something of the request that this task answers, if it answers one.
pub fn record(change: impl FnOnce(&RequestMetrics)) {
    // Outside of a request there is nobody to be told.
    let _ = CURRENT.try_with(|metrics| change(metrics));
}

impl RequestMetrics {
    /// That of a request whose calls are kept too, where it is traced.
    pub fn new(is_traced: bool) -> RequestMetrics {
        RequestMetrics { calls: is_traced.then(Mutex::default), ..RequestMetrics::default() }
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.calls.is_some()
    }

    pub(crate) fn add_call(&self, call: CallSpan) {
        if let Some(calls) = &self.calls {
            calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        }
    }

    /// The calls to the tables, where the request is traced.
    pub fn calls(&self) -> Vec<CallSpan> {
        let calls = self.calls.as_ref().map(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner));
        calls.map(|calls| calls.clone()).unwrap_or_default()
    }

    /// The route as the router has it, such as `/api/projects/{project_id}/insights`.
    pub fn set_route(&self, route: &str) {
        // The first one is the whole one.
        let _ = self.route.set(route.to_owned());
    }

    /// The key, by what it is looked up by: `sha256$` and a hash.
    pub fn set_key(&self, hash: &str) {
        let digits = hash.rsplit('$').next().unwrap_or_default();
        let _ = self.key.set(digits.chars().take(KEY_ID_DIGITS).collect());
    }

    /// The project that is asked about.
    pub fn set_project(&self, project: u64) {
        self.project.store(project, Ordering::Relaxed);
    }

    /// One call to a table, which took so many units of reading or writing.
    pub(crate) fn add_round_trip(&self, read: f64, write: f64) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.read_tenths.fetch_add(tenths(read), Ordering::Relaxed);
        self.write_tenths.fetch_add(tenths(write), Ordering::Relaxed);
    }

    /// So many bytes of stored events were read.
    pub fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The route; empty where no route was found.
    pub fn route(&self) -> &str {
        self.route.get().map_or("", String::as_str)
    }

    /// The key's name in the log; empty without a key.
    pub fn key(&self) -> &str {
        self.key.get().map_or("", String::as_str)
    }

    /// The project, where one was asked about.
    pub fn project(&self) -> Option<u64> {
        Some(self.project.load(Ordering::Relaxed)).filter(|project| *project > 0)
    }

    /// Calls to the tables.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Units that were read.
    pub fn read_units(&self) -> f64 {
        self.read_tenths.load(Ordering::Relaxed) as f64 / 10.0
    }

    /// Units that were written.
    pub fn write_units(&self) -> f64 {
        self.write_tenths.load(Ordering::Relaxed) as f64 / 10.0
    }

    /// Bytes of stored events that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

/// Units are told as halves and wholes.
fn tenths(units: f64) -> u64 {
    (units.max(0.0) * 10.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_noted_is_of_the_request_that_runs() {
        let (one, two) = (Arc::new(RequestMetrics::default()), Arc::new(RequestMetrics::default()));
        record(|metrics| metrics.set_project(9));
        let work = |project: u64| async move {
            tokio::task::yield_now().await;
            record(|metrics| metrics.set_project(project));
            record(|metrics| metrics.add_round_trip(0.5, 0.0));
            record(|metrics| metrics.add_round_trip(1.0, 2.0));
        };
        tokio::join!(with_metrics(one.clone(), work(1)), with_metrics(two.clone(), work(2)));
        for (metrics, project) in [(one, 1), (two, 2)] {
            let told =
                (metrics.project(), metrics.round_trips(), metrics.read_units(), metrics.write_units());
            assert_eq!(told, (Some(project), 2, 1.5, 2.0));
        }
        assert_eq!(RequestMetrics::default().project(), None);
    }

    #[test]
    fn a_key_is_called_by_the_beginning_of_its_hash() {
        let metrics = RequestMetrics::default();
        metrics.set_key(&crate::auth::hash_key("abc"));
        // FIPS 180-2, B.1
        assert_eq!(metrics.key(), "ba7816bf8f01");
    }
}
