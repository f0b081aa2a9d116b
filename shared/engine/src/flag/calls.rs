//! When applications last called flags: SDKs send an event `$feature_flag_called` for each call, and a flag's
//! `last_called_at` is the time of the latest.
//!
//! Must stay true: a stored time only moves forward, so that the same events may be counted any number of times and in any
//! order; the number of flags with a stored time is bounded; a time in the future is stored as now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Flag;

/// The event that an SDK sends for each call of a flag.
pub const CALL_EVENT: &str = "$feature_flag_called";
/// The property of a call that has the key of the flag.
pub const CALLED_KEY: &str = "$feature_flag";

/// Most flags of a project whose latest call is stored: all of them fit into one item of the table. Beyond that the flags
/// that were called longest ago are dropped.
pub const FLAGS_MAX: usize = 30_000;

/// The latest call of each flag key, in microseconds since the epoch, as events have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallsByKey(HashMap<Box<str>, i64>);

impl CallsByKey {
    /// Adds a call of `key`.
    pub fn add(&mut self, key: &str, at: i64) {
        match self.0.get_mut(key) {
            Some(latest) => *latest = at.max(*latest),
            None => drop(self.0.insert(key.into(), at)),
        }
    }

    /// Adds all calls of `other`.
    pub fn merge(&mut self, other: &CallsByKey) {
        other.iter().for_each(|(key, at)| self.add(key, at));
    }

    /// The latest call of `key`.
    pub fn get(&self, key: &str) -> Option<i64> {
        self.0.get(key).copied()
    }

    /// Keys and their latest calls, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(key, at)| (&**key, *at))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The latest call of each flag of a project by its id, in microseconds since the epoch: what is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCalls {
    latest: BTreeMap<i64, i64>,
    /// The newest batch of captured events whose calls are counted, and with it all older ones; names of batches sort by
    /// their arrival. Batches stay readable for a while after that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    counted_to: String,
}

impl StoredCalls {
    /// Moves the latest call of `flag` forward to `at`, or to `now` where that is earlier. False where it was no later.
    pub fn advance(&mut self, flag: i64, at: i64, now: i64) -> bool {
        let at = at.min(now);
        if self.latest.get(&flag).is_some_and(|latest| *latest >= at) {
            return false;
        }
        self.latest.insert(flag, at);
        true
    }

    /// Notes that the batches up to `batch` are counted. False where they were already.
    pub fn count_to(&mut self, batch: &str) -> bool {
        let is_later = batch > self.counted_to.as_str();
        if is_later {
            batch.clone_into(&mut self.counted_to);
        }
        is_later
    }

    /// Whether the calls of `batch` are counted.
    pub fn has_counted(&self, batch: &str) -> bool {
        batch <= self.counted_to.as_str()
    }

    /// Drops the flags that were called longest ago, down to `most`.
    pub fn truncate(&mut self, most: usize) {
        let surplus = self.latest.len().saturating_sub(most);
        if surplus > 0 {
            let mut oldest: Vec<(i64, i64)> = self.latest.iter().map(|(flag, at)| (*at, *flag)).collect();
            oldest.select_nth_unstable(surplus - 1);
            oldest.truncate(surplus);
            for (_, flag) in oldest {
                self.latest.remove(&flag);
            }
        }
    }

    /// The latest call of `flag`.
    pub fn get(&self, flag: i64) -> Option<i64> {
        self.latest.get(&flag).copied()
    }
}

/// What is known of a project's calls: what is stored by flag, and events that are not counted there yet, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownCalls {
    /// What is stored.
    pub stored: StoredCalls,
    /// The events that wait to be counted.
    pub waiting: CallsByKey,
}

/// The calls that are known when a request is answered.
#[derive(Debug, Clone)]
pub struct CallTimes {
    known: Arc<KnownCalls>,
    /// A flag whose latest call the request itself has stored.
    advanced: Option<(i64, i64)>,
    now: i64,
}

/// Which flag, and what its own record says.
#[derive(Debug, Clone, Copy)]
pub struct CalledFlag<'a> {
    /// Its id.
    pub id: i64,
    /// Its key.
    pub key: &'a str,
    /// Whether it is deleted: events then name another flag of that key, or none.
    pub deleted: bool,
    /// The time in its record, which callers may set.
    pub recorded: Option<DateTime<Utc>>,
}

impl CallTimes {
    /// The calls that are known at `now`.
    pub fn new(known: Arc<KnownCalls>, now: DateTime<Utc>) -> CallTimes {
        CallTimes { known, advanced: None, now: now.timestamp_micros() }
    }

    /// No calls.
    pub fn none() -> CallTimes {
        CallTimes { known: Arc::default(), advanced: None, now: i64::MAX }
    }

