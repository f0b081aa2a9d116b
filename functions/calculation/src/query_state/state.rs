//! The state of the background calculation of one query: one row per cache key.
//!
//! Must stay true: each start that does not join a running calculation gets its own generation, and a worker whose
//! generation is no longer that of the row stops without an effect; a calculation ends once; it is cancelled only when the
//! last of its waiters has cancelled. A request that needs a new calculation while one runs waits for the next one
//! ([`QueuedRun`]), which starts when the running one ends: however many such requests come, the running calculation is
//! finished and one more follows.

use chrono::{DateTime, Duration, Utc};
use pennon_analytics::refresh::BackgroundStart;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How long the status of an ended calculation is reported.
pub(crate) const STATUS_TTL: Duration = Duration::minutes(10);
/// A calculation that has not ended after this is abandoned: the next request starts another.
pub(crate) const RUN_TIME_MAX: Duration = Duration::hours(1);
/// A worker without a heartbeat for this long is not waited for.
const HEARTBEAT_TIMEOUT: Duration = Duration::seconds(15);
/// Most waiters in a row; beyond that the oldest is dropped.
const WAITERS_MAX: usize = 50;
/// Most earlier calculations in a row.
const PAST_RUNS_MAX: usize = 20;

/// The latest calculation of a query, and the earlier ones whose status is still reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueryState {
    /// Id of this calculation, unique for each start.
    pub generation: Uuid,
    /// It is calculated even where a fresh result is cached.
    pub forced: bool,
    /// When it was requested.
    pub start_time: DateTime<Utc>,
    /// When a worker began to calculate.
    pub pickup_time: Option<DateTime<Utc>>,
    /// How it ended.
    pub end: Option<RunEnd>,
    /// The number of attempts that were begun.
    pub attempts: u32,
    /// Id of the worker's claim.
    pub claim: Option<Uuid>,
    /// The worker's last heartbeat, by the machine's clock.
    pub seen_at: Option<DateTime<Utc>>,
    /// How far it is.
    pub progress: Option<QueryProgress>,
    /// A client received a 503 and has not fetched the result yet.
    #[serde(rename = "owed")]
    pub result_pending: bool,
    /// The requests that wait for it.
    #[serde(rename = "askers")]
    pub waiters: Vec<Waiter>,
    /// Earlier calculations, oldest first.
    pub past: Vec<PastRun>,
    /// The calculation that starts when this one ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<QueuedRun>,
}

/// A calculation that starts when the running one ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuedRun {
    pub generation: Uuid,
    forced: bool,
    /// When it was requested.
    start_time: DateTime<Utc>,
    #[serde(rename = "owed")]
    result_pending: bool,
    #[serde(rename = "askers")]
    waiters: Vec<Waiter>,
}

/// A request that waits for a calculation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiter {
    /// The client's own id of the calculation, else the cache key.
    pub id: String,
    /// The insight that the query is part of.
    pub insight_id: Option<u64>,
    /// The dashboard that the insight is shown on.
    pub dashboard_id: Option<u64>,
}

/// How a calculation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunEnd {
    /// When.
    pub at: DateTime<Utc>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// The project's erasure counter, read before its events.
    pub erasures: i64,
}

/// Why a calculation gave no result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The cause, where clients may see it.
    pub message: Option<String>,
}

/// How far a calculation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryProgress {
    /// Bytes read from the object store.
    pub bytes_read: u64,
    /// Events processed.
    pub rows_read: u64,
    /// Events found by the scans so far.
    pub estimated_rows_total: u64,
    /// Milliseconds since it began.
    pub time_elapsed: u64,
    /// Microseconds of CPU time.
    pub active_cpu_time: u64,
}

/// An earlier calculation of the same query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastRun {
    generation: Uuid,
    start_time: DateTime<Utc>,
    pickup_time: Option<DateTime<Utc>>,
    end: RunEnd,
    /// A client received a 503 and has not fetched its result yet.
    #[serde(rename = "owed", default)]
    result_pending: bool,
}

