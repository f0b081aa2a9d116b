//! The response to a query: a cached result, one that is calculated now, or the status of a background calculation.
//!
//! Must stay true: [`decide`] alone decides what is returned and what is started; a calculation that takes longer than the
//! request is started in the background before the request's deadline; one failing query of several fails alone.

use chrono::{DateTime, Utc};
use futures::StreamExt;
use pennon_analytics::query::{BackgroundStart, Decision, Freshness, RefreshAction, RefreshMode, decide};
use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::Write;
use tokio::time::Instant;

use super::definitions::{DefinitionLookup, QueryDefinitions};
use super::{Asked, CachedResult, Calculator, QueryResult, cache, direct_references, result_freshness};
use crate::errors::is_timeout;
use crate::jobs::{BackgroundQuery, QueryStatus, RunEnd, StartRequest, VersionedQueryState, Waiter};

/// Queries of one request that are calculated in parallel.
const PARALLEL_QUERIES: usize = 4;

/// A query with everything that its response depends on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The project whose events are read.
    pub project: &'a Project,
    /// The query and its cache key.
    pub asked: &'a Asked,
    /// Its cached result, if any.
    pub stored: Option<&'a CachedResult>,
    /// The state of its background calculation, if any.
    pub tracked: Option<&'a VersionedQueryState>,
    /// The definitions that it refers to. Fetched before any event is read.
    pub known: &'a DefinitionLookup,
    /// The instant of the request.
    pub now: DateTime<Utc>,
    /// The deadline of the request, see [`Calculator::deadline`].
    pub deadline: Instant,
    /// The request that it belongs to.
    pub by: QueryOrigin<'a>,
}

/// The request that a query belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryOrigin<'a> {
    /// The client's own id of the calculation.
    pub query_id: Option<&'a str>,
    /// The insight that the query is part of.
    pub insight_id: Option<u64>,
    /// The dashboard that the insight is shown on.
    pub dashboard_id: Option<u64>,
    /// The endpoint returns results only: a client whose query takes too long gets 503 and sends the same request again
    /// later. A cached result that is empty is calculated again.
    pub retries_on_503: bool,
}

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
    decision: Decision,
    /// The cached result, if it may be returned.
    cached: Option<QueryResult>,
    /// The status of a running or failed background calculation.
    status: Option<QueryStatus>,
    used: QueryDefinitions,
    settings_digest: String,
}

impl Calculator {
    /// The response to one query. A calculated result is cached.
    pub async fn answer(&self, question: &Question<'_>, refresh: RefreshMode) -> ApiResult<QueryResponse> {
        let mut responses = self.answers(std::slice::from_ref(question), refresh).await;
        responses.pop().unwrap_or_else(|| Err(ApiError::internal(&"a question without an answer")))
    }

