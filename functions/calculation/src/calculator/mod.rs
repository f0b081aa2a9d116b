//! Calculates questions over stored events, within a time and a number of calculations at once, and keeps the results.
//!
//! Must stay true: what is returned as calculated was calculated now, from all events of the project; a stored result
//! is only ever given to the question and the project settings that it was calculated for; a calculation whose askers
//! have gone, or whose time is up, stops.

mod answer;
mod asked;
mod cache;
mod definitions;
pub(crate) mod events;
mod facts;
mod large;
mod measure;
mod members;
pub(crate) mod people;
pub(crate) mod persons;
pub(crate) mod property_names;
pub(crate) mod property_values;
mod run;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::Table;
use pennon_engine::dates::WeekStart;
use pennon_engine::query::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};
use pennon_engine::{Definitions, Plan, ProjectContext, Query};
use pennon_eventstore::{EventStore, memory_in_use};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub use answer::{AskedBy, Question, Shown};
pub use asked::{Asked, Read};
pub(crate) use cache::settings;
pub use cache::{Purpose, Stored, cache_key};
pub(crate) use definitions::named_by;
pub use definitions::{Known, Reached};
pub use large::RESULT_BYTES_MAX;
pub use measure::Measured;
pub use people::{Page, Person};

use crate::errors::{out_of_time, refusal, unreadable};
pub(crate) use definitions::Used;
use run::Stop;
use shared::Running;

/// How much calculations may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time for one request, waiting for its turn included. What takes longer goes on in the background, before gateways
    /// give up after 29 or 30 seconds.
    pub time: Duration,
    /// Calculations at once; more wait for their turn.
    pub at_once: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { time: Duration::from_secs(25), at_once: run::cores().max(2) }
    }
}

impl Limits {
    /// The usual limits, with another time for a request where one is said.
    pub fn within(time: Option<Duration>) -> Limits {
        let usual = Limits::default();
        Limits { time: time.unwrap_or(usual.time), ..usual }
    }
}

/// The right to use the cores, until the last thread that has it stops.
pub type Turn = Arc<OwnedSemaphorePermit>;

/// The one place where questions are calculated. Cheap to clone; clones share the number of calculations at once.
#[derive(Debug, Clone)]
pub struct Calculator {
    pub(crate) records: Table,
    pub(crate) clock: Clock,
    events: EventStore,
    limits: Limits,
    permits: Arc<Semaphore>,
    /// What scans take, where somebody wants to know.
    measured: Option<Measured>,
    /// Whether results are kept for whoever asks next.
    keeps: bool,
    /// What is being calculated for requests.
    running: Running,
}

/// A result, just calculated or stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Calculated {
    /// In the contract's `result` shape.
    pub result: Value,
    /// For trends whether breakdown values were cut off.
    pub has_more: Option<bool>,
    /// Readable text of the calculation.
    pub hogql: String,
    /// Zone of its dates.
    pub timezone: String,
    /// When it was calculated.
    pub last_refresh: DateTime<Utc>,
    /// When it begins to age.
    pub cache_target_age: DateTime<Utc>,
    /// When a client should ask for a recalculation again.
    pub next_allowed_client_refresh: DateTime<Utc>,
    /// Whether it was stored before this request.
    pub is_cached: bool,
}

impl Calculated {
    /// The same with another form of the result.
    #[must_use]
    pub fn with(&self, result: Value) -> Calculated {
        Calculated {
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
        Calculator::with_limits(app, events, Limits::default())
    }

    /// A calculator with other limits.
    pub fn with_limits(app: &App, events: EventStore, limits: Limits) -> Calculator {
        let permits = Arc::new(Semaphore::new(limits.at_once.max(1)));
        Calculator {
            records: app.store.records.clone(),
            clock: app.clock,
            events,
            limits,
            permits,
            measured: None,
            keeps: true,
            running: Running::default(),
        }
    }

    /// The same calculator, which keeps no result: for questions as of an instant that is not the present.
    #[must_use]
    pub fn keeping_none(self) -> Calculator {
        Calculator { keeps: false, ..self }
    }

    /// The events that it calculates over.
    pub fn events(&self) -> &EventStore {
        &self.events
    }

    /// When a request that begins now has used up its time.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time
    }