/// One calculation of a query: running, queued or past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunSummary {
    pub generation: Uuid,
    pub start_time: DateTime<Utc>,
    pub pickup_time: Option<DateTime<Utc>>,
    pub end: Option<RunEnd>,
    pub progress: Option<QueryProgress>,
}

impl RunSummary {
    /// Whether its status is still reported at `now`.
    fn is_reported(&self, now: DateTime<Utc>) -> bool {
        match &self.end {
            Some(end) => now < end.at + STATUS_TTL,
            None => now < self.start_time + RUN_TIME_MAX,
        }
    }
}

/// The effect of a [`StartRequest`] on a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Transition {
    /// Nothing is written: the request waits already, or the failure is reported again.
    Unchanged(QueryState),
    /// The request waits for the running calculation.
    Joined(QueryState),
    /// A new calculation; it needs a job.
    Started(QueryState),
    /// The request waits for the queued calculation, under this id.
    Queued(QueryState, String),
}

/// A request to start a background calculation.
#[derive(Debug, Clone)]
pub(crate) struct StartRequest {
    /// How to start it.
    pub start: BackgroundStart,
    /// The request that waits for it.
    pub waiter: Waiter,
    /// The client receives a 503 and will fetch the result later.
    pub result_pending: bool,
    /// The instant of the request.
    pub now: DateTime<Utc>,
}

impl StartRequest {
    /// Adds this request to the queued calculation, and returns the id it waits under. A waiter without an id of its own gets
    /// the generation as its id, because the cache key stands for the running calculation.
    fn enqueue(&self, queued: Option<&QueuedRun>, generation: Uuid, cache_key: &str) -> (QueuedRun, String) {
        let mut next = queued.cloned().unwrap_or_else(|| QueuedRun {
            generation,
            forced: false,
            start_time: self.now,
            result_pending: false,
            waiters: Vec::new(),
        });
        next.forced |= self.start.forced;
        next.result_pending |= self.result_pending;
        let mut waiter = self.waiter.clone();
        if waiter.id == cache_key {
            waiter.id = next.generation.to_string();
        }
        let id = waiter.id.clone();
        add_waiter(&mut next.waiters, waiter);
        (next, id)
    }
}

/// Adds a waiter, unless its id is there.
fn add_waiter(waiters: &mut Vec<Waiter>, waiter: Waiter) {
    if !waiters.iter().any(|known| known.id == waiter.id) {
        let surplus = (waiters.len() + 1).saturating_sub(WAITERS_MAX);
        waiters.drain(..surplus);
        waiters.push(waiter);
    }
}

impl QueryState {
    /// The effect of `request` on the row of the query `cache_key`. `generation` is the id of a new calculation.
    pub fn transition(
        stored: Option<&QueryState>,
        request: &StartRequest,
        generation: Uuid,
        cache_key: &str,
    ) -> Transition {
        let Some(state) = stored else {
            return Transition::Started(QueryState::new(request, generation, Vec::new()));
        };
        let has_begun = state.pickup_time.is_some();
        if state.is_running(request.now) {
            let mut changed = state.clone();
            if request.start.anew && has_begun {
                let (next, id) = request.enqueue(state.next.as_ref(), generation, cache_key);
                changed.next = Some(next);
                return Transition::Queued(changed, id);
            }
            // A calculation that no worker has picked up yet will see every event that a new one would.
            changed.forced |= request.start.forced && !has_begun;
            changed.result_pending |= request.result_pending;
            add_waiter(&mut changed.waiters, request.waiter.clone());
            return if changed == *state {
                Transition::Unchanged(changed)
            } else {
                Transition::Joined(changed)
            };
        }
        let is_waiter = state.waiters.iter().any(|waiter| waiter.id == request.waiter.id);
        if !request.start.anew && is_waiter && state.has_failed(request.now) {
            return Transition::Unchanged(state.clone());
        }
        let mut new = QueryState::new(request, generation, state.reported_history(request.now));
        if let Some(next) = &state.next {
            // The running calculation was abandoned: the queued one takes its place.
            new = QueryState { generation: next.generation, waiters: next.waiters.clone(), ..new };
            (new.forced, new.result_pending) =
                (new.forced | next.forced, new.result_pending | next.result_pending);
            add_waiter(&mut new.waiters, request.waiter.clone());
        }
        Transition::Started(new)
    }

