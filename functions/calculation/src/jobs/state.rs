//! What is known of the calculation of one question in the background: one row a question, under its cache key.
//!
//! Must stay true: each start that does not join another has a generation of its own, and whoever works for a generation
//! that is no longer the row's stops and leaves nothing; a calculation ends once; it is given up only when the last of
//! those who asked for it has cancelled.

use chrono::{DateTime, Duration, Utc};
use pennon_engine::query::Start;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How long it is told how a calculation ended.
pub(crate) const LIFETIME: Duration = Duration::minutes(10);
/// After this a calculation that has not ended is as good as none: whoever asks starts another.
pub(crate) const RUNS_AT_MOST: Duration = Duration::hours(1);
/// Who has not been heard of for this long is not waited for.
const QUIET_AT_MOST: Duration = Duration::seconds(15);
/// Most askers whose names a row carries; with more of them the first is no longer waited for.
const ASKERS_MAX: usize = 50;
/// Most earlier calculations of a question that are told of.
const PAST_MAX: usize = 20;

/// The calculation that was started last, and what still can be told of those before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Which start it is.
    pub generation: Uuid,
    /// It is calculated even where a fresh result is stored.
    pub forced: bool,
    /// When it was asked for.
    pub start_time: DateTime<Utc>,
    /// When somebody began to calculate.
    pub pickup_time: Option<DateTime<Utc>>,
    /// How it ended.
    pub end: Option<End>,
    /// How often somebody has begun.
    pub attempts: u32,
    /// Who calculates.
    pub claim: Option<Uuid>,
    /// When the one who calculates last said so, by the machine's clock.
    pub seen_at: Option<DateTime<Utc>>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// A request was told to come again for the result.
    pub owed: bool,
    /// Those who asked for it.
    pub askers: Vec<Asker>,
    /// Earlier calculations, oldest first.
    pub past: Vec<Past>,
}

/// Somebody who asked for a calculation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asker {
    /// By which name: the caller's own, else the cache key.
    pub id: String,
    /// For which insight.
    pub insight_id: Option<u64>,
    /// On which dashboard.
    pub dashboard_id: Option<u64>,
}

/// How a calculation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// When.
    pub at: DateTime<Utc>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// How often events of the project had been erased before it.
    pub erasures: i64,
}

/// Why a calculation gave no result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What may be shown of the cause.
    pub message: Option<String>,
}

/// How far a calculation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes read from the object store.
    pub bytes_read: u64,
    /// Events that were counted.
    pub rows_read: u64,
    /// Events that are to be counted, as far as they were looked up.
    pub estimated_rows_total: u64,
    /// Milliseconds since it began.
    pub time_elapsed: u64,
    /// Microseconds that cores were busy with counting.
    pub active_cpu_time: u64,
}

/// An earlier calculation of the same question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Past {
    generation: Uuid,
    start_time: DateTime<Utc>,
    pickup_time: Option<DateTime<Utc>>,
    /// None where another one took its place; what becomes of that one is what became of it.
    end: Option<End>,
}

/// What can be told of one calculation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which one.
    pub generation: Uuid,
    pub start_time: DateTime<Utc>,
    pub pickup_time: Option<DateTime<Utc>>,
    pub end: Option<End>,
    pub progress: Option<Progress>,
}

impl Seen {
    /// Whether it is told at `now`.
    fn is_told(&self, now: DateTime<Utc>) -> bool {
        match &self.end {
            Some(end) => now < end.at + LIFETIME,
            None => now < self.start_time + RUNS_AT_MOST,
        }
    }
}

/// What a start comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Planned {
    /// Nothing is written: it is known already.
    Known(State),
    /// The asker waits for the one that is under way.
    Joined(State),
    /// A new one; it needs a worker.
    New(State),
}

/// What starts a calculation.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// How.
    pub start: Start,
    /// For whom.
    pub asker: Asker,
    /// The asker is told to come again for the result.
    pub owed: bool,
    /// When.
    pub now: DateTime<Utc>,
}

impl State {
    /// What becomes of the row when `wish` is granted.
    pub fn planned(stored: Option<&State>, wish: &Wish, generation: Uuid) -> Planned {
        let Some(state) = stored else { return Planned::New(State::new(wish, generation, Vec::new())) };
        let runs = state.runs(wish.now);
        let has_begun = state.pickup_time.is_some();
        let asked = state.askers.iter().any(|asker| asker.id == wish.asker.id);
        // One that nobody has begun with will see everything that a new one would.
        if runs && (!wish.start.anew || !has_begun) {
            let mut joined = state.clone();
            joined.forced |= wish.start.forced && !has_begun;
            joined.owed |= wish.owed;
            joined.add(wish.asker.clone());
            return if joined == *state { Planned::Known(joined) } else { Planned::Joined(joined) };
        }
        if !wish.start.anew && asked && state.has_failed(wish.now) {
            return Planned::Known(state.clone());
        }
        let mut new = State::new(wish, generation, state.left(wish.now));
        if runs {
            // Those who waited for the one before wait for this one.
            new.askers.clone_from(&state.askers);
            new.owed |= state.owed;
            new.add(wish.asker.clone());
        }
        Planned::New(new)
    }

