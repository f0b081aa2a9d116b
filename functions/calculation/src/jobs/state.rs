//! What is known of the calculation of one question in the background: one row a question, under its cache key.
//!
//! Must stay true: each start that does not join another has a generation of its own, and whoever works for a generation
//! that is no longer the row's stops and leaves nothing; a calculation ends once; it is given up only when the last of
//! those who asked for it has cancelled. Who wants it anew while it goes on waits for the one after it ([`Next`]), which
//! begins when it ends: however often that happens, what was begun is brought to an end, and one more follows.

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
    /// The one that begins when this one ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// A calculation that waits for the end of the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Next {
    pub generation: Uuid,
    forced: bool,
    /// When it was asked for.
    start_time: DateTime<Utc>,
    owed: bool,
    askers: Vec<Asker>,
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
    end: End,
    /// Somebody was told to come again for its result, and has not yet.
    #[serde(default)]
    owed: bool,
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
    /// The asker waits for the one after that, by this name.
    Waits(State, String),
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

impl Wish {
    /// What waits for the end of another calculation for its sake. One who has no name of its own is told of it by its
    /// number: the question's own name stands for the one that is under way.
    fn waiting(&self, before: Option<&Next>, generation: Uuid, cache_key: &str) -> (Next, String) {
        let mut next = before.cloned().unwrap_or_else(|| Next {
            generation,
            forced: false,
            start_time: self.now,
            owed: false,
            askers: Vec::new(),
        });
        next.forced |= self.start.forced;
        next.owed |= self.owed;
        let mut asker = self.asker.clone();
        if asker.id == cache_key {
            asker.id = next.generation.to_string();
        }
        let id = asker.id.clone();
        add(&mut next.askers, asker);
        (next, id)
    }
}

/// Adds somebody who is not there yet.
fn add(askers: &mut Vec<Asker>, asker: Asker) {
    if !askers.iter().any(|known| known.id == asker.id) {
        let surplus = (askers.len() + 1).saturating_sub(ASKERS_MAX);
        askers.drain(..surplus);
        askers.push(asker);
    }
}

impl State {
    /// What becomes of the row of the question `cache_key` when `wish` is granted.
    pub fn planned(stored: Option<&State>, wish: &Wish, generation: Uuid, cache_key: &str) -> Planned {
        let Some(state) = stored else { return Planned::New(State::new(wish, generation, Vec::new())) };
        let has_begun = state.pickup_time.is_some();
        if state.runs(wish.now) {
            let mut changed = state.clone();
            if wish.start.anew && has_begun {
                let (next, id) = wish.waiting(state.next.as_ref(), generation, cache_key);
                changed.next = Some(next);
                return Planned::Waits(changed, id);
            }
            // One that nobody has begun with will see everything that a new one would.
            changed.forced |= wish.start.forced && !has_begun;
            changed.owed |= wish.owed;
            add(&mut changed.askers, wish.asker.clone());
            return if changed == *state { Planned::Known(changed) } else { Planned::Joined(changed) };
        }
        let asked = state.askers.iter().any(|asker| asker.id == wish.asker.id);
        if !wish.start.anew && asked && state.has_failed(wish.now) {
            return Planned::Known(state.clone());
        }
        let mut new = State::new(wish, generation, state.left(wish.now));
        if let Some(next) = &state.next {
            // Those who waited for one that did not end wait no longer.
            new = State { generation: next.generation, askers: next.askers.clone(), ..new };
            (new.forced, new.owed) = (new.forced | next.forced, new.owed | next.owed);
            add(&mut new.askers, wish.asker.clone());
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
            next: None,
        }
    }