    fn new(request: &StartRequest, generation: Uuid, past: Vec<PastRun>) -> QueryState {
        QueryState {
            generation,
            forced: request.start.forced,
            start_time: request.now,
            pickup_time: None,
            end: None,
            attempts: 0,
            claim: None,
            seen_at: None,
            progress: None,
            result_pending: request.result_pending,
            waiters: vec![request.waiter.clone()],
            past,
            next: None,
        }
    }

    /// The past calculations of the state that replaces this one: its own, if it has ended, and its past.
    fn reported_history(&self, now: DateTime<Utc>) -> Vec<PastRun> {
        let own = self.end.clone().map(|end| PastRun {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end,
            result_pending: self.result_pending,
        });
        let mut past = self.past.clone();
        past.extend(own);
        past.retain(|run| run.summary().is_reported(now));
        past.drain(..past.len().saturating_sub(PAST_RUNS_MAX));
        past
    }

    /// Whether it has started and not ended, and is not abandoned.
    pub fn is_running(&self, now: DateTime<Utc>) -> bool {
        self.end.is_none() && self.current_run().is_reported(now)
    }

    /// Whether it has failed within [`STATUS_TTL`].
    pub fn has_failed(&self, now: DateTime<Utc>) -> bool {
        self.failure().is_some() && self.current_run().is_reported(now)
    }

    /// Whether a worker calculates it or is about to: the last heartbeat, or the start where there is none, is younger than
    /// [`HEARTBEAT_TIMEOUT`]. `now` is the instant of the request, `machine` that of the machine's clock.
    pub fn is_alive(&self, now: DateTime<Utc>, machine: DateTime<Utc>) -> bool {
        let quiet = match self.seen_at {
            // Absolute: a heartbeat in the future comes from a clock that was set back, and proves nothing.
            Some(seen_at) => (machine - seen_at).abs(),
            None => now - self.start_time,
        };
        self.end.is_none() && quiet < HEARTBEAT_TIMEOUT
    }

    fn failure(&self) -> Option<&Failure> {
        self.end.as_ref()?.failure.as_ref()
    }

    /// The latest calculation.
    pub fn current_run(&self) -> RunSummary {
        RunSummary {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end: self.end.clone(),
            progress: self.progress,
        }
    }

    /// The calculation of a generation; `None` where its status is no longer reported.
    pub fn get_run(&self, generation: Uuid, now: DateTime<Utc>) -> Option<RunSummary> {
        let next = self.next.as_ref().map(QueuedRun::summary);
        let all =
            std::iter::once(self.current_run()).chain(next).chain(self.past.iter().map(PastRun::summary));
        all.into_iter().find(|run| run.generation == generation && run.is_reported(now))
    }

    /// The ended calculations for which a client received a 503: pickup time and end.
    pub fn pending_results(&self) -> impl Iterator<Item = (Option<DateTime<Utc>>, &RunEnd)> {
        let own = self.end.as_ref().filter(|_| self.result_pending).map(|end| (self.pickup_time, end));
        let past = self.past.iter().filter(|past| past.result_pending);
        own.into_iter().chain(past.map(|past| (past.pickup_time, &past.end)))
    }

    /// The state after a client has fetched the results of all ended calculations.
    pub fn with_results_fetched(&self) -> QueryState {
        let mut fetched = self.clone();
        fetched.result_pending &= fetched.end.is_none();
        fetched.past.iter_mut().for_each(|past| past.result_pending = false);
        fetched
    }

