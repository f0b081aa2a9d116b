//! The intervals of a range, and the interval of an instant.
//!
//! Must stay true: intervals that are cut backwards from the end are whole units by the wall clock, hours and minutes in real
//! time. Where a clock goes back, wall-clock time is not monotonic: then an interval is several pieces of real time.

use chrono::{
    DateTime, Datelike, Days, Duration, MappedLocalTime, Months, NaiveDateTime, NaiveTime, Offset, TimeZone,
};
use chrono_tz::Tz;
use pennon_filters::dates::bucket_search::{BucketFinder, BucketStarts};
use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::{Interval, WeekStart, zone};
use pennon_filters::error::CalcResult;

use crate::scan::Micros;

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;
const DAY: Micros = 24 * HOUR;

/// The intervals of one range.
#[derive(Debug, Clone)]
pub(crate) struct Intervals {
    /// The range; links select it.
    pub(crate) range: DateRange,
    /// First and last instant that counts.
    pub(crate) bounds: (Micros, Micros),
    /// Number of bars: no actor is active in more intervals.
    pub(crate) bars: usize,
    /// Starts of the pieces of real time.
    pieces: BucketStarts,
    /// By piece: the number of its interval.
    numbers: Vec<u32>,
    /// Numbers of intervals are below this.
    pub(crate) width: usize,
}

/// Finds intervals, for loops over many instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntervalFinder<'a> {
    finder: BucketFinder<'a>,
    numbers: &'a [u32],
    first: Micros,
    last: Micros,
}

impl Intervals {
    /// The intervals of a range: those of the calendar, or, with `count`, so many units each, cut backwards from the end.
    pub(crate) fn new(
        range: DateRange,
        interval: Interval,
        count: Option<u32>,
        week_start: WeekStart,
    ) -> CalcResult<Self> {
        let bounds = (range.first.timestamp_micros(), range.to.timestamp() * SECOND);
        let buckets = Buckets::new(&range, interval, week_start)?;
        let units = count.unwrap_or(1).max(1) as usize;
        let bars = if range.to < range.from { 0 } else { buckets.len().div_ceil(units) };
        let (starts, numbers) = match count {
            _ if bars == 0 || bounds.0 > bounds.1 => (Vec::new(), Vec::new()),
            None => {
                let starts: Vec<Micros> = buckets.starts().iter().map(DateTime::timestamp_micros).collect();
                let numbers = (0..).take(starts.len()).collect();
                (starts, numbers)
            }
            Some(count) => {
                let cuts = BackwardCuts { end: range.to, interval, count };
                let starts = cuts.starts(bounds);
                let numbers = starts.iter().map(|start| cuts.number_of(*start)).collect();
                (starts, numbers)
            }
        };
        let width = numbers.iter().max().map_or(0, |last| *last as usize + 1);
        Ok(Self { range, bounds, bars, pieces: BucketStarts::new(starts), numbers, width })
    }

    /// The pieces of real time: their starts, ascending, and the numbers of their intervals.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Micros, u32)> {
        self.pieces.starts().iter().copied().zip(self.numbers.iter().copied())
    }

    /// A finder; none if no instant counts.
    pub(crate) fn finder(&self) -> Option<IntervalFinder<'_>> {
        let finder = self.pieces.finder()?;
        let first = self.bounds.0.max(finder.first());
        Some(IntervalFinder { finder, numbers: &self.numbers, first, last: self.bounds.1 })
    }
}

impl IntervalFinder<'_> {
    /// The number of the interval of an instant; none if it does not count.
    #[inline]
    pub(crate) fn number_of(self, time: Micros) -> Option<u32> {
        if time < self.first || time > self.last {
            return None;
        }
        self.numbers.get(self.finder.find(time)).copied()
    }
}

/// Intervals of `count` units that are cut backwards from the last second of a range.
struct BackwardCuts {
    end: DateTime<Tz>,
    interval: Interval,
    count: u32,
}

impl BackwardCuts {
    /// The last instant of the range: its last second is whole.
    fn last_instant(&self) -> Micros {
        self.end.timestamp() * SECOND + SECOND - 1
    }

    fn local(&self, instant: Micros) -> NaiveDateTime {
        zone::from_micros(instant, self.end.timezone()).naive_local()
    }

    /// The number of the interval of an instant, from 0 at the end of the range.
    fn number_of(&self, instant: Micros) -> u32 {
        let last = self.last_instant();
        let past = match self.interval {
            Interval::Minute => (last - instant).div_euclid(60 * SECOND),
            Interval::Hour => (last - instant).div_euclid(HOUR),
            Interval::Day | Interval::Week | Interval::Month => {
                let (end, at) = (self.local(last), self.local(instant));
                let days = (end - at).num_microseconds().unwrap_or(0).div_euclid(DAY);
                match self.interval {
                    Interval::Day => days,
                    Interval::Week => days.div_euclid(7),
                    _ => whole_months(at, end),
                }
            }
        };
        // A clock that goes back can show an event later than the end, which it is not.
        u32::try_from(past.max(0)).unwrap_or(u32::MAX) / self.count.max(1)
    }

