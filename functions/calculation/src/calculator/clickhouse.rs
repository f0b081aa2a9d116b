//! Calculates queries on a ClickHouse server, over the files of the project: `pennon query --engine clickhouse`, and queries
//! that exceed the memory of this process.
//!
//! Must stay true: a result has all events that the query reads, or there is none; it is built by the code that builds the results
//! of the engine.

use std::fmt;

use chrono::{DateTime, Utc};
use pennon_analytics::clickhouse::{FileLocation, MAX_PERSON_MERGES, RowsError, SegmentFiles, SqlRows};
use pennon_analytics::{ProjectContext, Query, QueryOutput};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_eventstore::{LiveFiles, memory_in_use};
use pennon_filters::CalcError;
use tokio::time::Instant;

use super::execution::CancellationGuard;
use super::{Calculator, QueryDefinitions, QueryRequest, QueryResult, context, direct_references};
use crate::clickhouse::{ClickhouseServer, RequestError};
use crate::errors::{engine_error, event_store_error, timeout_error};

/// Why ClickHouse calculated no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClickhouseError {
    /// So many events of the query are in no file.
    EventsWait(u64),
    /// So many events are in no file, and do not fit into the memory, so it is not known whether the query reads them.
    EventsMayWait(u64),
    /// So many persons in the files were merged since, more than a statement can list.
    TooManyMerges(usize),
    /// The query has no statement; the error names what of it.
    Unsupported(CalcError),
    /// The server did not respond, returned an error or something else than the rows of the statement.
    Server(RequestError),
    /// Something else failed.
    Other(ApiError),
}

impl fmt::Display for ClickhouseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClickhouseError::EventsWait(events) => write!(
                formatter,
                "ClickHouse cannot calculate it at this moment: {events} events of the query are in no file until the next \
                 compaction."
            ),
            ClickhouseError::EventsMayWait(events) => write!(
                formatter,
                "ClickHouse cannot calculate it at this moment: up to {events} events of the query are in no file until the next \
                 compaction."
            ),
            ClickhouseError::TooManyMerges(persons) => write!(
                formatter,
                "ClickHouse cannot calculate it at this moment: {persons} persons in the files were merged into others, and a \
                 statement can list at most {MAX_PERSON_MERGES} until compaction has rewritten the files."
            ),
            ClickhouseError::Unsupported(error) => formatter.write_str(&error.detail),
            ClickhouseError::Server(error) => error.fmt(formatter),
            ClickhouseError::Other(error) => formatter.write_str(error.detail()),
        }
    }
}

impl From<ApiError> for ClickhouseError {
    fn from(error: ApiError) -> Self {
        ClickhouseError::Other(error)
    }
}

impl From<RequestError> for ClickhouseError {
    fn from(error: RequestError) -> Self {
        ClickhouseError::Server(error)
    }
}

impl From<RowsError> for ClickhouseError {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Invalid(_) => ClickhouseError::Server(RequestError::shortened(&error.to_string())),
            RowsError::Calculation(error) => ClickhouseError::Other(engine_error(error)),
        }
    }
}

impl Calculator {
    /// The statement of a query over the files at `location`.
    pub async fn clickhouse_statement(
        &self,
        request: &QueryRequest<'_>,
        location: &FileLocation,
    ) -> Result<String, ClickhouseError> {
        let QueryRequest { project, keyed, known, now, .. } = *request;
        let used = known.of(project.id, &direct_references(&keyed.query, Some(project)))?;
        let statement = self.write_statement(project, &keyed.query, &used, now, location).await?;
        Ok(statement.text)
    }

    /// Calculates a query on `server`.
    pub async fn calculate_in_clickhouse(
        &self,
        request: &QueryRequest<'_>,
        server: &ClickhouseServer,
    ) -> Result<QueryResult, ClickhouseError> {
        let QueryRequest { project, keyed, known, now, deadline, .. } = *request;
        let used = known.of(project.id, &direct_references(&keyed.query, Some(project)))?;
        let cancellation = CancellationGuard::until(deadline);
        self.run_in_clickhouse(server, project, &keyed.query, &used, now, &cancellation).await
    }