    /// The responses to the queries of one request, in their order.
    pub async fn answers(
        &self,
        questions: &[Question<'_>],
        refresh: RefreshMode,
    ) -> Vec<ApiResult<QueryResponse>> {
        let work =
            questions.iter().map(|question| self.decide_and_execute(question, refresh)).collect::<Vec<_>>();
        let outcomes: Vec<ApiResult<QueryOutcome>> =
            futures::stream::iter(work).buffered(PARALLEL_QUERIES).collect().await;
        self.start_in_background(questions, outcomes).await
    }

    /// The outcome of a query, before background calculations are started.
    async fn decide_and_execute(
        &self,
        question: &Question<'_>,
        refresh: RefreshMode,
    ) -> ApiResult<QueryOutcome> {
        let decision = self.decide(question, refresh).await?;
        self.execute(question, decision, refresh).await
    }

    async fn decide(&self, question: &Question<'_>, refresh: RefreshMode) -> ApiResult<CacheDecision> {
        let Question { project, asked, stored, tracked, known, now, .. } = *question;
        let query = &asked.query;
        let used = match known.of(project.id, &direct_references(query, Some(project))) {
            Ok(used) => used,
            Err(_) if !refresh.calculates() => QueryDefinitions::default(),
            Err(error) => return Err(error),
        };
        let settings_digest = cache::settings_digest(project, query, &used.digest, known.erasures());
        let loaded = match stored.filter(|stored| stored.is_valid_for(&settings_digest, now)) {
            Some(stored) => self.load_result(project.id, &asked.key, stored).await,
            None => None,
        };
        let cached = loaded.and_then(|stored| stored.to_calculated(&settings_digest, query, now));
        let ignores_cached =
            refresh.is_forced() || question.by.retries_on_503 && stored.is_some_and(CachedResult::is_empty);
        let usable = cached.as_ref().filter(|_| !ignores_cached);
        let freshness = match usable {
            Some(_) if !refresh.calculates() => Some(Freshness::Fresh),
            Some(cached) => Some(result_freshness(project, query, cached.last_refresh, now)?),
            None => None,
        };
        let mut decision = decide(refresh, freshness);
        let mut shows_cached = usable.is_some();
        if decision.then == RefreshAction::Calculate
            && let Some(pending) = question.pending_result_decision(cached.as_ref(), refresh.is_forced())
        {
            (decision, shows_cached) = (pending, pending.shows_stored);
        }
        let cached = cached.filter(|_| shows_cached);
        let last_refresh = cached.as_ref().map(|cached| cached.last_refresh);
        let reported = tracked.filter(|it| it.state.run_beside_result(last_refresh, now).is_some());
        let status = question.status_of(reported);
        Ok(CacheDecision { decision, cached, status, used, settings_digest })
    }

    /// Carries out a decision, except for the start of background calculations.
    async fn execute(
        &self,
        question: &Question<'_>,
        decision: CacheDecision,
        refresh: RefreshMode,
    ) -> ApiResult<QueryOutcome> {
        let CacheDecision { decision, cached, status, used, settings_digest } = decision;
        let shows_cached = decision.shows_stored;
        match decision.then {
            RefreshAction::Nothing => {
                let calculated = cached.filter(|_| shows_cached);
                if question.by.retries_on_503 && calculated.is_some() {
                    self.mark_result_fetched(question).await;
                }
                Ok(QueryOutcome::Response(QueryResponse { calculated, status }))
            }
            RefreshAction::Background(start) => {
                Ok(QueryOutcome::ToStart(cached.filter(|_| shows_cached), start))
            }
            RefreshAction::Calculate => {
                let forced = refresh.is_forced();
                let work = Box::pin(self.calculate_single_flight(question, used, settings_digest, forced));
                match work.await {
                    Ok(calculated) => Ok(QueryOutcome::Response(QueryResponse {
                        calculated: Some(calculated),
                        status: None,
                    })),
                    Err(error) if is_timeout(&error) && self.can_run_in_background(question) => {
                        tracing::info!(
                            project = question.project.id,
                            "a calculation goes on in the background"
                        );
                        let freshness = cached.as_ref().map(|_| Freshness::Stale);
                        let decision = decide(refresh.in_background(), freshness);
                        let RefreshAction::Background(start) = decision.then else { return Err(error) };
                        // Repeated requests of a client without a status must not each start a new calculation that none
                        // of them can wait for. Only a client that gets a status can require that everything captured
                        // before its request is included.
                        let failed = question.tracked.is_some_and(|it| it.state.has_failed(question.now));
                        let anew = refresh.is_forced() && (failed || !question.by.retries_on_503);
                        let start = BackgroundStart { anew, ..start };
                        Ok(QueryOutcome::ToStart(cached.filter(|_| decision.shows_stored), start))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn can_run_in_background(&self, question: &Question<'_>) -> bool {
        self.stores_results && question.asked.source.is_some()
    }

    /// Starts all background calculations of a request together and turns the outcomes into responses.
    async fn start_in_background(
        &self,
        questions: &[Question<'_>],
        outcomes: Vec<ApiResult<QueryOutcome>>,
    ) -> Vec<ApiResult<QueryResponse>> {
        let queries: Vec<BackgroundQuery<'_>> = questions
            .iter()
            .zip(&outcomes)
            .filter_map(|(question, outcome)| match outcome {
                Ok(QueryOutcome::ToStart(_, start)) => Some(question.background_query(*start)),
                _ => None,
            })
            .collect();
        let started = match (questions.first(), queries.is_empty()) {
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
    async fn mark_result_fetched(&self, question: &Question<'_>) {
        let Some(tracked) = question.tracked.filter(|it| it.state.pending_results().next().is_some()) else {
            return;
        };
        let row = tracked.with_result_fetched(question.project.id, &question.asked.key);
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

impl Question<'_> {
    fn waiter(&self) -> Waiter {
        Waiter {
            id: self.by.query_id.unwrap_or(&self.asked.key).to_owned(),
            insight_id: self.by.insight_id,
            dashboard_id: self.by.dashboard_id,
        }
    }

    fn background_query(&self, start: BackgroundStart) -> BackgroundQuery<'_> {
        let request = StartRequest {
            start,
            waiter: self.waiter(),
            result_pending: self.by.retries_on_503,
            now: self.now,
        };
        BackgroundQuery { asked: self.asked, tracked: self.tracked, request }
    }

    /// The status of a background calculation, as this client sees it.
    fn status_of(&self, tracked: Option<&VersionedQueryState>) -> Option<QueryStatus> {
        let state = &tracked?.state;
        let own_id = self.by.query_id.unwrap_or(&self.asked.key);
        Some(QueryStatus::new(state.reported_id(own_id, &self.asked.key), state.current_run()))
    }

    /// Replaces the decision to calculate where a client was answered 503 for this query and has not fetched the result
    /// yet: the result is returned if it is there, forced or not; nothing is started while the calculation runs; a failure
    /// is returned until a request is forced.
    fn pending_result_decision(&self, cached: Option<&QueryResult>, forced: bool) -> Option<Decision> {
        let state = &self.tracked.filter(|_| self.by.retries_on_503)?.state;
        let is_cached = |(started, end): (Option<DateTime<Utc>>, &RunEnd)| {
            end.failure.is_none()
                && cached.zip(started).is_some_and(|(it, started)| it.last_refresh >= started)
        };
        let is_available = state.pending_results().any(is_cached);
        let is_running = state.result_pending && state.is_alive(self.now, Clock::Running.now(None));
        let reports_failure = state.result_pending && state.has_failed(self.now) && !forced;
        (is_available || is_running || reports_failure)
            .then_some(Decision { shows_stored: is_available, then: RefreshAction::Nothing })
    }
}
