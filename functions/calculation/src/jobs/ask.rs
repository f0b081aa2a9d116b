//! Asking for a calculation by its name, and cancelling it.
//!
//! Must stay true: a calculation that others wait for too goes on when one of them cancels; once a cancel is answered, no
//! result of what was cancelled comes to be, and what waited for its end begins.

use chrono::{DateTime, Utc};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Write, back_off_after_conflict};
use serde_json::Value;

use super::start::{job_row, next, row};
use super::state::Seen;
use super::status::Status;
use super::{Job, JobKey, Named, Target, Tracked, machine_now};
use crate::calculator::{Calculator, Stored};

/// How often a cancel that others overtook is tried again.
const TRIES: u32 = 20;
/// Calculations that one name stands for and that are cancelled in one transaction: up to three rows each.
const CANCELS_AT_ONCE: usize = 30;

/// A calculation that was asked for by its name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// What is told of it.
    pub status: Status,
    /// For which insight it was asked for.
    pub insight_id: Option<u64>,
    /// On which dashboard.
    pub dashboard_id: Option<u64>,
    cache_key: String,
    /// How often events of the project had been erased before it.
    erasures: Option<i64>,
}

impl Found {
    fn new(id: &str, target: &Target, seen: Seen) -> Found {
        Found {
            erasures: seen.end.as_ref().map(|end| end.erasures),
            status: Status::of(id.to_owned(), seen),
            insight_id: target.insight_id,
            dashboard_id: target.dashboard_id,
            cache_key: target.cache_key.clone(),
        }
    }

    /// As answers show it.
    pub fn shown(&self, project: ProjectId) -> Value {
        self.status.shown(project, self.insight_id, self.dashboard_id)
    }
}

/// Whether no calculation can have this name.
pub(crate) fn query_name_is_too_long(name: &str) -> bool {
    name.len() > keys::QUERY_NAME_BYTES_MAX
}

impl Calculator {
    /// What can be told of the calculation that is called `id`.
    pub(crate) async fn find(
        &self,
        project: ProjectId,
        id: &str,
        now: DateTime<Utc>,
    ) -> ApiResult<Option<Found>> {
        if query_name_is_too_long(id) {
            return Ok(None);
        }
        let [named, tracked] = self.named_or_key(project, id).await?;
        if let Some(Tracked { state, .. }) = Tracked::read(tracked.as_ref()) {
            let asker = state.askers.iter().find(|asker| asker.id == id);
            let target = Target {
                cache_key: id.to_owned(),
                generation: state.generation,
                insight_id: asker.and_then(|asker| asker.insight_id),
                dashboard_id: asker.and_then(|asker| asker.dashboard_id),
            };
            return Ok(state.seen_as(target.generation, now).map(|seen| Found::new(id, &target, seen)));
        }
        let named: Option<Named> = named.map(|item| item.body()).transpose()?;
        let Some(target) = named.and_then(|named| named.targets.into_iter().next()) else { return Ok(None) };
        let item = self.records.get(&keys::query_state(project, &target.cache_key)).await?;
        let seen = Tracked::read(item.as_ref()).and_then(|it| it.state.seen_as(target.generation, now));
        Ok(seen.map(|seen| Found::new(id, &target, seen)))
    }

    /// What a calculation that ended well has found, as `POST P/query/` would answer it; none where it is not kept, or
    /// events were erased since.
    pub(crate) async fn result_of(&self, project: ProjectId, found: &Found) -> ApiResult<Option<Value>> {
        let keys = [keys::result(project, &found.cache_key), keys::erasures(project)];
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        let stored = Stored::read(items.next().flatten().as_ref());
        let erasures = items.next().flatten().map_or(0, |item| item.count);
        let is_whole = found.erasures == Some(erasures);
        let Some(stored) = stored.filter(|_| is_whole) else { return Ok(None) };
        let whole = self.whole(project, &found.cache_key, &stored).await;
        Ok(whole.map(|stored| stored.shown(&found.cache_key)))
    }