    /// The result of a query that this process does not calculate, for the reason `refused`: that of ClickHouse, if a server
    /// is set. If ClickHouse cannot calculate it, the error is `refused` with one more sentence.
    pub(super) async fn calculate_over_limit(
        &self,
        refused: ApiError,
        project: &Project,
        query: &Query,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        cancellation: &CancellationGuard,
    ) -> ApiResult<QueryResult> {
        let Some(server) = &self.clickhouse else { return Err(refused) };
        let outcome = self.run_in_clickhouse(server, project, query, used, now, cancellation).await;
        outcome.map_err(|error| match error {
            ClickhouseError::Other(error) => error,
            ClickhouseError::Server(RequestError::Timeout) => timeout_error(),
            ClickhouseError::Server(reason) => {
                tracing::warn!(project = project.id, %reason, "ClickHouse did not calculate a query");
                server_error()
            }
            error => refused.with_sentence(&error.to_string()),
        })
    }

    async fn run_in_clickhouse(
        &self,
        server: &ClickhouseServer,
        project: &Project,
        query: &Query,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        cancellation: &CancellationGuard,
    ) -> Result<QueryResult, ClickhouseError> {
        let started = Instant::now();
        let Statement { text, context } =
            self.write_statement(project, query, used, now, server.location()).await?;
        let rows = server.run(text, cancellation.deadline()).await?;
        tracing::info!(
            project = project.id,
            millis = started.elapsed().as_millis() as u64,
            response_bytes = rows.len(),
            "calculated by ClickHouse"
        );
        let (compiled, is_cancelled) = (query.clone(), cancellation.cancellation_check());
        let plan_context = context.clone();
        let finished = tokio::task::spawn_blocking(move || -> Result<QueryOutput, ClickhouseError> {
            let plan = compiled.plan(&plan_context, now).map_err(engine_error)?;
            Ok(plan.finish_rows(&SqlRows::parse(&rows)?, &is_cancelled)?)
        });
        let output = finished.await.map_err(|error| ApiError::internal(&error))??;
        Ok(QueryResult::new(project, query, &context, output, now)?)
    }

    async fn write_statement(
        &self,
        project: &Project,
        query: &Query,
        used: &QueryDefinitions,
        now: DateTime<Utc>,
        location: &FileLocation,
    ) -> Result<Statement, ClickhouseError> {
        let mut context = context(project, used.definitions.clone())?;
        if query.needs_earliest() {
            context.earliest_event = self.events().earliest(project.id).await.map_err(event_store_error)?;
        }
        let live = self.files_with_all_events(project, query, (&context, now)).await?;
        if live.merged.len() > MAX_PERSON_MERGES {
            return Err(ClickhouseError::TooManyMerges(live.merged.len()));
        }
        let files = SegmentFiles { place: location.clone(), segments: live.segments, merged: live.merged };
        // Off the runtime's threads, as the plan of a query is compiled.
        let query = query.clone();
        let written = tokio::task::spawn_blocking(move || {
            let text = query.clickhouse(&context, now, &files)?;
            Ok(Statement { text, context })
        });
        written.await.map_err(|error| ApiError::internal(&error))?.map_err(ClickhouseError::Unsupported)
    }

    /// The live files of the project, if they have all events that the query reads: captured events of other names or times may wait.
    async fn files_with_all_events(
        &self,
        project: &Project,
        query: &Query,
        (context, now): (&ProjectContext, DateTime<Utc>),
    ) -> Result<LiveFiles, ClickhouseError> {
        let live = self.events().live_files(project.id).await.map_err(event_store_error)?;
        if live.waiting == 0 {
            return Ok(live);
        }
        let (query, context) = (query.clone(), context.clone());
        let planned = tokio::task::spawn_blocking(move || query.plan(&context, now));
        let plan = planned.await.map_err(|error| ApiError::internal(&error))?.map_err(engine_error)?;
        let _permit = self.acquire_shared_permit().await?;
        let waiting = match self.pin(project, plan.scan(), &self.events().query_memory()).await {
            Ok(pinned) => pinned.waiting_rows(),
            Err(error) if error.is_over_limit() || error == memory_in_use() => {
                return Err(ClickhouseError::EventsMayWait(live.waiting));
            }
            Err(error) => return Err(error.into()),
        };
        match waiting {
            // Listed once more: what was compacted since the first list no longer waits, and is only in newer files.
            0 => Ok(self.events().live_files(project.id).await.map_err(event_store_error)?),
            waiting => Err(ClickhouseError::EventsWait(waiting)),
        }
    }
}

/// A statement, and the context that it was written in.
struct Statement {
    text: String,
    context: ProjectContext,
}

/// 503: the server did not return a result.
fn server_error() -> ApiError {
    ApiError::unavailable(
        "clickhouse_unavailable",
        "The query needs more memory than this process has for events, and the ClickHouse server for such queries did not \
         return its result. The log has the reason. Try again later, or narrow the dates or the events.",
    )
}
