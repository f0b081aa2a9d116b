//! The worker of a job: claims it, calculates with heartbeats, and ends it.
//!
//! Must stay true: the result, the end and the deletion of the job are one transaction, conditional on the claimed state,
//! so a job has one effect however often it is delivered; a worker that loses the claim stops within one or two heartbeats.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use pennon_analytics::ParsedQuery;
use pennon_analytics::refresh::Freshness;
use pennon_analytics::refresh::{RefreshAction, RefreshMode, decide};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids::new_uuid;
use pennon_core::model::Project;
use pennon_core::store::keys;
use pennon_core::store::{Item, StoreError, Write, WriteCondition};
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::start::job_row;
use super::{ATTEMPTS_MAX, Job, JobKey, JobLimits, JobOutcome};
use crate::calculator::{
    Calculator, KeyedQuery, QueryDefinitions, QueryResult, StoredState, direct_references, result_freshness,
    settings_digest,
};
use crate::errors::{engine_error, is_timeout};
use crate::query_state::{
    Failure, QueryProgress, QueryState, RunEnd, VersionedQueryState, machine_now, next_version, state_row,
};

/// Most attempts after version conflicts with waiters that join or cancel.
const ATTEMPTS_ON_CONFLICT: u32 = 20;

/// A job that this worker has claimed.
struct ClaimedJob<'a> {
    calculator: &'a Calculator,
    key: JobKey,
    job: &'a Job,
    project: u64,
    cache_key: &'a str,
    claim: Uuid,
    tracked: VersionedQueryState,
}

/// The outcome of an attempt.
enum AttemptOutcome {
    /// The result, and the digest of the settings that it depends on.
    Calculated(Box<QueryResult>, String),
    /// A fresh result was already cached.
    AlreadyCached,
    /// A permanent failure.
    Failed(Failure),
    /// A transient failure, with a cause that clients may see.
    Retry(String),
    /// The claim was lost.
    ClaimLost,
}

impl Calculator {
    /// Runs a job until it has ended or has to be retried. Any number of workers may call it for the same job.
    pub async fn run_job(&self, key: JobKey, limits: JobLimits) -> JobOutcome {
        // Boxed: the futures of calculations are large.
        match Box::pin(self.try_run_job(key, limits)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(job = %key.0, %error, "a job failed and will be retried");
                JobOutcome::Retry
            }
        }
    }

    async fn try_run_job(&self, key: JobKey, limits: JobLimits) -> Result<JobOutcome, StoreError> {
        let Some(item) = self.records.get(&key.row()).await? else { return Ok(JobOutcome::Dropped) };
        let Ok(job) = item.body::<Job>() else {
            // Written by a later release: left to its workers.
            return Ok(JobOutcome::Retry);
        };
        let deadline = Instant::now() + limits.time;
        let Some(tracked) = self.wait_until_unclaimed(key, &job, limits, deadline).await? else {
            return self.discard_unless_active(key, &job).await;
        };
        let mut claimed = ClaimedJob {
            calculator: self,
            key,
            job: &job,
            project: job.project,
            cache_key: &job.cache_key,
            claim: new_uuid(),
            tracked,
        };
        if claimed.is_last_attempt() {
            return claimed.fail("The calculation could not be finished. Try again later.".to_owned()).await;
        }
        if !claimed.claim().await? {
            return Ok(JobOutcome::Retry);
        }
        let (attempt, erasures) = claimed.attempt(&job, limits, deadline).await;
        let outcome = claimed.finish(attempt, erasures).await?;
        if outcome == JobOutcome::Dropped {
            // The job of a cancelled calculation is deleted; one that another worker has claimed stays.
            self.discard_unless_active(key, &job).await?;
        }
        Ok(outcome)
    }

    /// Waits until no other worker holds the claim, or its lease has expired. `None` where the job needs no work, or at the
    /// deadline.
    async fn wait_until_unclaimed(
        &self,
        key: JobKey,
        job: &Job,
        limits: JobLimits,
        deadline: Instant,
    ) -> Result<Option<VersionedQueryState>, StoreError> {
        let mut watched: Option<(u64, Instant)> = None;
        loop {
            let Some(tracked) = self.get_active_state(key, job).await? else { return Ok(None) };
            if tracked.state.claim.is_none() {
                return Ok(Some(tracked));
            }
            let since = match watched {
                Some((version, since)) if version == tracked.version => since,
                _ => Instant::now(),
            };
            if since.elapsed() >= limits.lease {
                return Ok(Some(tracked));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            watched = Some((tracked.version, since));
            tokio::time::sleep(limits.beat).await;
        }
    }

    /// The state of a job that still has to be done.
    async fn get_active_state(
        &self,
        key: JobKey,
        job: &Job,
    ) -> Result<Option<VersionedQueryState>, StoreError> {
        let item = self.records.get(&keys::query_state(job.project, &job.cache_key)).await?;
        let tracked = VersionedQueryState::from_item(item.as_ref());
        Ok(tracked.filter(|it| it.state.generation == key.0 && it.state.end.is_none()))
    }

    /// Deletes a job that needs no work.
    async fn discard_unless_active(&self, key: JobKey, job: &Job) -> Result<JobOutcome, StoreError> {
        if self.get_active_state(key, job).await?.is_some() {
            return Ok(JobOutcome::Retry);
        }
        self.records.transact(vec![Write::Delete(key.row(), WriteCondition::None)]).await?;
        Ok(JobOutcome::Dropped)
    }
}

