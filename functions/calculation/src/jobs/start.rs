//! Starts background calculations.
//!
//! Must stay true: a calculation that is reported as started has its job row; many are started in few transactions; two
//! requests that start the same query concurrently start it once.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids::new_uuid;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Write, WriteCondition, back_off_after_conflict};
use uuid::Uuid;

use super::{CalculationRef, ClientQueryId, Job};
use crate::calculator::{Calculator, KeyedQuery};
use crate::query_state::{
    QueryState, QueryStatus, StartRequest, Transition, VersionedQueryState, next_version, row_expiry,
    state_row,
};
use crate::source::QuerySource;

/// Most starts in one transaction: two rows each, and one for the client query id.
const CHUNK_STARTS_MAX: usize = 40;
/// Most bytes of queries in one transaction, uncompressed.
const CHUNK_BYTES_MAX: usize = 2_000_000;
/// Most attempts after version conflicts.
const ATTEMPTS_ON_CONFLICT: u32 = 20;

/// A query to calculate in the background.
#[derive(Debug)]
pub(crate) struct BackgroundQuery<'a> {
    /// The query and its cache key.
    pub keyed: &'a KeyedQuery,
    /// Its state, as last read.
    pub tracked: Option<&'a VersionedQueryState>,
    /// The request to start it.
    pub request: StartRequest,
}

/// The writes of a transaction, and the outcome of each start.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    outcomes: Vec<StartOutcome>,
}

/// The calculation that a request waits for.
struct StartOutcome {
    state: QueryState,
    generation: Uuid,
    /// The id it waits under, where that was assigned.
    id: Option<String>,
}

