//! Single-flight for the calculations of this process: equal queries at the same time are calculated once.
//!
//! Must stay true: a forced request never joins a calculation that had already started, because it must see everything
//! captured before it; a calculation runs while at least one request waits for it, and is cancelled with the last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Duration, Utc};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;

use super::{Calculator, QueryDefinitions, QueryRequest, QueryResult};

/// Requests whose instants are less than this apart may share a result.
const SHARE_WINDOW: Duration = Duration::minutes(1);

/// A calculation with several waiters.
type SharedCalculation = Shared<BoxFuture<'static, ApiResult<QueryResult>>>;

/// Everything that a result depends on except the events: project, cache key, settings digest.
type FlightKey = (ProjectId, String, String);

/// The calculations that are running. Clones share the map.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlightQueries(Arc<Mutex<HashMap<FlightKey, InFlightQuery>>>);

#[derive(Debug)]
struct InFlightQuery {
    /// The instant of the request that started it.
    now: DateTime<Utc>,
    calculation: WeakShared<BoxFuture<'static, ApiResult<QueryResult>>>,
}

impl InFlightQueries {
    /// The running calculation of this key that a request at `now` may share; else the one that `start` returns.
    fn get_or_start(
        &self,
        key: FlightKey,
        now: DateTime<Utc>,
        may_join: bool,
        start: impl FnOnce() -> SharedCalculation,
    ) -> SharedCalculation {
        let mut queries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shareable =
            |query: &&InFlightQuery| may_join && query.now <= now && now - query.now < SHARE_WINDOW;
        let running = queries.get(&key).filter(is_shareable).and_then(|query| query.calculation.upgrade());
        if let Some(calculation) = running {
            return calculation;
        }
        queries.retain(|_, query| query.calculation.upgrade().is_some());
        let calculation = start();
        if let Some(weak) = calculation.downgrade() {
            queries.insert(key, InFlightQuery { now, calculation: weak });
        }
        calculation
    }
}

impl Calculator {
    /// Calculates a query and caches the result, shared with requests for the same query at the same time. A `forced` one
    /// never joins another calculation, but can be joined.
    pub(crate) async fn calculate_single_flight(
        &self,
        request: &QueryRequest<'_>,
        used: QueryDefinitions,
        settings_digest: String,
        forced: bool,
    ) -> ApiResult<QueryResult> {
        let QueryRequest { project, keyed, now, deadline, .. } = *request;
        let flight_key = (project.id, keyed.key.clone(), settings_digest.clone());
        let start = || {
            let (this, project, keyed) = (self.clone(), project.clone(), keyed.clone());
            let work = async move {
                let calculated = this.calculate(&project, &keyed, &used, now, deadline).await?;
                if this.stores_results {
                    this.store_result(&project, settings_digest, &keyed.key, &calculated).await;
                }
                Ok(calculated)
            };
            work.boxed().shared()
        };
        self.in_flight.get_or_start(flight_key, now, !forced, start).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::error::ApiError;
    use tokio::sync::oneshot;

    fn key() -> FlightKey {
        (1, "key".to_owned(), "settings".to_owned())
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
    }

    /// A calculation that ends with the error code that is sent; the sender also shows whether it was dropped.
    fn calculation() -> (SharedCalculation, oneshot::Sender<u32>) {
        let (end, ended) = oneshot::channel();
        let work = async move { Err(ApiError::busy(ended.await.unwrap_or(0))) };
        (work.boxed().shared(), end)
    }

    #[tokio::test]
    async fn a_request_joins_unless_forced_or_outside_the_window() {
        let queries = InFlightQueries::default();
        let (one, end) = calculation();
        let first = queries.get_or_start(key(), at(0), true, || one);
        let second = queries.get_or_start(key(), at(59), true, || panic!("calculated twice"));
        for (now, may_join) in [(at(0), false), (at(-1), true), (at(60), true)] {
            let queries = InFlightQueries(Arc::new(Mutex::new(HashMap::new())));
            let (one, _end) = calculation();
            let _first = queries.get_or_start(key(), at(0), true, || one);
            let mut is_started = false;
            let other = queries.get_or_start(key(), now, may_join, || {
                is_started = true;
                calculation().0
            });
            drop(other);
            assert!(is_started, "{now} {may_join}");
        }
        end.send(7).unwrap();
        assert_eq!(first.await, Err(ApiError::busy(7)));
        assert_eq!(second.await, Err(ApiError::busy(7)));
    }

    #[tokio::test]
    async fn a_calculation_is_dropped_with_its_last_waiter() {
        let queries = InFlightQueries::default();
        let (one, end) = calculation();
        let first = queries.get_or_start(key(), at(0), true, || one);
        let second = queries.get_or_start(key(), at(0), true, || panic!("calculated twice"));
        drop(first);
        assert!(!end.is_closed());
        drop(second);
        assert!(end.is_closed());
        let (other, _end) = calculation();
        let _third = queries.get_or_start(key(), at(0), true, || other);
        assert_eq!(queries.0.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn later_requests_join_a_forced_calculation() {
        let queries = InFlightQueries::default();
        let ((old, _old_end), (new, new_end)) = (calculation(), calculation());
        let _old = queries.get_or_start(key(), at(0), true, || old);
        let forced = queries.get_or_start(key(), at(0), false, || new);
        let later = queries.get_or_start(key(), at(1), true, || panic!("calculated again"));
        new_end.send(3).unwrap();
        assert_eq!((forced.await, later.await), (Err(ApiError::busy(3)), Err(ApiError::busy(3))));
    }
}
