//! Lookup and cancellation of background calculations by id: the client query id, a generation or the cache key.
//!
//! Must stay true: a calculation with other waiters continues when one of them cancels; once a cancellation is confirmed,
//! the cancelled calculation stores no result, and the one queued behind it starts.

use chrono::{DateTime, Utc};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Write, WriteCondition, back_off_after_conflict};
use serde_json::Value;

use super::start::job_row;
use super::{CalculationRef, ClientQueryId, Job, JobKey};
use crate::calculator::{CachedResult, Calculator};
use crate::query_state::{
    QueryStatus, RunSummary, VersionedQueryState, machine_now, next_version, state_row,
};

/// Most attempts after version conflicts.
const ATTEMPTS_ON_CONFLICT: u32 = 20;
/// Most calculations of one id that are cancelled in one transaction: up to three rows each.
const CHUNK_CANCELS_MAX: usize = 30;

/// A calculation that was found by an id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueryLookup {
    /// Its status.
    pub status: QueryStatus,
    /// The insight that it was requested for.
    pub insight_id: Option<u64>,
    /// The dashboard that it was requested for.
    pub dashboard_id: Option<u64>,
    cache_key: String,
    /// The project's erasure counter before it; `None` while it has not ended.
    erasures: Option<i64>,
}

impl QueryLookup {
    fn new(id: &str, target: &CalculationRef, run: RunSummary) -> QueryLookup {
        QueryLookup {
            erasures: run.end.as_ref().map(|end| end.erasures),
            status: QueryStatus::new(id.to_owned(), run),
            insight_id: target.insight_id,
            dashboard_id: target.dashboard_id,
            cache_key: target.cache_key.clone(),
        }
    }

    /// The `query_status` of a response.
    pub fn to_json(&self, project: ProjectId) -> Value {
        self.status.to_json(project, self.insight_id, self.dashboard_id)
    }
}

/// Whether an id is longer than any stored one can be.
pub(crate) fn query_name_is_too_long(name: &str) -> bool {
    name.len() > keys::QUERY_NAME_BYTES_MAX
}

impl Calculator {
    /// The calculation with this id; `None` where there is none or its status is no longer reported.
    pub(crate) async fn get_query(
        &self,
        project: ProjectId,
        id: &str,
        now: DateTime<Utc>,
    ) -> ApiResult<Option<QueryLookup>> {
        if query_name_is_too_long(id) {
            return Ok(None);
        }
        let [id_item, state_item] = self.get_id_and_state(project, id).await?;
        if let Some(VersionedQueryState { state, .. }) = VersionedQueryState::from_item(state_item.as_ref()) {
            let waiter = state.waiters.iter().find(|waiter| waiter.id == id);
            let target = CalculationRef {
                cache_key: id.to_owned(),
                generation: state.generation,
                insight_id: waiter.and_then(|waiter| waiter.insight_id),
                dashboard_id: waiter.and_then(|waiter| waiter.dashboard_id),
            };
            let run = state.get_run(target.generation, now);
            return Ok(run.map(|run| QueryLookup::new(id, &target, run)));
        }
        let id_row: Option<ClientQueryId> = id_item.map(|item| item.body()).transpose()?;
        let Some(target) = id_row.and_then(|row| row.targets.into_iter().next()) else { return Ok(None) };
        let item = self.records.get(&keys::query_state(project, &target.cache_key)).await?;
        let tracked = VersionedQueryState::from_item(item.as_ref());
        let run = tracked.and_then(|it| it.state.get_run(target.generation, now));
        Ok(run.map(|run| QueryLookup::new(id, &target, run)))
    }

    /// The result of a calculation that succeeded, as the body of `POST P/query/`; `None` where it is not cached any more,
    /// or events were erased since.
    pub(crate) async fn get_query_result(
        &self,
        project: ProjectId,
        lookup: &QueryLookup,
    ) -> ApiResult<Option<Value>> {
        let keys = [keys::result(project, &lookup.cache_key), keys::erasures(project)];
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        let stored = CachedResult::from_item(items.next().flatten().as_ref());
        let erasures = items.next().flatten().map_or(0, |item| item.count);
        let is_complete = lookup.erasures == Some(erasures);
        let Some(stored) = stored.filter(|_| is_complete) else { return Ok(None) };
        let loaded = self.load_result(project, &lookup.cache_key, &stored).await;
        Ok(loaded.map(|stored| stored.to_json(&lookup.cache_key)))
    }

