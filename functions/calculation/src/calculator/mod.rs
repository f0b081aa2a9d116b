//! Runs queries over stored events, with a deadline and a bounded number of calculations at once, and caches the results.
//!
//! Must stay true: a result marked as calculated was calculated now, from all events of the project; a cached result is
//! only returned for the query and the project settings that it was calculated for; a calculation stops when its last
//! waiting request is gone or its deadline has passed.

pub(crate) mod actors;
mod cache;
mod clickhouse;
mod cohort_size;
mod definitions;
pub(crate) mod events;
pub(crate) mod execution;
mod first_actors;
mod keyed_query;
mod large_results;
mod metrics;
pub mod parts;
pub(crate) mod persons;
mod plan_inputs;
pub(crate) mod property_names;
pub(crate) mod property_values;
mod query_request;
mod single_flight;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use pennon_analytics::refresh::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};
use pennon_analytics::{Definitions, Plan, ProjectContext, Query, QueryOutput};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::Table;
use pennon_eventstore::{EventStore, memory_in_use};
use pennon_filters::dates::WeekStart;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub use actors::{ActorJson, ActorsPage, ListedActor};
pub(crate) use cache::settings_digest;
pub use cache::{CacheScope, CachedResult, cache_key};
pub use clickhouse::ClickhouseError;
pub(crate) use definitions::direct_references;
pub use definitions::{DefinitionLookup, TransitiveDefinitions};
pub use keyed_query::{KeyedQuery, StoredState};
pub use large_results::RESULT_BYTES_MAX;
pub use metrics::CalculationMetrics;
pub use query_request::{QueryOrigin, QueryRequest};

use crate::clickhouse::ClickhouseServer;
use crate::errors::{engine_error, event_store_error, timeout_error};
pub(crate) use definitions::QueryDefinitions;
use execution::CancellationGuard;
use parts::{Division, Parts, PlannedQuery, ResultKind};
use single_flight::InFlightQueries;

/// Time and concurrency limits of calculations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalculationLimits {
    /// Time for one request, including the wait for a permit. A query that takes longer continues in the background.
    /// Must be below the timeout of gateways (29 or 30 seconds).
    pub time: Duration,
    /// Calculations at once; further ones wait for a permit.
    pub at_once: usize,
}

impl Default for CalculationLimits {
    fn default() -> CalculationLimits {
        CalculationLimits { time: Duration::from_secs(25), at_once: execution::cores().max(2) }
    }
}

impl CalculationLimits {
    /// The default limits, with the time for a request replaced where one is given.
    pub fn within(time: Option<Duration>) -> CalculationLimits {
        let default = CalculationLimits::default();
        CalculationLimits { time: time.unwrap_or(default.time), ..default }
    }
}

/// A permit of the calculation semaphore. Released when the last thread that holds a clone stops.
pub type CalculationPermit = Arc<OwnedSemaphorePermit>;

/// The only place where queries are calculated. Cheap to clone; clones share the semaphore and the in-flight queries.
#[derive(Debug, Clone)]
pub struct Calculator {
    pub(crate) records: Table,
    pub(crate) clock: Clock,
    events: EventStore,
    limits: CalculationLimits,
    permits: Arc<Semaphore>,
    /// Collects scan statistics and progress, if set.
    pub(crate) metrics: Option<CalculationMetrics>,
    /// What runs the parts of large queries, if they are calculated in parts.
    parts: Option<Parts>,
    /// Whether results are written to the cache.
    pub(crate) stores_results: bool,
    in_flight: InFlightQueries,
    /// Calculates queries that exceed the memory of this process, if set.
    clickhouse: Option<ClickhouseServer>,
}

/// A result, just calculated or cached.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    /// In the contract's `result` shape.
    pub result: Value,
    /// For trends: whether breakdown values were cut off.
    pub has_more: Option<bool>,
    /// Readable text of the calculation.
    pub hogql: String,
    /// Time zone of its dates.
    pub timezone: String,
    /// When it was calculated.
    pub last_refresh: DateTime<Utc>,
    /// When it becomes stale.
    pub cache_target_age: DateTime<Utc>,
    /// Earliest time at which a client should request a recalculation.
    pub next_allowed_client_refresh: DateTime<Utc>,
    /// Whether it was in the cache before this request.
    pub is_cached: bool,
}