impl Calculator {
    /// Starts the queries of one request. Returns the status of each, in their order.
    pub(crate) async fn start_all(
        &self,
        project: ProjectId,
        queries: &[BackgroundQuery<'_>],
    ) -> ApiResult<Vec<QueryStatus>> {
        let chunks = split_into_transactions(queries);
        let mut id_row = ClientIdRow::default();
        let mut statuses = Vec::with_capacity(queries.len());
        for (at, chunk) in chunks.iter().enumerate() {
            let is_last = at + 1 == chunks.len();
            let outcomes = self.start_chunk(project, chunk, &mut id_row, is_last).await?;
            for (query, outcome) in chunk.iter().zip(outcomes) {
                statuses.push(outcome.status(query));
            }
        }
        Ok(statuses)
    }

    /// Starts some queries in one transaction. The row of the client query id is written with the last chunk.
    async fn start_chunk(
        &self,
        project: ProjectId,
        queries: &[BackgroundQuery<'_>],
        id_row: &mut ClientIdRow,
        is_last: bool,
    ) -> ApiResult<Vec<StartOutcome>> {
        let mut tracked: Vec<Option<VersionedQueryState>> =
            queries.iter().map(|one| one.tracked.cloned()).collect();
        let keys: Vec<Key> = queries.iter().map(|one| keys::query_state(project, &one.keyed.key)).collect();
        for attempt in 0..ATTEMPTS_ON_CONFLICT {
            let mut batch = Batch::default();
            let mut new_id_row = id_row.clone();
            for (one, tracked) in queries.iter().zip(&tracked) {
                batch.add(project, one, tracked.as_ref())?;
                new_id_row
                    .content
                    .targets
                    .extend(batch.outcomes.last().and_then(|outcome| outcome.client_target(one)));
            }
            new_id_row.has_other_writes |= !batch.writes.is_empty();
            if is_last && let Some(first) = queries.first().filter(|_| new_id_row.must_be_written()) {
                let item =
                    Item::new(keys::query_name(project, &first.request.waiter.id), &new_id_row.content)?;
                batch.writes.push(Write::Put(item.expiring(row_expiry()), WriteCondition::None));
            }
            let written = match batch.writes.is_empty() {
                true => Ok(()),
                false => self.records.transact(batch.writes).await,
            };
            match written {
                Ok(()) => {
                    *id_row = new_id_row;
                    return Ok(batch.outcomes);
                }
                Err(StoreError::Condition { .. }) => {
                    back_off_after_conflict(attempt + 1).await;
                    let items = self.records.batch_get(&keys).await?;
                    tracked =
                        items.iter().map(|item| VersionedQueryState::from_item(item.as_ref())).collect();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::busy(1))
    }
}

/// The row of the client query id, collected over the chunks of a request.
#[derive(Debug, Clone, Default)]
struct ClientIdRow {
    content: ClientQueryId,
    /// Whether any other row is written. Where no state changes, the row of the id exists already.
    has_other_writes: bool,
}

impl ClientIdRow {
    fn must_be_written(&self) -> bool {
        self.has_other_writes && !self.content.targets.is_empty()
    }
}

impl Batch {
    /// Adds the writes and the outcome of one start.
    fn add(
        &mut self,
        project: ProjectId,
        query: &BackgroundQuery<'_>,
        tracked: Option<&VersionedQueryState>,
    ) -> Result<(), StoreError> {
        let generation = new_uuid();
        let (guard, version) = next_version(tracked.map(|it| it.version));
        let cache_key = &query.keyed.key;
        let transition =
            QueryState::transition(tracked.map(|it| &it.state), &query.request, generation, cache_key);
        let (state, id) = match transition {
            Transition::Unchanged(state) | Transition::Joined(state) => (state, None),
            Transition::Started(state) => {
                self.writes.push(Write::Put(
                    new_job_row(project, query.keyed, state.generation)?,
                    WriteCondition::Absent,
                ));
                (state, None)
            }
            Transition::Queued(state, id) => (state, Some(id)),
        };
        let queued = state.next.as_ref().filter(|_| id.is_some());
        let generation = queued.map_or(state.generation, |next| next.generation);
        if tracked.is_some_and(|it| it.state == state) {
            // The row of the id exists already too.
            self.outcomes.push(StartOutcome { state, generation, id });
            return Ok(());
        }
        self.writes.push(Write::Put(state_row(project, cache_key, &state, version)?, guard));
        let outcome = StartOutcome { state, generation, id };
        // The row of the client's own id is written once for all queries of the request.
        if let Some(id) = outcome.id.as_ref().filter(|id| **id != query.request.waiter.id) {
            let content = ClientQueryId { targets: vec![outcome.target(query)] };
            let id_row = Item::new(keys::query_name(project, id), &content)?;
            self.writes.push(Write::Put(id_row.expiring(row_expiry()), WriteCondition::None));
        }
        self.outcomes.push(outcome);
        Ok(())
    }
}

impl StartOutcome {
    fn status(&self, query: &BackgroundQuery<'_>) -> QueryStatus {
        let request = &query.request;
        let id = || self.state.reported_id(&request.waiter.id, &query.keyed.key);
        let run = self.state.get_run(self.generation, request.now);
        QueryStatus::new(self.id.clone().unwrap_or_else(id), run.unwrap_or_else(|| self.state.current_run()))
    }

    /// The target of the client query id; `None` where the request has no id but the cache key, which needs no row.
    fn client_target(&self, query: &BackgroundQuery<'_>) -> Option<CalculationRef> {
        (query.request.waiter.id != query.keyed.key).then(|| self.target(query))
    }

    /// The target of the id that the calculation is reported under.
    fn target(&self, query: &BackgroundQuery<'_>) -> CalculationRef {
        let waiter = &query.request.waiter;
        CalculationRef {
            cache_key: query.keyed.key.clone(),
            generation: self.generation,
            insight_id: waiter.insight_id,
            dashboard_id: waiter.dashboard_id,
        }
    }
}

/// The row of a new job.
fn new_job_row(project: ProjectId, keyed: &KeyedQuery, generation: Uuid) -> Result<Item, StoreError> {
    let Some(source) = keyed.source.clone() else {
        return Err(StoreError::Failed("the query has no stored source".to_owned()));
    };
    let job = Job {
        project,
        source,
        scope: keyed.scope,
        invalidation: keyed.invalidation.clone(),
        cache_key: keyed.key.clone(),
    };
    job_row(generation, &job)
}

/// The row of `job` for a generation.
pub(super) fn job_row(generation: Uuid, job: &Job) -> Result<Item, StoreError> {
    Ok(Item::new(keys::job(generation), job)?.expiring(row_expiry()))
}

/// Splits the queries into chunks that each fit into a transaction.
fn split_into_transactions<'s, 'a>(queries: &'s [BackgroundQuery<'a>]) -> Vec<&'s [BackgroundQuery<'a>]> {
    let (mut chunks, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (at, query) in queries.iter().enumerate() {
        let query_bytes = query.keyed.source.as_ref().map_or(0, json_bytes);
        if at > begin && (at - begin == CHUNK_STARTS_MAX || bytes + query_bytes > CHUNK_BYTES_MAX) {
            chunks.push(&queries[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += query_bytes;
    }
    if begin < queries.len() {
        chunks.push(&queries[begin..]);
    }
    chunks
}

fn json_bytes(source: &QuerySource) -> usize {
    serde_json::to_string(source).map_or(0, |text| text.len())
}