    fn new(wish: &Wish, generation: Uuid, past: Vec<Past>) -> State {
        State {
            generation,
            forced: wish.start.forced,
            start_time: wish.now,
            pickup_time: None,
            end: None,
            attempts: 0,
            claim: None,
            seen_at: None,
            progress: None,
            owed: wish.owed,
            askers: vec![wish.asker.clone()],
            past,
        }
    }

    fn add(&mut self, asker: Asker) {
        if !self.askers.iter().any(|known| known.id == asker.id) {
            let surplus = (self.askers.len() + 1).saturating_sub(ASKERS_MAX);
            self.askers.drain(..surplus);
            self.askers.push(asker);
        }
    }

    /// What is told of this one and those before, when another one takes its place.
    fn left(&self, now: DateTime<Utc>) -> Vec<Past> {
        let own = Past {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end: self.end.clone(),
        };
        let mut past = self.past.clone();
        past.push(own);
        past.retain(|one| one.seen().is_told(now));
        past.drain(..past.len().saturating_sub(PAST_MAX));
        past
    }

    /// Whether it is under way.
    pub fn runs(&self, now: DateTime<Utc>) -> bool {
        self.end.is_none() && self.seen().is_told(now)
    }

    /// Whether it has failed, not long ago.
    pub fn has_failed(&self, now: DateTime<Utc>) -> bool {
        self.failure().is_some() && self.seen().is_told(now)
    }

    /// Whether it ended with a result.
    pub fn has_succeeded(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.failure.is_none())
    }

    /// Whether somebody is at it, or will be at once, by the instant of a request and the machine's clock.
    pub fn is_alive(&self, now: DateTime<Utc>, machine: DateTime<Utc>) -> bool {
        let quiet = match (self.claim, self.seen_at) {
            (Some(_), Some(seen_at)) => machine - seen_at,
            _ => now - self.start_time,
        };
        self.end.is_none() && quiet < QUIET_AT_MOST
    }

    fn failure(&self) -> Option<&Failure> {
        self.end.as_ref()?.failure.as_ref()
    }

    /// The present calculation.
    pub fn seen(&self) -> Seen {
        Seen {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end: self.end.clone(),
            progress: self.progress,
        }
    }

    /// The calculation of a generation, or the one that took its place; none where nothing is told of it any more.
    pub fn seen_as(&self, generation: Uuid, now: DateTime<Utc>) -> Option<Seen> {
        let past = || self.past.iter().find(|past| past.generation == generation);
        let seen = match generation == self.generation {
            true => self.seen(),
            false => match past()? {
                ended if ended.end.is_some() => ended.seen(),
                _ => self.seen(),
            },
        };
        seen.is_told(now).then_some(seen)
    }

    /// What is told beside an answer that starts nothing: that it is under way, or has failed since the result of
    /// `stored` was calculated.
    pub fn told_beside(&self, stored: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<Seen> {
        let seen = self.seen();
        let tells = match &seen.end {
            None => true,
            Some(End { failure: None, .. }) => false,
            Some(End { at, .. }) => stored.is_none_or(|stored| stored < *at),
        };
        (tells && seen.is_told(now)).then_some(seen)
    }

    /// By which name it is told of to somebody who would call it `own`.
    pub fn id_for(&self, own: &str, cache_key: &str) -> String {
        let known = |id: &str| self.askers.iter().any(|asker| asker.id == id);
        match self.askers.last() {
            Some(last) if !known(own) && !known(cache_key) => last.id.clone(),
            _ if known(own) => own.to_owned(),
            _ => cache_key.to_owned(),
        }
    }

    /// The row without the asker `id`: none where nothing is left to be told.
    pub fn without(&self, id: &str) -> Option<State> {
        let mut left = self.clone();
        left.askers.retain(|asker| asker.id != id);
        if !left.askers.is_empty() {
            return Some(left);
        }
        let at = left.past.iter().rposition(|past| past.end.is_some())?;
        let last = left.past.remove(at);
        Some(State {
            generation: last.generation,
            forced: false,
            start_time: last.start_time,
            pickup_time: last.pickup_time,
            end: last.end,
            attempts: 0,
            claim: None,
            seen_at: None,
            progress: None,
            owed: false,
            askers: Vec::new(),
            past: left.past.into_iter().filter(|past| past.end.is_some()).collect(),
        })
    }

    /// The row when somebody begins.
    pub fn claimed(&self, claim: Uuid, now: DateTime<Utc>, machine: DateTime<Utc>) -> State {
        State {
            claim: Some(claim),
            attempts: self.attempts + 1,
            pickup_time: Some(now),
            seen_at: Some(machine),
            progress: None,
            ..self.clone()
        }
    }

    /// The row when it is over.
    pub fn ended(&self, end: End) -> State {
        State { claim: None, end: Some(end), ..self.clone() }
    }
}

impl Past {
    fn seen(&self) -> Seen {
        Seen {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end: self.end.clone(),
            progress: None,
        }
    }
}

#[cfg(test)]
mod tests;