    /// The starts of all pieces of time between two instants that may belong to different intervals.
    fn starts(&self, (first, last): (Micros, Micros)) -> Vec<Micros> {
        let mut starts = vec![first];
        for number in 1_u32.. {
            let Some(units) = number.checked_mul(self.count.max(1)) else { break };
            let Some(cuts) = self.cuts(units) else { break };
            let is_before = cuts.iter().all(|cut| *cut <= first);
            starts.extend(cuts.into_iter().filter(|cut| *cut > first && *cut <= last));
            if is_before {
                break;
            }
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The instants at which an event stops to be `units` whole units before the end; none before the calendar begins.
    fn cuts(&self, units: u32) -> Option<Vec<Micros>> {
        let last = self.last_instant();
        let end = self.local(last).checked_add_signed(Duration::microseconds(1))?;
        let after = match self.interval {
            Interval::Minute => return Some(vec![last + 1 - i64::from(units) * 60 * SECOND]),
            Interval::Hour => return Some(vec![last + 1 - i64::from(units) * HOUR]),
            Interval::Day => end.checked_sub_days(Days::new(units.into())),
            Interval::Week => end.checked_sub_days(Days::new(7 * u64::from(units))),
            Interval::Month => first_less_months_before(self.local(last), units),
        };
        Some(instants_of_change(after?, self.end.timezone()))
    }
}

/// How many whole months an instant is before another: a month is whole if day of month and time of day are not after those of
/// the end.
fn whole_months(at: NaiveDateTime, end: NaiveDateTime) -> i64 {
    let month = |time: NaiveDateTime| i64::from(time.year()) * 12 + i64::from(time.month0());
    let is_after = (at.day(), at.time()) > (end.day(), end.time());
    month(end) - month(at) - i64::from(is_after)
}

/// The first wall-clock time that is not so many whole months before `end`.
fn first_less_months_before(end: NaiveDateTime, months: u32) -> Option<NaiveDateTime> {
    let day = end.date().checked_sub_months(Months::new(months))?;
    if day.day() == end.day() {
        return day.and_time(end.time()).checked_add_signed(Duration::microseconds(1));
    }
    // The month is shorter: all of its days are whole months before.
    Some(day.succ_opt()?.and_time(NaiveTime::MIN))
}

/// The instants at which the clock begins to show `local` or later, or shows less again.
fn instants_of_change(local: NaiveDateTime, timezone: Tz) -> Vec<Micros> {
    match timezone.from_local_datetime(&local) {
        MappedLocalTime::Single(instant) => vec![instant.timestamp_micros()],
        MappedLocalTime::Ambiguous(first, second) => {
            let (first, second) = (first.timestamp_micros(), second.timestamp_micros());
            vec![first, offset_change(first, second, timezone), second]
        }
        MappedLocalTime::None => {
            let after = zone::at(local, timezone).timestamp_micros();
            vec![offset_change(after - DAY, after, timezone)]
        }
    }
}

/// The first instant with the offset of `after`, between two instants with different offsets.
fn offset_change(before: Micros, after: Micros, timezone: Tz) -> Micros {
    let offset = |instant: Micros| zone::from_micros(instant, timezone).offset().fix();
    let new_offset = offset(after);
    let (mut before, mut after) = (before, after);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if offset(middle) == new_offset { after = middle } else { before = middle }
    }
    after
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn instant(text: &str, zone: Tz) -> DateTime<Tz> {
        text.parse::<DateTime<chrono::Utc>>().unwrap().with_timezone(&zone)
    }

    fn intervals(from: &str, to: &str, interval: Interval, count: Option<u32>, zone: Tz) -> Intervals {
        let (from, to) = (instant(from, zone), instant(to, zone));
        Intervals::new(DateRange { from, first: from, to }, interval, count, WeekStart::Sunday).unwrap()
    }

    /// The intervals of some instants; none is -1.
    fn numbers(intervals: &Intervals, instants: &[&str]) -> Vec<i64> {
        let finder = intervals.finder().unwrap();
        let number = |text: &&str| finder.number_of(instant(text, Tz::UTC).timestamp_micros());
        instants.iter().map(number).map(|number| number.map_or(-1, i64::from)).collect()
    }

    #[test]
    fn months_are_whole_by_day_of_month_and_time_of_day() {
        let cut = intervals(
            "2023-12-01T00:00:00Z",
            "2024-02-29T23:59:59.999999Z",
            Interval::Month,
            Some(1),
            Tz::UTC,
        );
        assert_eq!(cut.bars, 3);
        let instants = [
            "2024-01-30T00:00:00Z",
            "2024-01-29T23:59:59.999999Z",
            "2023-12-30T12:00:00Z",
            "2023-12-29T12:00:00Z",
            "2024-02-29T23:59:59Z",
        ];
        assert_eq!(numbers(&cut, &instants), [0, 1, 1, 2, 0]);
        let cut = intervals(
            "2024-01-01T00:00:00Z",
            "2024-03-31T23:59:59.999999Z",
            Interval::Month,
            Some(2),
            Tz::UTC,
        );
        assert_eq!(cut.bars, 2);
        let instants = [
            "2024-02-29T23:59:59Z",
            "2024-01-31T23:59:59.999999Z",
            "2024-01-01T00:00:00Z",
            "2024-03-31T23:59:59Z",
        ];
        assert_eq!(numbers(&cut, &instants), [0, 1, 1, 0]);
    }

    #[test]
    fn days_are_cut_at_the_time_of_the_end() {
        let cut = intervals("2024-01-01T09:00:00Z", "2024-01-04T09:00:00Z", Interval::Day, Some(1), Tz::UTC);
        assert_eq!(cut.bars, 4);
        let instants = [
            "2024-01-04T09:00:00Z",
            "2024-01-03T09:00:01Z",
            "2024-01-03T09:00:00.999999Z",
            "2024-01-01T09:00:00Z",
            "2024-01-04T09:00:00.5Z",
            "2024-01-01T08:59:59Z",
        ];
        assert_eq!(numbers(&cut, &instants), [0, 0, 1, 3, -1, -1]);
    }

    #[test]
    fn a_clock_that_goes_back_makes_an_interval_of_several_pieces() {
        // 2024-11-03 in New York: 01:00 to 02:00 comes twice, at 05:00 and 06:00 UTC.
        let zone = chrono_tz::America::New_York;
        let cut = intervals("2024-11-01T12:00:00Z", "2024-11-05T06:30:00Z", Interval::Day, Some(1), zone);
        // The end is 01:30:00 there. Two days before it are the times until 01:30:00 of 3 November, in both of its hours.
        let instants = [
            "2024-11-03T05:29:59Z",
            "2024-11-03T05:40:00Z",
            "2024-11-03T06:10:00Z",
            "2024-11-03T06:40:00Z",
            "2024-11-04T06:31:00Z",
        ];
        assert_eq!(numbers(&cut, &instants), [2, 1, 2, 1, 0]);
    }

    #[test]
    fn a_cut_in_the_hour_that_a_clock_change_skips_is_at_the_change() {
        // 2024-03-10 in New York: 02:00 to 03:00 is skipped, at 07:00 UTC.
        let zone = chrono_tz::America::New_York;
        let cut = intervals("2024-03-08T12:00:00Z", "2024-03-11T06:30:00Z", Interval::Day, Some(1), zone);
        let instants = ["2024-03-10T06:59:59Z", "2024-03-10T07:00:00Z", "2024-03-10T06:29:00Z"];
        assert_eq!(numbers(&cut, &instants), [1, 0, 1]);
    }

    #[test]
    fn hours_are_real_and_the_first_interval_may_be_short() {
        let zone = chrono_tz::America::New_York;
        let cut =
            intervals("2024-11-03T04:00:00Z", "2024-11-03T08:59:59.999999Z", Interval::Hour, Some(2), zone);
        assert_eq!(cut.bars, 3);
        let instants =
            ["2024-11-03T04:59:59Z", "2024-11-03T05:00:00Z", "2024-11-03T06:59:59Z", "2024-11-03T07:00:00Z"];
        assert_eq!(numbers(&cut, &instants), [2, 1, 1, 0]);
        let calendar =
            intervals("2024-11-03T04:00:00Z", "2024-11-03T08:59:59.999999Z", Interval::Hour, None, zone);
        assert_eq!(
            (calendar.bars, numbers(&calendar, &["2024-11-03T05:00:00Z", "2024-11-03T06:00:00Z"])),
            (5, vec![1, 2])
        );
    }

    #[test]
    fn a_range_that_ends_before_it_starts_has_no_bars() {
        for count in [None, Some(2)] {
            let cut =
                intervals("2024-01-01T12:00:00Z", "2024-01-01T11:00:00Z", Interval::Day, count, Tz::UTC);
            assert_eq!((cut.bars, cut.finder().is_none()), (0, true));
        }
    }
}