impl QueryResult {
    /// The result that was calculated as of `now`.
    fn new(
        project: &Project,
        query: &Query,
        context: &ProjectContext,
        output: QueryOutput,
        now: DateTime<Utc>,
    ) -> ApiResult<QueryResult> {
        Ok(QueryResult {
            result: output.result,
            has_more: output.has_more,
            hogql: query.describe(),
            timezone: project.timezone.clone(),
            last_refresh: now,
            cache_target_age: cache_target_age(query, now),
            next_allowed_client_refresh: next_allowed_client_refresh(query, context, now, now)
                .map_err(engine_error)?,
            is_cached: false,
        })
    }

    /// A copy with `result` replaced.
    #[must_use]
    pub fn with_result(&self, result: Value) -> QueryResult {
        QueryResult {
            result,
            has_more: self.has_more,
            hogql: self.hogql.clone(),
            timezone: self.timezone.clone(),
            last_refresh: self.last_refresh,
            next_allowed_client_refresh: self.next_allowed_client_refresh,
            cache_target_age: self.cache_target_age,
            is_cached: self.is_cached,
        }
    }
}

impl Calculator {
    /// A calculator over the events and the tables of `app`, with the default limits.
    pub fn new(app: &App, events: EventStore) -> Calculator {
        Calculator::with_limits(app, events, CalculationLimits::default())
    }

    /// A calculator with other limits.
    pub fn with_limits(app: &App, events: EventStore, limits: CalculationLimits) -> Calculator {
        let permits = Arc::new(Semaphore::new(limits.at_once.max(1)));
        Calculator {
            records: app.store.records.clone(),
            clock: app.clock,
            events,
            limits,
            permits,
            metrics: None,
            parts: None,
            stores_results: true,
            in_flight: InFlightQueries::default(),
            clickhouse: None,
        }
    }

    /// The same calculator without writes to the cache: for queries as of an instant other than the present.
    #[must_use]
    pub fn without_cache_writes(self) -> Calculator {
        Calculator { stores_results: false, ..self }
    }

    /// The same calculator; queries that exceed the memory of this process are calculated on `server`, if there is one.
    #[must_use]
    pub fn with_clickhouse(self, server: Option<ClickhouseServer>) -> Calculator {
        Calculator { clickhouse: server, ..self }
    }

    /// The same calculator, which calculates large queries in parts.
    #[must_use]
    pub fn in_parts(self, parts: Parts) -> Calculator {
        Calculator { parts: Some(parts), ..self }
    }

    /// The event store that it reads.
    pub fn events(&self) -> &EventStore {
        &self.events
    }