    /// The calculation to report beside a response that starts nothing: one that is running, or that has failed after the
    /// returned result was calculated (`last_refresh`).
    pub fn run_beside_result(
        &self,
        last_refresh: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Option<RunSummary> {
        let run = self.current_run();
        let is_relevant = match &run.end {
            None => true,
            Some(RunEnd { failure: None, .. }) => false,
            Some(RunEnd { at, .. }) => last_refresh.is_none_or(|last_refresh| last_refresh < *at),
        };
        (is_relevant && run.is_reported(now)).then_some(run)
    }

    /// The id under which the calculation is reported to a client that would call it `own_id`.
    pub fn reported_id(&self, own_id: &str, cache_key: &str) -> String {
        let is_waiter = |id: &str| self.waiters.iter().any(|waiter| waiter.id == id);
        match self.waiters.last() {
            Some(last) if !is_waiter(own_id) && !is_waiter(cache_key) => last.id.clone(),
            _ if is_waiter(own_id) => own_id.to_owned(),
            _ => cache_key.to_owned(),
        }
    }

    /// Whether `id` waits for the running or the queued calculation.
    pub fn has_waiter(&self, id: &str) -> bool {
        let next = self.next.iter().flat_map(|next| &next.waiters);
        self.waiters.iter().chain(next).any(|waiter| waiter.id == id)
    }

    /// The state without the waiter `id`; `None` where nothing is left to report. Its generation differs if no client waits
    /// for the running calculation any more: it is that of the queued one, else of the last one that ended.
    pub fn without_waiter(&self, id: &str, machine: DateTime<Utc>) -> Option<QueryState> {
        let mut left = self.clone();
        left.waiters.retain(|waiter| waiter.id != id);
        if let Some(next) = &mut left.next {
            next.waiters.retain(|waiter| waiter.id != id);
        }
        left.next = left.next.filter(|next| !next.waiters.is_empty());
        if !left.waiters.is_empty() {
            return Some(left);
        }
        if let Some(next) = left.next {
            // A calculation that has ended is still reported.
            let past = self.reported_history(next.start_time);
            return Some(next.into_state(past, machine));
        }
        let last = left.past.pop()?;
        Some(QueryState {
            generation: last.generation,
            forced: false,
            start_time: last.start_time,
            pickup_time: last.pickup_time,
            end: Some(last.end),
            attempts: 0,
            claim: None,
            seen_at: None,
            progress: None,
            result_pending: last.result_pending,
            waiters: Vec::new(),
            past: left.past,
            next: None,
        })
    }

    /// The state when a worker begins an attempt.
    pub fn with_claim(&self, claim: Uuid, now: DateTime<Utc>, machine: DateTime<Utc>) -> QueryState {
        QueryState {
            claim: Some(claim),
            attempts: self.attempts + 1,
            pickup_time: Some(now),
            seen_at: Some(machine),
            progress: None,
            ..self.clone()
        }
    }

    /// The state when the calculation has ended: that of the queued one, if there is one.
    pub fn with_end(&self, end: RunEnd, machine: DateTime<Utc>) -> QueryState {
        let at = end.at;
        let mut ended = QueryState { claim: None, end: Some(end), ..self.clone() };
        match ended.next.take() {
            Some(next) => next.into_state(ended.reported_history(at), machine),
            None => ended,
        }
    }
}

impl QueuedRun {
    fn summary(&self) -> RunSummary {
        RunSummary {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: None,
            end: None,
            progress: None,
        }
    }

    /// The state when it is started; it needs a job. `machine` counts as a heartbeat, so that it gets the full
    /// [`HEARTBEAT_TIMEOUT`] to be picked up.
    fn into_state(self, past: Vec<PastRun>, machine: DateTime<Utc>) -> QueryState {
        QueryState {
            generation: self.generation,
            forced: self.forced,
            start_time: self.start_time,
            pickup_time: None,
            end: None,
            attempts: 0,
            claim: None,
            seen_at: Some(machine),
            progress: None,
            result_pending: self.result_pending,
            waiters: self.waiters,
            past,
            next: None,
        }
    }
}

impl PastRun {
    fn summary(&self) -> RunSummary {
        RunSummary {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end: Some(self.end.clone()),
            progress: None,
        }
    }
}

#[cfg(test)]
mod tests;