    /// The items of `id` as a client query id and as a cache key.
    async fn get_id_and_state(&self, project: ProjectId, id: &str) -> ApiResult<[Option<Item>; 2]> {
        let keys = [keys::query_name(project, id), keys::query_state(project, id)];
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        Ok([items.next().flatten(), items.next().flatten()])
    }

    /// Removes the waiter `id` from its calculations. Returns whether there are any.
    pub async fn cancel(&self, project: ProjectId, id: &str) -> ApiResult<bool> {
        if query_name_is_too_long(id) {
            return Ok(false);
        }
        let [id_item, state_item] = self.get_id_and_state(project, id).await?;
        let id_row: ClientQueryId = id_item.map(|item| item.body()).transpose()?.unwrap_or_default();
        let mut cache_keys: Vec<String> =
            id_row.targets.iter().map(|target| target.cache_key.clone()).collect();
        cache_keys.extend(state_item.map(|_| id.to_owned()));
        cache_keys.sort();
        cache_keys.dedup();
        let id_row_key = keys::query_name(project, id);
        for chunk in cache_keys.chunks(CHUNK_CANCELS_MAX) {
            self.cancel_chunk(project, id, chunk).await?;
        }
        if !id_row.targets.is_empty() {
            self.records.transact(vec![Write::Delete(id_row_key, WriteCondition::None)]).await?;
        }
        Ok(!cache_keys.is_empty())
    }

    async fn cancel_chunk(&self, project: ProjectId, id: &str, cache_keys: &[String]) -> ApiResult<()> {
        let keys: Vec<Key> = cache_keys.iter().map(|key| keys::query_state(project, key)).collect();
        for attempt in 0..ATTEMPTS_ON_CONFLICT {
            back_off_after_conflict(attempt).await;
            let mut writes = Vec::new();
            for (cache_key, item) in cache_keys.iter().zip(self.records.batch_get(&keys).await?) {
                if let Some(tracked) = VersionedQueryState::from_item(item.as_ref()) {
                    writes.extend(self.cancel_writes(project, id, cache_key, &tracked).await?);
                }
            }
            if writes.is_empty() {
                return Ok(());
            }
            match self.records.transact(writes).await {
                Ok(()) => return Ok(()),
                // Heartbeats keep changing some of the rows: cancel each in its own transaction.
                Err(StoreError::Condition { .. }) if cache_keys.len() > 1 => {
                    for one in cache_keys.chunks(1) {
                        Box::pin(self.cancel_chunk(project, id, one)).await?;
                    }
                    return Ok(());
                }
                Err(StoreError::Condition { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::busy(1))
    }

    /// The writes that remove the waiter `id` from a calculation.
    async fn cancel_writes(
        &self,
        project: ProjectId,
        id: &str,
        cache_key: &str,
        tracked: &VersionedQueryState,
    ) -> Result<Vec<Write>, StoreError> {
        let state = &tracked.state;
        if !state.has_waiter(id) {
            return Ok(Vec::new());
        }
        let mut left = state.without_waiter(id, machine_now());
        let mut writes = Vec::new();
        if left.as_ref().is_none_or(|left| left.generation != state.generation) {
            let job_key = JobKey(state.generation).row();
            // The queued calculation is of the same query, so its job is a copy.
            let job: Option<Job> = match &left {
                Some(left) if left.end.is_none() => {
                    self.records.get(&job_key).await?.map(|item| item.body()).transpose()?
                }
                _ => None,
            };
            match (&left, job) {
                (Some(next), Some(job)) if next.end.is_none() => {
                    writes.push(Write::Put(job_row(next.generation, &job)?, WriteCondition::None));
                }
                (Some(next), None) if next.end.is_none() => left = None,
                _ => {}
            }
            writes.push(Write::Delete(job_key, WriteCondition::None));
        }
        let (guard, version) = next_version(Some(tracked.version));
        writes.push(match &left {
            Some(left) => Write::Put(state_row(project, cache_key, left, version)?, guard),
            None => Write::Delete(keys::query_state(project, cache_key), guard),
        });
        Ok(writes)
    }
}