    /// What is told of this one and those before, when another one takes its place.
    fn left(&self, now: DateTime<Utc>) -> Vec<Past> {
        let own = self.end.clone().map(|end| Past {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: self.pickup_time,
            end,
            owed: self.owed,
        });
        let mut past = self.past.clone();
        past.extend(own);
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

    /// Whether somebody is at it, or will be at once, by the instant of a request and the machine's clock.
    pub fn is_alive(&self, now: DateTime<Utc>, machine: DateTime<Utc>) -> bool {
        let quiet = match self.seen_at {
            // A clock that was set back leaves a mark of the future, which says nothing of who is alive.
            Some(seen_at) => (machine - seen_at).abs(),
            None => now - self.start_time,
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

    /// The calculation of a generation; none where nothing is told of it any more.
    pub fn seen_as(&self, generation: Uuid, now: DateTime<Utc>) -> Option<Seen> {
        let next = self.next.as_ref().map(Next::seen);
        let all = std::iter::once(self.seen()).chain(next).chain(self.past.iter().map(Past::seen));
        all.into_iter().find(|seen| seen.generation == generation && seen.is_told(now))
    }

    /// The calculations that ended and whose result somebody was told to come again for.
    pub fn owing(&self) -> impl Iterator<Item = (Option<DateTime<Utc>>, &End)> {
        let own = self.end.as_ref().filter(|_| self.owed).map(|end| (self.pickup_time, end));
        let past = self.past.iter().filter(|past| past.owed).map(|past| (past.pickup_time, &past.end));
        own.into_iter().chain(past)
    }

    /// The row when whoever was told to come again for a result that is there has come.
    pub fn with_promises_kept(&self) -> State {
        let mut kept = self.clone();
        kept.owed &= kept.end.is_none();
        kept.past.iter_mut().for_each(|past| past.owed = false);
        kept
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

    /// Whether `id` waits for this one or for the one after it.
    pub fn is_asked_by(&self, id: &str) -> bool {
        let next = self.next.iter().flat_map(|next| &next.askers);
        self.askers.iter().chain(next).any(|asker| asker.id == id)
    }

    /// The row without the asker `id`: none where nothing is left to be told. Of another generation where nobody waits for
    /// this one any more; that is the next one, or the last one that ended.
    pub fn without(&self, id: &str, machine: DateTime<Utc>) -> Option<State> {
        let mut left = self.clone();
        left.askers.retain(|asker| asker.id != id);
        if let Some(next) = &mut left.next {
            next.askers.retain(|asker| asker.id != id);
        }
        left.next = left.next.filter(|next| !next.askers.is_empty());
        if !left.askers.is_empty() {
            return Some(left);
        }
        if let Some(next) = left.next {
            // One that had ended is still told of.
            let past = self.left(next.start_time);
            return Some(next.begun(past, machine));
        }
        let last = left.past.pop()?;
        Some(State {
            generation: last.generation,
            forced: false,
            start_time: last.start_time,
            pickup_time: last.pickup_time,
            end: Some(last.end),
            attempts: 0,
            claim: None,
            seen_at: None,
            progress: None,
            owed: last.owed,
            askers: Vec::new(),
            past: left.past,
            next: None,
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

    /// The row when it is over; that of the next one where one waits for this.
    pub fn ended(&self, end: End, machine: DateTime<Utc>) -> State {
        let at = end.at;
        let mut ended = State { claim: None, end: Some(end), ..self.clone() };
        match ended.next.take() {
            Some(next) => next.begun(ended.left(at), machine),
            None => ended,
        }
    }
}

impl Next {
    fn seen(&self) -> Seen {
        Seen {
            generation: self.generation,
            start_time: self.start_time,
            pickup_time: None,
            end: None,
            progress: None,
        }
    }

    /// The row when its turn has come; it needs a worker. From then on it is waited for as one that was just started.
    fn begun(self, past: Vec<Past>, machine: DateTime<Utc>) -> State {
        State {
            generation: self.generation,
            forced: self.forced,
            start_time: self.start_time,
            pickup_time: None,
            end: None,
            attempts: 0,
            claim: None,
            seen_at: Some(machine),
            progress: None,
            owed: self.owed,
            askers: self.askers,
            past,
            next: None,
        }
    }
}

impl Past {
    fn seen(&self) -> Seen {
        Seen {
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
