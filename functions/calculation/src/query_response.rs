//! The response to a query: a cached result, one that is calculated now, or the status of a background calculation.
//!
//! Must stay true: [`decide`] alone selects the response and the background start; a calculation that takes longer than the
//! request is started in the background before the request's deadline; one failing query of several fails alone.

use chrono::{DateTime, Utc};
use futures::StreamExt;
use pennon_analytics::refresh::Freshness;
use pennon_analytics::refresh::{BackgroundStart, RefreshAction, RefreshDecision, RefreshMode, decide};
use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::Write;

use crate::calculator::{
    CachedResult, Calculator, QueryDefinitions, QueryRequest, QueryResult, direct_references,
    result_freshness, settings_digest,
};
use crate::errors::is_timeout;
use crate::jobs::BackgroundQuery;
use crate::query_state::{QueryStatus, RunEnd, StartRequest, VersionedQueryState, Waiter};

/// Queries of one request that are calculated in parallel.
const PARALLEL_QUERIES: usize = 4;

/// The response to one query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryResponse {
    /// The result, if there is one.
    pub calculated: Option<QueryResult>,
    /// The status of a background calculation, if there is one to report.
    pub status: Option<QueryStatus>,
}

/// What to do for a query, given its cached result and its background calculation.
struct CacheDecision {
    decision: RefreshDecision,
    /// The cached result, if it may be returned.
    cached: Option<QueryResult>,
    /// The status of a running or failed background calculation.
    status: Option<QueryStatus>,
    used: QueryDefinitions,
    settings_digest: String,
}

impl Calculator {
    /// The response to one query. A calculated result is cached.
    pub async fn respond(
        &self,
        request: &QueryRequest<'_>,
        refresh: RefreshMode,
    ) -> ApiResult<QueryResponse> {
        let mut responses = self.respond_all(std::slice::from_ref(request), refresh).await;
        responses.pop().unwrap_or_else(|| Err(ApiError::internal(&"a request without a response")))
    }