    /// The deadline of a request that begins now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time
    }

    /// Calculates a query as of `now`; [`timeout_error`] when it is not done by `deadline`.
    ///
    /// [`timeout_error`]: crate::errors::timeout_error
    pub(crate) async fn calculate(
        &self,
        project: &Project,
        keyed: &KeyedQuery,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> ApiResult<QueryResult> {
        let cancellation = CancellationGuard::until(deadline).with_metrics(self.metrics.clone());
        // Boxed: the futures of scans are large, and are part of those of pages and handlers.
        let work = Box::pin(async {
            let attempt =
                |concurrency| self.try_calculate(project, keyed, used, now, &cancellation, concurrency);
            let outcome = match attempt(Concurrency::Shared).await {
                Err(error) if error == memory_in_use() => attempt(Concurrency::Exclusive).await,
                outcome => outcome,
            };
            match outcome {
                Err(error) if error.is_over_limit() => {
                    self.calculate_over_limit(error, project, &keyed.query, used, now, &cancellation).await
                }
                outcome => outcome,
            }
        });
        with_deadline(project, deadline, work).await
    }

    async fn try_calculate(
        &self,
        project: &Project,
        keyed: &KeyedQuery,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        cancellation: &CancellationGuard,
        concurrency: Concurrency,
    ) -> ApiResult<QueryResult> {
        let KeyedQuery { query, source, .. } = keyed;
        let (context, plan, permit) = self.plan(project, query, used, now, concurrency).await?;
        let planned = PlannedQuery {
            project,
            query,
            source: source.as_ref(),
            plan: &plan,
            used,
            now,
            earliest: context.earliest_event,
            deadline: cancellation.deadline(),
        };
        let output =
            match self.divide(planned, ResultKind::Partials, cancellation, (permit, concurrency)).await? {
                Division::Calculated { results, memory } => {
                    let permit = self.acquire_shared_permit().await?;
                    execution::finish_plan(plan, results, memory, cancellation, permit).await?
                }
                Division::Undivided { pinned, memory, permit } => {
                    let inputs = self
                        .load_inputs(project, &plan, used, (pinned.map(|pinned| *pinned), memory))
                        .await?;
                    execution::run_plan(plan, inputs, cancellation, permit).await?
                }
            };
        QueryResult::new(project, query, &context, output, now)
    }

    /// The plan of a query, and a permit to run it.
    async fn plan(
        &self,
        project: &Project,
        query: &Query,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        concurrency: Concurrency,
    ) -> ApiResult<(ProjectContext, Arc<Plan>, CalculationPermit)> {
        let mut context = context(project, used.definitions.clone())?;
        let mut permit = None;
        if query.needs_earliest() {
            // Looking up the earliest event opens all blocks that wait for compaction.
            permit = Some(self.acquire_permit(concurrency).await?);
            context.earliest_event = self.events.earliest(project.id).await.map_err(event_store_error)?;
        }
        // Off the runtime's threads: compiling many patterns takes a while.
        let query = query.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let plan = query.plan(&context, now)?;
            Ok((context, Arc::new(plan)))
        });
        let (context, plan) =
            planned.await.map_err(|error| ApiError::internal(&error))?.map_err(engine_error)?;
        // An invalid query fails before it waits for a permit, unless the earliest event had to be looked up.
        let permit = match permit {
            Some(permit) => permit,
            None => self.acquire_permit(concurrency).await?,
        };
        Ok((context, plan, permit))
    }

    /// Waits for a permit to use the cores. Other calculations wait while it is held.
    pub async fn acquire_shared_permit(&self) -> ApiResult<CalculationPermit> {
        self.acquire_permit(Concurrency::Shared).await
    }

    async fn acquire_permit(&self, concurrency: Concurrency) -> ApiResult<CalculationPermit> {
        let permits = match concurrency {
            Concurrency::Shared => 1,
            Concurrency::Exclusive => u32::try_from(self.limits.at_once.max(1)).unwrap_or(u32::MAX),
        };
        let permit = self.permits.clone().acquire_many_owned(permits).await;
        permit.map(Arc::new).map_err(|error| ApiError::internal(&error))
    }
}

/// Whether other queries may run at the same time. A query that fails because the others left too little memory is retried
/// once, exclusively. Between the attempts it holds neither memory nor a permit, and the semaphore is fair: two queries
/// never deadlock, and each gets its retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// Up to [`CalculationLimits::at_once`] queries in total.
    Shared,
    /// No other query.
    Exclusive,
}

/// The outcome of `work`; 503 when it is not done by `deadline`.
async fn with_deadline<T>(
    project: &Project,
    deadline: Instant,
    work: impl Future<Output = ApiResult<T>>,
) -> ApiResult<T> {
    match tokio::time::timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::warn!(project = project.id, "a calculation exceeded its deadline");
            Err(timeout_error())
        }
    }
}

/// The engine's context of a project, without its earliest event.
pub fn context(project: &Project, definitions: Definitions) -> ApiResult<ProjectContext> {
    let timezone = project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    Ok(ProjectContext {
        project_id: project.id.to_string(),
        timezone,
        week_start: WeekStart::from_day(project.week_start_day.unwrap_or(0).into()),
        test_account_filters: project.test_account_filters.clone(),
        path_cleaning_filters: project.path_cleaning_filters.clone(),
        earliest_event: None,
        aggregate_by_distinct_id: project.aggregate_users_by_distinct_id,
        definitions,
    })
}

/// The first and the last day of a query's range, in the project's time zone. `None` for the first where the range begins
/// with the earliest event.
pub(crate) fn range_days(
    project: &Project,
    query: &Query,
    now: DateTime<Utc>,
) -> ApiResult<(Option<NaiveDate>, NaiveDate)> {
    let range = query.range(&context(project, Definitions::default())?, now).map_err(engine_error)?;
    let from = (!query.needs_earliest()).then(|| range.from.date_naive());
    Ok((from, range.to.date_naive()))
}

/// How fresh a result is. Only the end of its range matters, so the earliest event is not needed.
pub(crate) fn result_freshness(
    project: &Project,
    query: &Query,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> ApiResult<Freshness> {
    freshness(query, &context(project, Definitions::default())?, last_refresh, now).map_err(engine_error)
}
