//! Working on a job: claim it, calculate and show it, end it.
//!
//! Must stay true: result, end and the job's removal are one transaction on the state that the worker has claimed, so a
//! job has one effect however often it is delivered; who loses the claim stops within a heartbeat or two.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids::new_uuid;
use pennon_core::model::Project;
use pennon_core::store::keys;
use pennon_core::store::{Guard, Item, StoreError, Write};
use pennon_engine::Parsed;
use pennon_engine::query::{Freshness, Refresh, Then, decide};
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::start::{job_row, next, row};
use super::state::{End, Failure, Progress, State};
use super::{ATTEMPTS_MAX, Job, JobKey, JobLimits, Outcome, Tracked, machine_now};
use crate::calculator::{Asked, Calculated, Calculator, Read, Used, class, named_by, settings};
use crate::errors::{is_out_of_time, refusal};

/// How often a write that askers overtook is tried again.
const TRIES: u32 = 20;

/// A job that this worker has claimed.
struct Held<'a> {
    calculator: &'a Calculator,
    key: JobKey,
    job: &'a Job,
    project: u64,
    cache_key: &'a str,
    claim: Uuid,
    tracked: Tracked,
}

/// How an attempt came out.
enum Attempt {
    /// With a result, and what it depends on.
    Calculated(Box<Calculated>, String),
    /// A fresh result was stored already.
    Stored,
    /// It failed, and would again.
    Failed(Failure),
    /// It failed for a reason that may pass, which may be told.
    Again(String),
    /// The claim was lost.
    Lost,
}