    /// The responses to the queries of one request, in their order.
    pub async fn respond_all(
        &self,
        requests: &[QueryRequest<'_>],
        refresh: RefreshMode,
    ) -> Vec<ApiResult<QueryResponse>> {
        let work =
            requests.iter().map(|request| self.decide_and_execute(request, refresh)).collect::<Vec<_>>();
        let outcomes: Vec<ApiResult<QueryOutcome>> =
            futures::stream::iter(work).buffered(PARALLEL_QUERIES).collect().await;
        self.start_in_background(requests, outcomes).await
    }

    /// The outcome of a query, before background calculations are started.
    async fn decide_and_execute(
        &self,
        request: &QueryRequest<'_>,
        refresh: RefreshMode,
    ) -> ApiResult<QueryOutcome> {
        let decision = self.decide(request, refresh).await?;
        self.execute(request, decision, refresh).await
    }

    async fn decide(&self, request: &QueryRequest<'_>, refresh: RefreshMode) -> ApiResult<CacheDecision> {
        let QueryRequest { project, keyed, stored, tracked, known, now, .. } = *request;
        let query = &keyed.query;
        let used = match known.of(project.id, &direct_references(query, Some(project))) {
            Ok(used) => used,
            Err(_) if !refresh.calculates() => QueryDefinitions::default(),
            Err(error) => return Err(error),
        };
        let settings_digest = settings_digest(project, query, &used.digest, known.erasures());
        let loaded = match stored.filter(|stored| stored.is_valid_for(&settings_digest, now)) {
            Some(stored) => self.load_result(project.id, &keyed.key, stored).await,
            None => None,
        };
        let cached = loaded.and_then(|stored| stored.to_calculated(&settings_digest, query, now));
        let ignores_cached = refresh.is_forced()
            || request.origin.retries_on_503 && stored.is_some_and(CachedResult::is_empty);
        let usable = cached.as_ref().filter(|_| !ignores_cached);
        let freshness = match usable {
            Some(_) if !refresh.calculates() => Some(Freshness::Fresh),
            Some(cached) => Some(result_freshness(project, query, cached.last_refresh, now)?),
            None => None,
        };
        let mut decision = decide(refresh, freshness);
        let mut shows_cached = usable.is_some();
        if decision.then == RefreshAction::Calculate
            && let Some(pending) = request.pending_result_decision(cached.as_ref(), refresh.is_forced())
        {
            (decision, shows_cached) = (pending, pending.shows_stored);
        }
        let cached = cached.filter(|_| shows_cached);
        let last_refresh = cached.as_ref().map(|cached| cached.last_refresh);
        let reported = tracked.filter(|it| it.state.run_beside_result(last_refresh, now).is_some());
        let status = request.status_of(reported);
        Ok(CacheDecision { decision, cached, status, used, settings_digest })
    }

    /// Carries out a decision, except for the start of background calculations.
    async fn execute(
        &self,
        request: &QueryRequest<'_>,
        decision: CacheDecision,
        refresh: RefreshMode,
    ) -> ApiResult<QueryOutcome> {
        let CacheDecision { decision, cached, status, used, settings_digest } = decision;
        let shows_cached = decision.shows_stored;
        match decision.then {
            RefreshAction::Nothing => {
                let calculated = cached.filter(|_| shows_cached);
                if request.origin.retries_on_503 && calculated.is_some() {
                    self.mark_result_fetched(request).await;
                }
                Ok(QueryOutcome::Response(QueryResponse { calculated, status }))
            }
            RefreshAction::Background(start) => {
                Ok(QueryOutcome::ToStart(cached.filter(|_| shows_cached), start))
            }
            RefreshAction::Calculate => {
                let forced = refresh.is_forced();
                let work = Box::pin(self.calculate_single_flight(request, used, settings_digest, forced));
                match work.await {
                    Ok(calculated) => Ok(QueryOutcome::Response(QueryResponse {
                        calculated: Some(calculated),
                        status: None,
                    })),
                    Err(error) if is_timeout(&error) && self.can_run_in_background(request) => {
                        tracing::info!(
                            project = request.project.id,
                            "a calculation continues in the background"
                        );
                        let freshness = cached.as_ref().map(|_| Freshness::Stale);
                        let decision = decide(refresh.in_background(), freshness);
                        let RefreshAction::Background(start) = decision.then else { return Err(error) };
                        // Repeated requests of a client without a status must not each start a new calculation that none
                        // of them can wait for. Only a client that gets a status can require that everything captured
                        // before its request is included.
                        let failed = request.tracked.is_some_and(|it| it.state.has_failed(request.now));
                        let anew = refresh.is_forced() && (failed || !request.origin.retries_on_503);
                        let start = BackgroundStart { anew, ..start };
                        Ok(QueryOutcome::ToStart(cached.filter(|_| decision.shows_stored), start))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn can_run_in_background(&self, request: &QueryRequest<'_>) -> bool {
        self.stores_results && request.keyed.source.is_some()
    }

    /// Starts all background calculations of a request together and turns the outcomes into responses.
    async fn start_in_background(
        &self,
        requests: &[QueryRequest<'_>],
        outcomes: Vec<ApiResult<QueryOutcome>>,
    ) -> Vec<ApiResult<QueryResponse>> {
        let queries: Vec<BackgroundQuery<'_>> = requests
            .iter()
            .zip(&outcomes)
            .filter_map(|(request, outcome)| match outcome {
                Ok(QueryOutcome::ToStart(_, start)) => Some(request.background_query(*start)),
                _ => None,
            })
            .collect();
        let started = match (requests.first(), queries.is_empty()) {
            (Some(first), false) => self.start_all(first.project.id, &queries).await,
            _ => Ok(Vec::new()),
        };
        let mut statuses = started.map(Vec::into_iter);
        outcomes
            .into_iter()
            .map(|outcome| match outcome? {
                QueryOutcome::Response(response) => Ok(response),
                QueryOutcome::ToStart(calculated, _) => match &mut statuses {
                    Ok(statuses) => Ok(QueryResponse { calculated, status: statuses.next() }),
                    Err(error) => Err(error.clone()),
                },
            })
            .collect()
    }

    /// Records that the client has fetched the result of a background calculation, so that the next forced request starts a
    /// new one. A failed write is ignored.
    async fn mark_result_fetched(&self, request: &QueryRequest<'_>) {
        let Some(tracked) = request.tracked.filter(|it| it.state.pending_results().next().is_some()) else {
            return;
        };
        let row = tracked.with_result_fetched(request.project.id, &request.keyed.key);
        let written = match row {
            Ok((row, guard)) => self.records.transact(vec![Write::Put(row, guard)]).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "could not record that a result was fetched");
        }
    }
}

/// The outcome of a query before background calculations are started.
enum QueryOutcome {
    Response(QueryResponse),
    /// A background calculation has to be started; the cached result to return with its status.
    ToStart(Option<QueryResult>, BackgroundStart),
}

impl QueryRequest<'_> {
    fn waiter(&self) -> Waiter {
        Waiter {
            id: self.origin.query_id.unwrap_or(&self.keyed.key).to_owned(),
            insight_id: self.origin.insight_id,
            dashboard_id: self.origin.dashboard_id,
        }
    }

    fn background_query(&self, start: BackgroundStart) -> BackgroundQuery<'_> {
        let request = StartRequest {
            start,
            waiter: self.waiter(),
            result_pending: self.origin.retries_on_503,
            now: self.now,
        };
        BackgroundQuery { keyed: self.keyed, tracked: self.tracked, request }
    }

    /// The status of a background calculation, as this client sees it.
    fn status_of(&self, tracked: Option<&VersionedQueryState>) -> Option<QueryStatus> {
        let state = &tracked?.state;
        let own_id = self.origin.query_id.unwrap_or(&self.keyed.key);
        Some(QueryStatus::new(state.reported_id(own_id, &self.keyed.key), state.current_run()))
    }

    /// Replaces the decision to calculate where a client received a 503 for this query and has not fetched the result
    /// yet: the result is returned if it is there, forced or not; nothing is started while the calculation runs; a failure
    /// is returned until a request is forced.
    fn pending_result_decision(&self, cached: Option<&QueryResult>, forced: bool) -> Option<RefreshDecision> {
        let state = &self.tracked.filter(|_| self.origin.retries_on_503)?.state;
        let is_cached = |(started, end): (Option<DateTime<Utc>>, &RunEnd)| {
            end.failure.is_none()
                && cached.zip(started).is_some_and(|(it, started)| it.last_refresh >= started)
        };
        let is_available = state.pending_results().any(is_cached);
        let is_running = state.result_pending && state.is_alive(self.now, Clock::Running.now(None));
        let reports_failure = state.result_pending && state.has_failed(self.now) && !forced;
        (is_available || is_running || reports_failure)
            .then_some(RefreshDecision { shows_stored: is_available, then: RefreshAction::Nothing })
    }
}