    /// Calculates a question as of `now`; [`out_of_time`] when it is not done by `deadline`.
    ///
    /// [`out_of_time`]: crate::errors::out_of_time
    pub(crate) async fn calculate(
        &self,
        project: &Project,
        query: &Query,
        used: &Used,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> ApiResult<Calculated> {
        let stop = Stop::at(deadline).noting(self.measured.clone());
        // In the heap: the futures of scans are large, and stand inside those of pages and handlers.
        let work = Box::pin(async {
            let attempt = |company| self.calculate_beside(project, query, used, now, &stop, company);
            match attempt(Company::Others).await {
                Err(error) if error == memory_in_use() => attempt(Company::Nobody).await,
                done => done,
            }
        });
        in_time(project, deadline, work).await
    }

    async fn calculate_beside(
        &self,
        project: &Project,
        query: &Query,
        used: &Used,
        now: DateTime<Utc>,
        stop: &Stop,
        company: Company,
    ) -> ApiResult<Calculated> {
        let (context, plan, turn) = self.plan(project, query, used, now, company).await?;
        let gathered = self.gather(project, &plan, used).await?;
        let answer = run::answer(plan, gathered, stop, turn).await?;
        Ok(Calculated {
            result: answer.result,
            has_more: answer.has_more,
            hogql: query.describe(),
            timezone: project.timezone.clone(),
            last_refresh: now,
            cache_target_age: cache_target_age(query, now),
            next_allowed_client_refresh: next_allowed_client_refresh(query, &context, now, now)
                .map_err(refusal)?,
            is_cached: false,
        })
    }

    /// The plan of a question, and the right to calculate it.
    async fn plan(
        &self,
        project: &Project,
        query: &Query,
        used: &Used,
        now: DateTime<Utc>,
        company: Company,
    ) -> ApiResult<(ProjectContext, Arc<Plan>, Turn)> {
        let mut context = context(project, used.definitions.clone())?;
        let mut turn = None;
        if query.needs_earliest() {
            // Looking for it opens all that waits for compaction.
            turn = Some(self.permit(company).await?);
            context.earliest_event = self.events.earliest(project.id).await.map_err(unreadable)?;
        }
        // Compiling many patterns takes a while.
        let query = query.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let plan = query.plan(&context, now)?;
            Ok((context, Arc::new(plan)))
        });
        let (context, plan) = planned.await.map_err(|error| ApiError::internal(&error))?.map_err(refusal)?;
        // What the engine refuses is refused before it waits for its turn, where nothing has to be looked up.
        let turn = match turn {
            Some(turn) => turn,
            None => self.permit(company).await?,
        };
        Ok((context, plan, turn))
    }

    /// Waits until it may use the cores. Who has the right keeps others from it.
    pub async fn turn(&self) -> ApiResult<Turn> {
        self.permit(Company::Others).await
    }

    async fn permit(&self, company: Company) -> ApiResult<Turn> {
        let permits = match company {
            Company::Others => 1,
            Company::Nobody => u32::try_from(self.limits.at_once.max(1)).unwrap_or(u32::MAX),
        };
        let turn = self.permits.clone().acquire_many_owned(permits).await;
        turn.map(Arc::new).map_err(|error| ApiError::internal(&error))
    }
}

/// What may be calculated beside a question. One that other questions left too little memory is tried once more with none
/// beside it. Until then it holds neither memory nor a permit, and the semaphore is fair: no two questions wait for each
/// other, and each is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    /// As many other questions as [`Limits::at_once`] allows.
    Others,
    /// No other question.
    Nobody,
}

/// Gives `work` until `deadline`; 503 when it is not done by then.
async fn in_time<T>(
    project: &Project,
    deadline: Instant,
    work: impl Future<Output = ApiResult<T>>,
) -> ApiResult<T> {
    match tokio::time::timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::warn!(project = project.id, "a calculation did not finish in its time");
            Err(out_of_time())
        }
    }
}

/// What the engine has to know of a project, but for its earliest event.
pub fn context(project: &Project, definitions: Definitions) -> ApiResult<ProjectContext> {
    let timezone = project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    Ok(ProjectContext {
        project_id: project.id.to_string(),
        timezone,
        week_start: WeekStart::from_day(project.week_start_day.unwrap_or(0).into()),
        test_account_filters: project.test_account_filters.clone(),
        earliest_event: None,
        aggregate_by_distinct_id: project.aggregate_users_by_distinct_id,
        definitions,
    })
}

/// The first and the last day of a question's range, in the project's zone. No first where it begins with the events.
pub(crate) fn days(
    project: &Project,
    query: &Query,
    now: DateTime<Utc>,
) -> ApiResult<(Option<NaiveDate>, NaiveDate)> {
    let range = query.range(&context(project, Definitions::default())?, now).map_err(refusal)?;
    let from = (!query.needs_earliest()).then(|| range.from.date_naive());
    Ok((from, range.to.date_naive()))
}

/// How fresh a result is. The end of its range decides, so the earliest event plays no part.
pub(crate) fn class(
    project: &Project,
    query: &Query,
    last_refresh: DateTime<Utc>,
    now: DateTime<Utc>,
) -> ApiResult<Freshness> {
    freshness(query, &context(project, Definitions::default())?, last_refresh, now).map_err(refusal)
}