    async fn named_or_key(&self, project: ProjectId, id: &str) -> ApiResult<[Option<Item>; 2]> {
        let keys = [keys::query_name(project, id), keys::query_state(project, id)];
        let mut items = self.records.batch_get(&keys).await?.into_iter();
        Ok([items.next().flatten(), items.next().flatten()])
    }

    /// Cancels what is called `id`; says whether anything is.
    pub async fn cancel(&self, project: ProjectId, id: &str) -> ApiResult<bool> {
        if query_name_is_too_long(id) {
            return Ok(false);
        }
        let [named, tracked] = self.named_or_key(project, id).await?;
        let named: Named = named.map(|item| item.body()).transpose()?.unwrap_or_default();
        let mut cache_keys: Vec<String> =
            named.targets.iter().map(|target| target.cache_key.clone()).collect();
        cache_keys.extend(tracked.map(|_| id.to_owned()));
        cache_keys.sort();
        cache_keys.dedup();
        let name = keys::query_name(project, id);
        for some in cache_keys.chunks(CANCELS_AT_ONCE) {
            self.cancel_some(project, id, some).await?;
        }
        if !named.targets.is_empty() {
            self.records.transact(vec![Write::Delete(name, Guard::None)]).await?;
        }
        Ok(!cache_keys.is_empty())
    }

    async fn cancel_some(&self, project: ProjectId, id: &str, cache_keys: &[String]) -> ApiResult<()> {
        let keys: Vec<Key> = cache_keys.iter().map(|key| keys::query_state(project, key)).collect();
        for tried in 0..TRIES {
            back_off_after_conflict(tried).await;
            let mut writes = Vec::new();
            for (cache_key, item) in cache_keys.iter().zip(self.records.batch_get(&keys).await?) {
                if let Some(tracked) = Tracked::read(item.as_ref()) {
                    writes.extend(self.cancelling(project, id, cache_key, &tracked).await?);
                }
            }
            if writes.is_empty() {
                return Ok(());
            }
            match self.records.transact(writes).await {
                Ok(()) => return Ok(()),
                // Workers change some of them all the time: each by itself.
                Err(StoreError::Condition { .. }) if cache_keys.len() > 1 => {
                    for one in cache_keys.chunks(1) {
                        Box::pin(self.cancel_some(project, id, one)).await?;
                    }
                    return Ok(());
                }
                Err(StoreError::Condition { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::busy(1))
    }

    /// The writes by which the asker `id` no longer waits for a calculation.
    async fn cancelling(
        &self,
        project: ProjectId,
        id: &str,
        cache_key: &str,
        tracked: &Tracked,
    ) -> Result<Vec<Write>, StoreError> {
        let state = &tracked.state;
        if !state.is_asked_by(id) {
            return Ok(Vec::new());
        }
        let mut left = state.without(id, machine_now());
        let mut writes = Vec::new();
        if left.as_ref().is_none_or(|left| left.generation != state.generation) {
            let row = JobKey(state.generation).row();
            // The one after it asks the same.
            let job: Option<Job> = match &left {
                Some(left) if left.end.is_none() => {
                    self.records.get(&row).await?.map(|item| item.body()).transpose()?
                }
                _ => None,
            };
            match (&left, job) {
                (Some(next), Some(job)) if next.end.is_none() => {
                    writes.push(Write::Put(job_row(next.generation, &job)?, Guard::None));
                }
                (Some(next), None) if next.end.is_none() => left = None,
                _ => {}
            }
            writes.push(Write::Delete(row, Guard::None));
        }
        let (guard, version) = next(Some(tracked.version));
        writes.push(match &left {
            Some(left) => Write::Put(row(project, cache_key, left, version)?, guard),
            None => Write::Delete(keys::query_state(project, cache_key), guard),
        });
        Ok(writes)
    }
}