impl ClaimedJob<'_> {
    /// Claims the job; false where another worker was faster.
    async fn claim(&mut self) -> Result<bool, StoreError> {
        let state = &self.tracked.state;
        let now = self.calculator.clock.now_for(state.start_time);
        let claimed = state.with_claim(self.claim, now, machine_now());
        match self.write_state(claimed, Vec::new()).await {
            Ok(()) => Ok(true),
            // Another worker was faster; or the response to the first attempt of this write was lost.
            Err(StoreError::Condition { .. }) => self.reload_state().await,
            Err(error) => Err(error),
        }
    }

    /// Replaces the state, and applies the writes of `more`, in one transaction.
    async fn write_state(&mut self, state: QueryState, more: Vec<Write>) -> Result<(), StoreError> {
        let (guard, version) = next_version(Some(self.tracked.version));
        let item = state_row(self.project, self.cache_key, &state, version)?;
        let writes = std::iter::once(Write::Put(item, guard)).chain(more);
        self.calculator.records.transact(writes.collect()).await?;
        self.tracked = VersionedQueryState { state, version };
        Ok(())
    }

    /// Re-reads the state; false where this worker no longer holds the claim.
    async fn reload_state(&mut self) -> Result<bool, StoreError> {
        let item = self.calculator.records.get(&keys::query_state(self.project, self.cache_key)).await?;
        let own = |it: &VersionedQueryState| {
            it.state.generation == self.key.0 && it.state.claim == Some(self.claim)
        };
        match VersionedQueryState::from_item(item.as_ref()).filter(own) {
            Some(tracked) => {
                self.tracked = tracked;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Writes a heartbeat; false where this worker has lost the claim.
    async fn heartbeat(&mut self, progress: QueryProgress) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS_ON_CONFLICT {
            let state = QueryState {
                progress: Some(progress),
                seen_at: Some(machine_now()),
                ..self.tracked.state.clone()
            };
            match self.write_state(state, Vec::new()).await {
                Ok(()) => return Ok(true),
                // A waiter joined or cancelled, or another worker took over.
                Err(StoreError::Condition { .. }) => {
                    if !self.reload_state().await? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// Ends the job or releases the claim, depending on the outcome of an attempt.
    async fn finish(&mut self, attempt: AttemptOutcome, erasures: i64) -> Result<JobOutcome, StoreError> {
        let cause = match attempt {
            AttemptOutcome::Calculated(calculated, settings_digest) => {
                let result = self
                    .calculator
                    .result_item(self.project, settings_digest, self.cache_key, &calculated)
                    .await;
                match result {
                    Ok(item) => return self.end(Some(item), None, erasures).await,
                    Err(StoreError::TooLarge) => return self.end(None, Some(too_large()), erasures).await,
                    Err(error) => {
                        tracing::warn!(%error, "a result could not be cached");
                        STORE_UNREACHABLE.to_owned()
                    }
                }
            }
            AttemptOutcome::AlreadyCached => return self.end(None, None, erasures).await,
            AttemptOutcome::Failed(failure) => return self.end(None, Some(failure), erasures).await,
            AttemptOutcome::Retry(cause) => cause,
            AttemptOutcome::ClaimLost => return Ok(JobOutcome::Dropped),
        };
        if self.is_last_attempt() {
            return self.fail(cause).await;
        }
        // Without the claim, another worker or the queued calculation goes on.
        Ok(if self.release().await? { JobOutcome::Retry } else { JobOutcome::Dropped })
    }

    /// Whether all attempts were begun.
    fn is_last_attempt(&self) -> bool {
        self.tracked.state.attempts >= ATTEMPTS_MAX
    }

    /// Ends the job with a failure.
    async fn fail(&mut self, cause: String) -> Result<JobOutcome, StoreError> {
        self.end(None, Some(Failure { message: Some(cause) }), 0).await
    }

    /// Releases the claim; false where this worker no longer holds it.
    async fn release(&mut self) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS_ON_CONFLICT {
            let state = QueryState { claim: None, ..self.tracked.state.clone() };
            match self.write_state(state, Vec::new()).await {
                Ok(()) => return Ok(true),
                Err(StoreError::Condition { .. }) if self.reload_state().await? => {}
                Err(StoreError::Condition { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ends the job, with a result or a failure, and starts the queued calculation if there is one.
    async fn end(
        &mut self,
        mut result: Option<Item>,
        mut failure: Option<Failure>,
        erasures: i64,
    ) -> Result<JobOutcome, StoreError> {
        for _ in 0..ATTEMPTS_ON_CONFLICT {
            let state = &self.tracked.state;
            let at = self.calculator.clock.now_for(state.start_time);
            let ended = state.with_end(RunEnd { at, failure: failure.clone(), erasures }, machine_now());
            let mut more = vec![Write::Delete(self.key.row(), WriteCondition::None)];
            more.extend(result.clone().map(|item| {
                let count = item.count;
                Write::Put(item, WriteCondition::CountAtMost(count))
            }));
            if ended.end.is_none() {
                // The queued calculation starts now; its query is the same.
                more.push(Write::Put(job_row(ended.generation, self.job)?, WriteCondition::None));
            }
            match self.write_state(ended, more).await {
                Ok(()) => return Ok(JobOutcome::Done),
                Err(StoreError::TooLarge) if result.take().is_some() => {
                    failure = Some(too_large());
                }
                // A later result is cached already.
                Err(error) if error.is_condition(RESULT_WRITE_INDEX) => result = None,
                Err(StoreError::Condition { .. }) => {
                    // The expired claim of another worker was changed meanwhile: start over.
                    if self.tracked.state.claim != Some(self.claim) {
                        return Ok(JobOutcome::Retry);
                    }
                    if !self.reload_state().await? {
                        return Ok(JobOutcome::Dropped);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// Calculates with heartbeats. Also returns the erasure counter from before the calculation.
    async fn attempt(&mut self, job: &Job, limits: JobLimits, deadline: Instant) -> (AttemptOutcome, i64) {
        let started = Instant::now();
        let (calculator, metrics) = self.calculator.clone().measured();
        let state = &self.tracked.state;
        let now = state.pickup_time.unwrap_or(state.start_time);
        let forced = state.forced;
        let job = job.clone();
        let mut work = async move { calculator.run_attempt(&job, forced, now, deadline).await }.boxed();
        let mut heartbeats = tokio::time::interval_at(started + limits.beat, limits.beat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive_at = Instant::now();
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                _ = heartbeats.tick() => match self.heartbeat(metrics.progress(started.elapsed())).await {
                    Ok(true) => alive_at = Instant::now(),
                    Ok(false) => return (AttemptOutcome::ClaimLost, 0),
                    // The lease may have expired.
                    Err(_) if alive_at.elapsed() >= limits.lease.max(HEARTBEAT_GRACE_MIN) => {
                        return (AttemptOutcome::Retry(STORE_UNREACHABLE.to_owned()), 0);
                    }
                    Err(error) => tracing::warn!(%error, "a heartbeat could not be written"),
                },
            }
        }
    }
}

fn too_large() -> Failure {
    let message = "The result is too large to be stored. Request less data, or use refresh=blocking.";
    Failure { message: Some(message.to_owned()) }
}

/// Failure message where a result could not be written.
const STORE_UNREACHABLE: &str = "The store could not be reached.";
/// Failure message where each attempt timed out.
const TIMED_OUT: &str = "The calculation takes too long. Request a shorter range or fewer events.";
/// Index of the result among the writes of the transaction that ends a job.
const RESULT_WRITE_INDEX: usize = 2;
/// A worker continues at least this long without a successful heartbeat.
const HEARTBEAT_GRACE_MIN: Duration = Duration::from_secs(5);

impl Calculator {
    /// Calculates the query of a job. Also returns the erasure counter from before the calculation.
    async fn run_attempt(
        &self,
        job: &Job,
        forced: bool,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> (AttemptOutcome, i64) {
        let mut erasures = 0;
        let outcome = self.calculate_job(job, forced, now, deadline, &mut erasures).await;
        let attempt = outcome.unwrap_or_else(|error| match error.status().as_u16() {
            503 if is_timeout(&error) => AttemptOutcome::Retry(TIMED_OUT.to_owned()),
            503 => AttemptOutcome::Retry(error.detail().to_owned()),
            status => {
                AttemptOutcome::Failed(Failure { message: (status < 500).then(|| error.detail().to_owned()) })
            }
        });
        (attempt, erasures)
    }

    async fn calculate_job(
        &self,
        job: &Job,
        forced: bool,
        now: DateTime<Utc>,
        deadline: Instant,
        erasures: &mut i64,
    ) -> ApiResult<AttemptOutcome> {
        let ParsedQuery::Query(query) = job.source.parse().map_err(engine_error)? else {
            return Err(ApiError::internal(&"a job without a query"));
        };
        let keyed = KeyedQuery::new(query, job.scope, job.invalidation.as_deref());
        let keyed = keyed.with_source(job.source.clone());
        if keyed.key != job.cache_key {
            // Written by a release with another cache key format.
            return Ok(AttemptOutcome::Failed(Failure::default()));
        }
        let Some(project) = self.records.get(&keys::project(job.project)).await? else {
            return Ok(AttemptOutcome::Failed(Failure::default()));
        };
        let project: Project = project.body()?;
        let StoredState { stored, known, .. } = self.read(&project, &[&keyed]).await?;
        *erasures = known.erasures();
        let used: QueryDefinitions =
            known.of(project.id, &direct_references(&keyed.query, Some(&project)))?;
        let settings_digest = settings_digest(&project, &keyed.query, &used.digest, known.erasures());
        if !forced {
            let stored =
                stored.into_iter().flatten().find(|stored| stored.is_valid_for(&settings_digest, now));
            // A result whose object is missing is calculated again.
            let loaded = match &stored {
                Some(stored) => self.load_result(project.id, &keyed.key, stored).await,
                None => None,
            };
            let stored = loaded.and_then(|stored| stored.to_calculated(&settings_digest, &keyed.query, now));
            let freshness: Option<Freshness> = stored
                .map(|stored| result_freshness(&project, &keyed.query, stored.last_refresh, now))
                .transpose()?;
            if decide(RefreshMode::Blocking, freshness).then == RefreshAction::Nothing {
                return Ok(AttemptOutcome::AlreadyCached);
            }
        }
        let calculated = self.calculate(&project, &keyed, &used, now, deadline).await?;
        Ok(AttemptOutcome::Calculated(Box::new(calculated), settings_digest))
    }
}
