//! The clock. Only this module reads the time: handlers get the instant of their request as an argument.

use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, TimeDelta, Timelike, Utc};

/// The header that sets the instant of one request. Ignored unless the clock is frozen.
pub const NOW_HEADER: &str = "x-pennon-now";

/// The source of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The system clock.
    Running,
    /// Always this instant, for black-box tests.
    Frozen(DateTime<Utc>),
}

impl Clock {
    /// The instant of a request with this [`NOW_HEADER`], in whole microseconds.
    pub fn now(&self, header: Option<&str>) -> DateTime<Utc> {
        let at = match self {
            Clock::Running => Utc::now(),
            Clock::Frozen(at) => header.and_then(parse).unwrap_or(*at),
        };
        at.with_nanosecond(at.nanosecond() / 1000 * 1000).unwrap_or(at)
    }

    /// The current instant for background work that was requested at `requested_at`: never before that, and equal to it if the
    /// clock is frozen.
    pub fn now_for(&self, requested_at: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Clock::Running => self.now(None).max(requested_at),
            Clock::Frozen(_) => requested_at,
        }
    }
}

/// The instant for a write after one at `previous`: `now`, or one microsecond after `previous` if the clock went back.
/// Equal instants stay equal: the later write has the larger UUID.
pub fn never_before(now: DateTime<Utc>, previous: DateTime<Utc>) -> DateTime<Utc> {
    if now >= previous { now } else { previous + TimeDelta::microseconds(1) }
}

fn parse(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|at| at.with_timezone(&Utc))
}

/// The format of an instant in every response: UTC with `Z`, six fractional digits or none.
pub fn timestamp(at: DateTime<Utc>) -> String {
    if at.timestamp_subsec_micros() == 0 {
        at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}

/// An instant for the age of cache entries and of idle connections.
///
/// Read from two clocks: the monotonic clock may stop while Lambda has frozen the process, and the system clock may be set.
/// The age is the larger of both, so that nothing outlives its time because one of them stood still. A system clock that was
/// set back counts as age too.
#[derive(Debug, Clone, Copy)]
pub struct CacheInstant {
    monotonic: Instant,
    system: SystemTime,
}

impl CacheInstant {
    /// The current instant.
    pub fn now() -> CacheInstant {
        CacheInstant { monotonic: Instant::now(), system: SystemTime::now() }
    }

    /// The instant `duration` ago; the current one if a clock does not go back that far.
    pub fn ago(duration: Duration) -> CacheInstant {
        let now = CacheInstant::now();
        CacheInstant {
            monotonic: now.monotonic.checked_sub(duration).unwrap_or(now.monotonic),
            system: now.system.checked_sub(duration).unwrap_or(now.system),
        }
    }

    /// An instant before Lambda froze the process for `duration`: the system clock has gone on, the monotonic clock stood still.
    #[cfg(test)]
    pub(crate) fn before_freeze(duration: Duration) -> CacheInstant {
        let now = CacheInstant::now();
        CacheInstant { system: now.system.checked_sub(duration).unwrap_or(now.system), ..now }
    }

    /// Whether less than `duration` has passed since this instant, by both clocks.
    pub fn is_younger_than(&self, duration: Duration) -> bool {
        self.age(CacheInstant::now()) < duration
    }

    fn age(&self, now: CacheInstant) -> Duration {
        let monotonic = now.monotonic.saturating_duration_since(self.monotonic);
        let system = now.system.duration_since(self.system).unwrap_or_else(|error| error.duration());
        monotonic.max(system)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_frozen_clock_honours_the_header() {
        let frozen = parse("2024-01-01T00:00:00Z").unwrap();
        let named = parse("2024-02-02T12:30:00+02:00").unwrap();
        assert_eq!(Clock::Frozen(frozen).now(Some("2024-02-02T10:30:00Z")), named);
        assert_eq!(Clock::Frozen(frozen).now(None), frozen);
        assert_eq!(Clock::Frozen(frozen).now(Some("yesterday")), frozen);
        assert!(Clock::Running.now(Some("2024-02-02T10:30:00Z")) > named);
    }

    #[test]
    fn the_age_is_that_of_the_clock_that_went_further() {
        let read = CacheInstant::now();
        let after = |monotonic: u64, system: i64| {
            let by = Duration::from_secs(system.unsigned_abs());
            let system = if system < 0 { read.system - by } else { read.system + by };
            read.age(CacheInstant { monotonic: read.monotonic + Duration::from_secs(monotonic), system })
        };
        assert_eq!(after(4, 4), Duration::from_secs(4));
        assert_eq!(after(0, 600), Duration::from_secs(600), "frozen: the monotonic clock stood still");
        assert_eq!(after(600, 0), Duration::from_secs(600), "the system clock was set back meanwhile");
        assert_eq!(after(1, -600), Duration::from_secs(600), "set back further than the entry is old");
        assert!(CacheInstant::ago(Duration::from_secs(4)).is_younger_than(Duration::from_secs(5)));
        assert!(!CacheInstant::ago(Duration::from_secs(6)).is_younger_than(Duration::from_secs(5)));
    }

    #[test]
    fn a_stored_instant_is_never_replaced_by_an_earlier_one() {
        let at = |text| parse(text).unwrap();
        let previous = at("2026-01-05T10:00:00Z");
        assert_eq!(
            never_before(at("2026-01-05T10:00:00.000002Z"), previous),
            at("2026-01-05T10:00:00.000002Z")
        );
        assert_eq!(never_before(previous, previous), previous);
        assert_eq!(never_before(at("2026-01-05T09:00:00Z"), previous), at("2026-01-05T10:00:00.000001Z"));
    }

    #[test]
    fn timestamps_have_six_digits_or_none() {
        assert_eq!(timestamp(parse("2021-08-25T22:09:14.252Z").unwrap()), "2021-08-25T22:09:14.252000Z");
        assert_eq!(timestamp(parse("2024-01-01T02:00:00+02:00").unwrap()), "2024-01-01T00:00:00Z");
    }
}