impl Calculator {
    /// Works on a job until it has ended, or another attempt is needed. May be called by any number of workers.
    pub async fn run_job(&self, key: JobKey, limits: JobLimits) -> Outcome {
        // In the heap: the futures of calculations are large.
        match Box::pin(self.work_on(key, limits)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(job = %key.0, %error, "a job could not be worked on");
                Outcome::Again
            }
        }
    }

    async fn work_on(&self, key: JobKey, limits: JobLimits) -> Result<Outcome, StoreError> {
        let Some(item) = self.records.get(&key.row()).await? else { return Ok(Outcome::Dropped) };
        let Ok(job) = item.body::<Job>() else {
            // One that a later release wrote is left to workers of that.
            return Ok(Outcome::Again);
        };
        let deadline = Instant::now() + limits.time;
        let Some(tracked) = self.free_state(key, &job, limits, deadline).await? else {
            return self.drop_unless_waiting(key, &job).await;
        };
        let mut held = Held {
            calculator: self,
            key,
            job: &job,
            project: job.project,
            cache_key: &job.cache_key,
            claim: new_uuid(),
            tracked,
        };
        if held.is_last_attempt() {
            return held.give_up("The calculation could not be finished. Try again later.".to_owned()).await;
        }
        if !held.take().await? {
            return Ok(Outcome::Again);
        }
        let (attempt, erasures) = held.attempt(&job, limits, deadline).await;
        let outcome = held.conclude(attempt, erasures).await?;
        if outcome == Outcome::Dropped {
            // Of one that was cancelled nothing stays; one that somebody else works on stays theirs.
            self.drop_unless_waiting(key, &job).await?;
        }
        Ok(outcome)
    }

    /// The state of a job as soon as nobody else works on it; none where it needs no work, or the time is up.
    async fn free_state(
        &self,
        key: JobKey,
        job: &Job,
        limits: JobLimits,
        deadline: Instant,
    ) -> Result<Option<Tracked>, StoreError> {
        let mut watched: Option<(u64, Instant)> = None;
        loop {
            let Some(tracked) = self.wanted_state(key, job).await? else { return Ok(None) };
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

    /// The state of a job, where it still is to be done.
    async fn wanted_state(&self, key: JobKey, job: &Job) -> Result<Option<Tracked>, StoreError> {
        let item = self.records.get(&keys::query_state(job.project, &job.cache_key)).await?;
        let tracked = Tracked::read(item.as_ref());
        Ok(tracked.filter(|it| it.state.generation == key.0 && it.state.end.is_none()))
    }

    /// Removes a job that needs no work.
    async fn drop_unless_waiting(&self, key: JobKey, job: &Job) -> Result<Outcome, StoreError> {
        if self.wanted_state(key, job).await?.is_some() {
            return Ok(Outcome::Again);
        }
        self.records.transact(vec![Write::Delete(key.row(), Guard::None)]).await?;
        Ok(Outcome::Dropped)
    }
}

impl Held<'_> {
    /// Claims the job; false where somebody else was faster.
    async fn take(&mut self) -> Result<bool, StoreError> {
        let state = &self.tracked.state;
        let now = self.calculator.clock.now_for(state.start_time);
        let claimed = state.claimed(self.claim, now, machine_now());
        match self.write(claimed, Vec::new()).await {
            Ok(()) => Ok(true),
            Err(StoreError::Condition { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a new state in the place of the one that was read, and `more` with it.
    async fn write(&mut self, state: State, more: Vec<Write>) -> Result<(), StoreError> {
        let (guard, version) = next(Some(self.tracked.version));
        let item = row(self.project, self.cache_key, &state, version)?;
        let writes = std::iter::once(Write::Put(item, guard)).chain(more);
        self.calculator.records.transact(writes.collect()).await?;
        self.tracked = Tracked { state, version };
        Ok(())
    }

    /// Reads the state again; false where this worker no longer has the claim.
    async fn read_again(&mut self) -> Result<bool, StoreError> {
        let item = self.calculator.records.get(&keys::query_state(self.project, self.cache_key)).await?;
        let own = |it: &Tracked| it.state.generation == self.key.0 && it.state.claim == Some(self.claim);
        match Tracked::read(item.as_ref()).filter(own) {
            Some(tracked) => {
                self.tracked = tracked;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Shows that this worker is alive; false where it has lost the claim.
    async fn beat(&mut self, progress: Progress) -> Result<bool, StoreError> {
        for _ in 0..TRIES {
            let state = State {
                progress: Some(progress),
                seen_at: Some(machine_now()),
                ..self.tracked.state.clone()
            };
            match self.write(state, Vec::new()).await {
                Ok(()) => return Ok(true),
                // Somebody joined, cancelled or took over.
                Err(StoreError::Condition { .. }) => {
                    if !self.read_again().await? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// Does what follows from an attempt.
    async fn conclude(&mut self, attempt: Attempt, erasures: i64) -> Result<Outcome, StoreError> {
        let cause = match attempt {
            Attempt::Calculated(calculated, settings) => {
                let result =
                    self.calculator.result_item(self.project, settings, self.cache_key, &calculated).await;
                match result {
                    Ok(item) => return self.end(Some(item), None, erasures).await,
                    Err(StoreError::TooLarge) => return self.end(None, Some(too_large()), erasures).await,
                    Err(error) => {
                        tracing::warn!(%error, "a result could not be kept");
                        UNREACHABLE.to_owned()
                    }
                }
            }
            Attempt::Stored => return self.end(None, None, erasures).await,
            Attempt::Failed(failure) => return self.end(None, Some(failure), erasures).await,
            Attempt::Again(cause) => cause,
            Attempt::Lost => return Ok(Outcome::Dropped),
        };
        if self.is_last_attempt() {
            return self.give_up(cause).await;
        }
        self.release().await?;
        Ok(Outcome::Again)
    }

    /// Whether there is none after the one that was begun last.
    fn is_last_attempt(&self) -> bool {
        self.tracked.state.attempts >= ATTEMPTS_MAX
    }

    /// Ends the job without a result.
    async fn give_up(&mut self, cause: String) -> Result<Outcome, StoreError> {
        self.end(None, Some(Failure { message: Some(cause) }), 0).await
    }

    /// Gives the claim back.
    async fn release(&mut self) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let state = State { claim: None, ..self.tracked.state.clone() };
            match self.write(state, Vec::new()).await {
                Err(StoreError::Condition { .. }) if self.read_again().await? => {}
                Err(StoreError::Condition { .. }) => return Ok(()),
                other => return other,
            }
        }
        Ok(())
    }

    /// Ends the job, with a result or without.
    async fn end(
        &mut self,
        mut result: Option<Item>,
        mut failure: Option<Failure>,
        erasures: i64,
    ) -> Result<Outcome, StoreError> {
        for _ in 0..TRIES {
            let state = &self.tracked.state;
            let at = self.calculator.clock.now_for(state.start_time);
            let ended = state.ended(End { at, failure: failure.clone(), erasures }, machine_now());
            let mut more = vec![Write::Delete(self.key.row(), Guard::None)];
            more.extend(result.clone().map(|item| {
                let count = item.count;
                Write::Put(item, Guard::CountAtMost(count))
            }));
            if ended.end.is_none() {
                // One that waited for this end; the question is the same.
                more.push(Write::Put(job_row(ended.generation, self.job)?, Guard::None));
            }
            match self.write(ended, more).await {
                Ok(()) => return Ok(Outcome::Done),
                Err(StoreError::TooLarge) if result.take().is_some() => {
                    failure = Some(too_large());
                }
                // A later result is kept, which is as good.
                Err(error) if error.is_condition(RESULT_AT) => result = None,
                Err(StoreError::Condition { .. }) => {
                    // A job of which somebody else's claim is over is looked at again.
                    if self.tracked.state.claim != Some(self.claim) {
                        return Ok(Outcome::Again);
                    }
                    if !self.read_again().await? {
                        return Ok(Outcome::Dropped);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// Calculates, showing signs of life. Gives how often events had been erased before, too.
    async fn attempt(&mut self, job: &Job, limits: JobLimits, deadline: Instant) -> (Attempt, i64) {
        let begun = Instant::now();
        let (calculator, measured) = self.calculator.clone().measured();
        let state = &self.tracked.state;
        let now = state.pickup_time.unwrap_or(state.start_time);
        let forced = state.forced;
        let job = job.clone();
        let mut work = async move { calculator.outcome(&job, forced, now, deadline).await }.boxed();
        let mut ticks = tokio::time::interval_at(begun + limits.beat, limits.beat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive_at = Instant::now();
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                _ = ticks.tick() => match self.beat(measured.progress(begun.elapsed())).await {
                    Ok(true) => alive_at = Instant::now(),
                    Ok(false) => return (Attempt::Lost, 0),
                    // Others may take this worker for dead by now.
                    Err(_) if alive_at.elapsed() >= limits.lease.max(LEAST_PATIENCE) => {
                        return (Attempt::Again(UNREACHABLE.to_owned()), 0);
                    }
                    Err(error) => tracing::warn!(%error, "a sign of life could not be written"),
                },
            }
        }
    }
}

fn too_large() -> Failure {
    let message = "The result is too large to be kept. Ask for less, or with refresh=blocking.";
    Failure { message: Some(message.to_owned()) }
}

/// What is told where a result could not be written.
const UNREACHABLE: &str = "The store could not be reached.";
/// What is told where no attempt was done in its time.
const TOO_LONG: &str = "The calculation takes too long. Ask for less: a shorter range, or fewer events.";
/// Where the result stands in the transaction that ends a job.
const RESULT_AT: usize = 2;
/// A worker goes on for as long, although it cannot tell that it is alive.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

impl Calculator {
    /// What comes of a job's question, and how often events of the project had been erased before.
    async fn outcome(
        &self,
        job: &Job,
        forced: bool,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> (Attempt, i64) {
        let mut erasures = 0;
        let outcome = self.outcome_of(job, forced, now, deadline, &mut erasures).await;
        let attempt = outcome.unwrap_or_else(|error| match error.status().as_u16() {
            503 if is_out_of_time(&error) => Attempt::Again(TOO_LONG.to_owned()),
            503 => Attempt::Again(error.detail().to_owned()),
            status => Attempt::Failed(Failure { message: (status < 500).then(|| error.detail().to_owned()) }),
        });
        (attempt, erasures)
    }

    async fn outcome_of(
        &self,
        job: &Job,
        forced: bool,
        now: DateTime<Utc>,
        deadline: Instant,
        erasures: &mut i64,
    ) -> ApiResult<Attempt> {
        let Parsed::Query(query) = job.source.parse().map_err(refusal)? else {
            return Err(ApiError::internal(&"a job without a question"));
        };
        let asked = Asked::new(query, job.purpose, job.invalidation.as_deref());
        if asked.key != job.cache_key {
            // Written by another release, which means something else by it.
            return Ok(Attempt::Failed(Failure::default()));
        }
        let Some(project) = self.records.get(&keys::project(job.project)).await? else {
            return Ok(Attempt::Failed(Failure::default()));
        };
        let project: Project = project.body()?;
        let Read { stored, known, .. } = self.read(&project, &[&asked]).await?;
        *erasures = known.erasures();
        let used: Used = known.of(project.id, &named_by(&asked.query, Some(&project)))?;
        let settings = settings(&project, &asked.query, &used.digest, known.erasures());
        if !forced {
            let stored = stored.into_iter().flatten().find(|stored| stored.is_of(&settings, now));
            // One whose object is gone is calculated.
            let whole = match &stored {
                Some(stored) => self.whole(project.id, &asked.key, stored).await,
                None => None,
            };
            let stored = whole.and_then(|stored| stored.of(&settings, &asked.query, now));
            let class: Option<Freshness> =
                stored.map(|stored| class(&project, &asked.query, stored.last_refresh, now)).transpose()?;
            if decide(Refresh::Blocking, class).then == Then::Nothing {
                return Ok(Attempt::Stored);
            }
        }
        let calculated = self.calculate(&project, &asked.query, &used, now, deadline).await?;
        Ok(Attempt::Calculated(Box::new(calculated), settings))
    }
}
