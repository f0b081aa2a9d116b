//! Metrics of one request: route, project, DynamoDB calls and capacity units, bytes of events and reads of objects. Written to the request log.
//!
//! A request runs inside [`with_metrics`], which stores its metrics in a task-local; code in the same task, or in
//! one spawned with [`inherit_metrics`], updates them by [`record`] without passing them around. Must stay true: metrics contain nothing that was sent, no key, token or body;
//! outside of a request [`record`] does nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::traces::CallSpan;

tokio::task_local! {
    static CURRENT: Arc<RequestMetrics>;
}

/// Hexadecimal digits of an API key's hash that identify it in the log.
const KEY_ID_DIGITS: usize = 12;

/// Metrics of one request.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    route: OnceLock<String>,
    key: OnceLock<String>,
    /// 0 means none: project ids start at 1.
    project: AtomicU64,
    round_trips: AtomicU64,
    /// In tenths, because a read may take half a capacity unit.
    read_tenths: AtomicU64,
    write_tenths: AtomicU64,
    bytes_read: AtomicU64,
    gets: AtomicU64,
    /// The calls to DynamoDB; `None` if the request is not traced.
    calls: Option<Mutex<Vec<CallSpan>>>,
}

/// Wraps `work`, to be spawned as a new task, so that it updates the metrics of the caller's request.
pub fn inherit_metrics<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let metrics = CURRENT.try_with(Arc::clone).ok();
    async move {
        match metrics {
            Some(metrics) => CURRENT.scope(metrics, work).await,
            None => work.await,
        }
    }
}

/// Runs `work` with `metrics` as the current request's metrics.
pub async fn with_metrics<F: Future>(metrics: Arc<RequestMetrics>, work: F) -> F::Output {
    CURRENT.scope(metrics, work).await
}

/// Updates the metrics of the current task's request; does nothing outside of a request.
pub fn record(change: impl FnOnce(&RequestMetrics)) {
    let _ = CURRENT.try_with(|metrics| change(metrics));
}

impl RequestMetrics {
    /// Empty metrics. Calls to DynamoDB are recorded one by one if the request is traced.
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

    /// The calls to DynamoDB; empty if the request is not traced.
    pub fn calls(&self) -> Vec<CallSpan> {
        let calls = self.calls.as_ref().map(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner));
        calls.map(|calls| calls.clone()).unwrap_or_default()
    }

    /// Sets the route pattern, such as `/api/projects/{project_id}/insights`.
    pub fn set_route(&self, route: &str) {
        // The first call has the full pattern.
        let _ = self.route.set(route.to_owned());
    }

    /// Sets the API key, by its lookup form `sha256$` and a hash.
    pub fn set_key(&self, hash: &str) {
        let digits = hash.rsplit('$').next().unwrap_or_default();
        let _ = self.key.set(digits.chars().take(KEY_ID_DIGITS).collect());
    }

    /// Sets the project.
    pub fn set_project(&self, project: u64) {
        self.project.store(project, Ordering::Relaxed);
    }

    /// Adds one call to DynamoDB with its read and write capacity units.
    pub(crate) fn add_round_trip(&self, read: f64, write: f64) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.read_tenths.fetch_add(tenths(read), Ordering::Relaxed);
        self.write_tenths.fetch_add(tenths(write), Ordering::Relaxed);
    }

    /// Adds bytes of stored events that were read.
    pub fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds reads of the object store.
    pub fn add_gets(&self, gets: u64) {
        self.gets.fetch_add(gets, Ordering::Relaxed);
    }

    /// The route; empty if none matched.
    pub fn route(&self) -> &str {
        self.route.get().map_or("", String::as_str)
    }

    /// The API key's id in the log; empty without a key.
    pub fn key(&self) -> &str {
        self.key.get().map_or("", String::as_str)
    }

    /// The project, if there is one.
    pub fn project(&self) -> Option<u64> {
        Some(self.project.load(Ordering::Relaxed)).filter(|project| *project > 0)
    }

    /// Number of calls to DynamoDB.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Consumed read capacity units.
    pub fn read_units(&self) -> f64 {
        self.read_tenths.load(Ordering::Relaxed) as f64 / 10.0
    }

    /// Consumed write capacity units.
    pub fn write_units(&self) -> f64 {
        self.write_tenths.load(Ordering::Relaxed) as f64 / 10.0
    }

    /// Bytes of stored events that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Number of reads of the object store.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }
}

/// DynamoDB reports halves and whole units.
fn tenths(units: f64) -> u64 {
    (units.max(0.0) * 10.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn metrics_are_recorded_for_the_current_request() {
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
            let recorded =
                (metrics.project(), metrics.round_trips(), metrics.read_units(), metrics.write_units());
            assert_eq!(recorded, (Some(project), 2, 1.5, 2.0));
        }
        assert_eq!(RequestMetrics::default().project(), None);
    }

    #[test]
    fn a_key_is_identified_by_a_prefix_of_its_hash() {
        let metrics = RequestMetrics::default();
        metrics.set_key(&crate::auth::hash_key("abc"));
        // FIPS 180-2, B.1
        assert_eq!(metrics.key(), "ba7816bf8f01");
    }
}
