//! The last call of each flag: SDKs send an event `$feature_flag_called` per evaluation that the application requested,
//! and a flag's `last_called_at` is the time of the latest one.
//!
//! Must stay true: a stored time only increases, so the same events may be counted any number of times and in any order
//! (idempotent); the number of flags with a stored time is bounded; a time in the future is stored as now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// The event that SDKs send for each call of a flag.
pub const CALL_EVENT: &str = "$feature_flag_called";
/// The event property with the flag key.
pub const CALLED_KEY: &str = "$feature_flag";

/// Most flags of a project whose latest call is stored; all of them fit one DynamoDB item. Beyond that the least
/// recently called flags are dropped.
pub const FLAGS_MAX: usize = 30_000;

/// The latest call of each flag key, in microseconds since the epoch, as events state it.
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

/// The stored form: the latest call of each flag id of a project, in microseconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCalls {
    latest: BTreeMap<i64, i64>,
    /// The newest batch of captured events whose calls are counted; all older ones are counted too, because batch names
    /// sort by arrival. Batches stay readable for a while after that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    counted_to: String,
}

impl StoredCalls {
    /// Raises the latest call of `flag` to `at`, or to `now` if that is earlier. Returns false if it was not later.
    pub fn advance(&mut self, flag: i64, at: i64, now: i64) -> bool {
        let at = at.min(now);
        if self.latest.get(&flag).is_some_and(|latest| *latest >= at) {
            return false;
        }
        self.latest.insert(flag, at);
        true
    }

    /// Marks the batches up to `batch` as counted. Returns false if they were already.
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

    /// Drops the least recently called flags, down to `most`.
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

/// The calls of a project: the stored ones by flag id, and those in events that are not counted yet, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagCalls {
    /// The stored calls.
    pub stored: StoredCalls,
    /// The calls in events that are not counted yet.
    pub waiting: CallsByKey,
}

/// The known calls while a request is handled.
#[derive(Debug, Clone)]
pub struct CallTimes {
    known: Arc<FlagCalls>,
    /// A flag whose latest call was stored by the request itself.
    advanced: Option<(i64, i64)>,
    now: i64,
}

/// A flag, with the call time in its own record.
#[derive(Debug, Clone, Copy)]
pub struct CalledFlag<'a> {
    /// Its id.
    pub id: i64,
    /// Its key.
    pub key: &'a str,
    /// Whether it is deleted: events then belong to another flag with that key, or to none.
    pub deleted: bool,
    /// The time in its record, which clients may set.
    pub recorded: Option<DateTime<Utc>>,
}

impl CallTimes {
    /// The known calls at `now`.
    pub fn new(known: Arc<FlagCalls>, now: DateTime<Utc>) -> CallTimes {
        CallTimes { known, advanced: None, now: now.timestamp_micros() }
    }

    /// No calls.
    pub fn none() -> CallTimes {
        CallTimes { known: Arc::default(), advanced: None, now: i64::MAX }
    }

    /// The latest call of `flag`: from its record, the stored calls, or events that are not counted yet.
    pub fn last_called_at(&self, flag: CalledFlag<'_>) -> Option<DateTime<Utc>> {
        let waiting = if flag.deleted { None } else { self.known.waiting.get(flag.key) };
        let called = self.stored(flag.id).max(waiting.map(|at| at.min(self.now)));
        called.and_then(DateTime::from_timestamp_micros).max(flag.recorded)
    }

    /// The latest call of `key` that is not counted yet, if it is later than the stored call of `flag`.
    pub fn pending_call(&self, flag: i64, key: &str) -> Option<i64> {
        let at = self.known.waiting.get(key)?.min(self.now);
        self.stored(flag).is_none_or(|stored| stored < at).then_some(at)
    }

    /// Records that the request has stored a call of `flag`.
    pub fn advance(&mut self, flag: i64, at: i64) {
        self.advanced = Some((flag, at));
    }

    fn stored(&self, flag: i64) -> Option<i64> {
        let advanced = self.advanced.filter(|(id, _)| *id == flag).map(|(_, at)| at);
        self.known.stored.get(flag).max(advanced)
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
        let mut times = CallTimes::new(Arc::new(FlagCalls { stored, waiting }), instant(NOW));
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
        assert_eq!((times.pending_call(1, "a"), times.pending_call(2, "a")), (Some(300), None));
        assert_eq!(times.pending_call(3, "ahead"), Some(NOW));
        times.advance(3, 600);
        assert_eq!(
            (shown(&times, 3, "b", false, None), shown(&times, 4, "b", false, None)),
            (Some(600), None)
        );
    }
}
