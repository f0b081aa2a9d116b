//! The time between two events in windows of an actor's own: 24 hours, 7 or 30 days, or an hour.
//!
//! Must stay true: times are cut to the hour, or to the day for weeks and months, by the clock of the project's zone; hours
//! are absolute. Offsets of the zone are looked up in a table, because a conversion per event is slow.

use chrono::{DateTime, Duration, Offset};
use chrono_tz::Tz;
use pennon_filters::dates::{Interval, zone};

use crate::scan::Micros;

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;
const DAY: Micros = 24 * HOUR;

/// Measures times in windows.
#[derive(Debug, Clone)]
pub(super) struct WindowClock {
    /// Ascending instants from which an offset of the zone holds, and the offset.
    offsets: Vec<(Micros, Micros)>,
    unit: Unit,
}

/// What windows consist of.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// So many hours.
    Hours(i64),
    /// So many days of the zone's calendar.
    Days(i64),
}

impl WindowClock {
    /// The clock for instants between two others.
    pub(super) fn new(period: Interval, from: DateTime<Tz>, to: DateTime<Tz>) -> Self {
        let unit = match period {
            Interval::Minute | Interval::Hour => Unit::Hours(1),
            Interval::Day => Unit::Hours(24),
            Interval::Week => Unit::Days(7),
            Interval::Month => Unit::Days(30),
        };
        Self { offsets: offsets(from, to), unit }
    }

    /// The number of whole windows from `start` to `time`.
    #[inline]
    pub(super) fn windows_between(&self, start: Micros, time: Micros) -> u32 {
        let windows = match self.unit {
            Unit::Hours(hours) => (self.start_of_hour(time) - self.start_of_hour(start)) / (hours * HOUR),
            Unit::Days(days) => (self.day_of(time) - self.day_of(start)) / days,
        };
        u32::try_from(windows.max(0)).unwrap_or(u32::MAX)
    }

    #[inline]
    fn offset_at(&self, time: Micros) -> Micros {
        let index = self.offsets.partition_point(|(from, _)| *from <= time).saturating_sub(1);
        self.offsets.get(index).map_or(0, |(_, offset)| *offset)
    }

    /// The instant of the hour's start on the zone's clock.
    fn start_of_hour(&self, time: Micros) -> Micros {
        time - (time + self.offset_at(time)).rem_euclid(HOUR)
    }

    /// The number of the day in the zone's calendar.
    fn day_of(&self, time: Micros) -> i64 {
        (time + self.offset_at(time)).div_euclid(DAY)
    }
}

/// The offsets of the zone between two instants. A zone changes its offset at most once a day.
fn offsets(from: DateTime<Tz>, to: DateTime<Tz>) -> Vec<(Micros, Micros)> {
    let zone = from.timezone();
    let offset =
        |second: i64| i64::from(zone::from_micros(second * SECOND, zone).offset().fix().local_minus_utc());
    let (mut at, end) = (from.timestamp(), to.timestamp());
    let mut before = offset(at);
    let mut offsets = vec![(Micros::MIN, before * SECOND)];
    while at < end {
        let next = (at + Duration::days(1).num_seconds()).min(end);
        let after = offset(next);
        if before != after {
            // The first second with the new offset, by bisection.
            let (mut old, mut new) = (at, next);
            while new - old > 1 {
                let middle = old + (new - old) / 2;
                if offset(middle) == before {
                    old = middle;
                } else {
                    new = middle;
                }
            }
            offsets.push((new * SECOND, after * SECOND));
        }
        (at, before) = (next, after);
    }
    offsets
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn micros(text: &str) -> Micros {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
    }

    fn clock(period: Interval, zone: Tz) -> WindowClock {
        let at = |text| zone::from_micros(micros(text), zone);
        WindowClock::new(period, at("2021-01-01T00:00:00Z"), at("2022-01-01T00:00:00Z"))
    }

    #[test]
    fn days_are_24_hours_between_times_cut_to_the_hour() {
        let clock = clock(Interval::Day, chrono_tz::UTC);
        let start = micros("2021-05-01T23:59:00Z");
        assert_eq!(clock.windows_between(start, micros("2021-05-02T22:59:59Z")), 0);
        assert_eq!(clock.windows_between(start, micros("2021-05-02T23:00:00Z")), 1);
    }

    #[test]
    fn weeks_and_months_count_days_of_the_zone() {
        let weeks = clock(Interval::Week, chrono_tz::US::Pacific);
        // 6 March 23:00 to 13 March 00:00, both on the clock of the zone, with the change of clocks after it.
        let start = micros("2021-03-07T07:00:00Z");
        assert_eq!(weeks.windows_between(start, micros("2021-03-13T07:59:59Z")), 0);
        assert_eq!(weeks.windows_between(start, micros("2021-03-13T08:00:00Z")), 1);
        // A week later, midnight is an hour earlier.
        assert_eq!(weeks.windows_between(start, micros("2021-03-20T06:59:59Z")), 1);
        assert_eq!(weeks.windows_between(start, micros("2021-03-20T07:00:00Z")), 2);
        let months = clock(Interval::Month, chrono_tz::UTC);
        assert_eq!(months.windows_between(micros("2021-01-31T12:00:00Z"), micros("2021-03-01T23:00:00Z")), 0);
        assert_eq!(months.windows_between(micros("2021-01-31T12:00:00Z"), micros("2021-03-02T00:00:00Z")), 1);
    }

    #[test]
    fn hours_are_those_of_the_clock_also_where_it_is_half_an_hour_off() {
        let clock = clock(Interval::Hour, chrono_tz::Asia::Kolkata);
        // 10:29 and 10:30 in UTC are 15:59 and 16:00 there.
        assert_eq!(clock.windows_between(micros("2021-05-01T10:29:00Z"), micros("2021-05-01T10:30:00Z")), 1);
        assert_eq!(clock.windows_between(micros("2021-05-01T10:30:00Z"), micros("2021-05-01T11:29:00Z")), 0);
    }
}