    /// When `flag` was last called: the latest of its record, of what is stored and of waiting events.
    pub fn last_called_at(&self, flag: CalledFlag<'_>) -> Option<DateTime<Utc>> {
        let waiting = if flag.deleted { None } else { self.known.waiting.get(flag.key) };
        let called = self.stored(flag.id).max(waiting.map(|at| at.min(self.now)));
        called.and_then(DateTime::from_timestamp_micros).max(flag.recorded)
    }

    /// The latest waiting call of `key`, where it is later than what is stored of `flag`.
    pub fn waiting_of(&self, flag: i64, key: &str) -> Option<i64> {
        let at = self.known.waiting.get(key)?.min(self.now);
        self.stored(flag).is_none_or(|stored| stored < at).then_some(at)
    }

    /// Notes that the request has stored a call of `flag`.
    pub fn advance(&mut self, flag: i64, at: i64) {
        self.advanced = Some((flag, at));
    }

    fn stored(&self, flag: i64) -> Option<i64> {
        let advanced = self.advanced.filter(|(id, _)| *id == flag).map(|(_, at)| at);
        self.known.stored.get(flag).max(advanced)
    }
}

impl Flag {
    /// When it was last called, as far as its record and `calls` say.
    pub fn latest_call(&self, calls: &CallTimes) -> Option<DateTime<Utc>> {
        let (deleted, recorded) = (self.deleted, self.last_called_at);
        calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: i64 = 1_000;

    fn instant(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap()
    }

    #[test]
    fn a_stored_call_moves_forward_only_and_never_beyond_now() {
        let mut stored = StoredCalls::default();
        assert!(stored.advance(1, 500, NOW));
        assert!(!stored.advance(1, 500, NOW), "the same event again");
        assert!(!stored.advance(1, 400, NOW), "an earlier one that comes later");
        assert_eq!(stored.get(1), Some(500));
        assert!(stored.advance(1, 5_000, NOW), "a time in the future");
        assert_eq!(stored.get(1), Some(NOW));
        assert!(stored.advance(2, -7, NOW), "before 1970");
        assert_eq!((stored.get(2), stored.get(3)), (Some(-7), None));
    }

    #[test]
    fn batches_are_counted_up_to_the_newest() {
        let mut stored = StoredCalls::default();
        assert!(!stored.has_counted("01"));
        assert!(stored.count_to("02"));
        assert!(!stored.count_to("01") && !stored.count_to("02"));
        assert_eq!(["01", "02", "03"].map(|batch| stored.has_counted(batch)), [true, true, false]);
    }

    #[test]
    fn flags_called_longest_ago_are_dropped_beyond_the_limit() {
        let mut stored = StoredCalls::default();
        for (flag, at) in [(1, 30), (2, 10), (3, 20), (4, 40)] {
            stored.advance(flag, at, NOW);
        }
        let whole = stored.clone();
        stored.truncate(4);
        assert_eq!(stored, whole, "at the limit");
        stored.truncate(2);
        assert_eq!(
            (1..=4).map(|flag| stored.get(flag)).collect::<Vec<_>>(),
            [Some(30), None, None, Some(40)]
        );
        stored.truncate(0);
        assert_eq!(stored, StoredCalls::default());
    }

    #[test]
    fn the_latest_of_record_stored_calls_and_waiting_events_counts() {
        let mut waiting = CallsByKey::default();
        waiting.add("a", 300);
        waiting.add("a", 200);
        waiting.add("ahead", 9_000);
        let mut stored = StoredCalls::default();
        stored.advance(1, 250, NOW);
        stored.advance(2, 400, NOW);
        let mut times = CallTimes::new(Arc::new(KnownCalls { stored, waiting }), instant(NOW));
        let shown = |times: &CallTimes, id, key, deleted, recorded: Option<i64>| {
            let flag = CalledFlag { id, key, deleted, recorded: recorded.map(instant) };
            times.last_called_at(flag).map(|at| at.timestamp_micros())
        };
        assert_eq!(shown(&times, 1, "a", false, None), Some(300));
        assert_eq!(shown(&times, 1, "a", false, Some(999)), Some(999));
        assert_eq!(shown(&times, 1, "a", true, None), Some(250), "its key may be another flag's");
        assert_eq!(shown(&times, 2, "a", false, None), Some(400));
        assert_eq!(shown(&times, 3, "b", false, None), None);
        assert_eq!(shown(&times, 3, "b", false, Some(5)), Some(5));
        assert_eq!(shown(&times, 3, "ahead", false, None), Some(NOW), "a time in the future");
        assert_eq!((times.waiting_of(1, "a"), times.waiting_of(2, "a")), (Some(300), None));
        assert_eq!(times.waiting_of(3, "ahead"), Some(NOW));
        times.advance(3, 600);
        assert_eq!(
            (shown(&times, 3, "b", false, None), shown(&times, 4, "b", false, None)),
            (Some(600), None)
        );
    }
}
