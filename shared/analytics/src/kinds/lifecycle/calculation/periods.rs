//! The periods of a lifecycle: the shown ones, and a hidden one before them.
//!
//! Must stay true: periods are whole at both ends, whatever the time of day of the range; days and longer ones are steps of the
//! calendar, hours and minutes steps of absolute time.

use chrono::{DateTime, Duration};
use chrono_tz::Tz;
use pennon_filters::dates::bucket_search::{BucketFinder, BucketStarts};
use pennon_filters::dates::buckets::{Buckets, next_bucket_start, start_of};
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::{Interval, WeekStart, zone};
use pennon_filters::error::CalcResult;

use crate::kinds::lifecycle::limits;
use crate::scan::Micros;

/// The periods of one range. Period 0 is the hidden one.
#[derive(Debug, Clone)]
pub(crate) struct Periods {
    /// The start of each shown period.
    pub(crate) shown: Vec<DateTime<Tz>>,
    /// The `days` of the result.
    pub(crate) days: Vec<String>,
    /// The `labels` of the result.
    pub(crate) labels: Vec<String>,
    /// The start of each period, the hidden one included; empty if no period is shown.
    starts: BucketStarts,
    /// The end of the last period, exclusive.
    end: Micros,
}

/// Finds periods, for loops over many instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeriodFinder<'a> {
    finder: BucketFinder<'a>,
    first: Micros,
    end: Micros,
}

impl Periods {
    /// The periods from the one that holds the start of the range to the one that holds its end; with `explicit`, only those
    /// that start inside the range.
    pub(crate) fn new(
        range: &DateRange,
        interval: Interval,
        week_start: WeekStart,
        explicit: bool,
    ) -> CalcResult<Self> {
        let buckets = Buckets::new(range, interval, week_start)?;
        let all = buckets.starts();
        let is_empty = range.to < range.from;
        let first = if explicit { all.partition_point(|start| *start < range.from) } else { 0 };
        let until = if explicit { all.partition_point(|start| *start <= range.to) } else { all.len() };
        let indexes = if is_empty { 0..0 } else { first..until.max(first) };
        if indexes.len() > limits::PERIODS {
            return Err(limits::too_many("interval", "periods", limits::PERIODS));
        }
        let texts = |texts: Vec<String>| texts.get(indexes.clone()).unwrap_or_default().to_vec();
        let (days, labels) = (texts(buckets.days()), texts(buckets.labels()));
        let shown = all.get(indexes).unwrap_or_default().to_vec();
        let (Some(first), Some(last)) = (shown.first(), shown.last()) else {
            return Ok(Self { shown, days, labels, starts: BucketStarts::default(), end: Micros::MIN });
        };
        let hidden = start_of(zone::shift(*first, Duration::microseconds(-1)), interval, week_start);
        let starts = std::iter::once(&hidden).chain(&shown).map(DateTime::timestamp_micros).collect();
        let end = next_bucket_start(*last, interval).timestamp_micros();
        Ok(Self { days, labels, starts: BucketStarts::new(starts), end, shown })
    }

    /// First and last instant that counts; none if no period is shown.
    pub(crate) fn bounds(&self) -> Option<(Micros, Micros)> {
        Some((*self.starts.starts().first()?, self.end - 1))
    }

    /// A finder; none if no period is shown.
    pub(crate) fn finder(&self) -> Option<PeriodFinder<'_>> {
        let finder = self.starts.finder()?;
        Some(PeriodFinder { finder, first: finder.first(), end: self.end })
    }

    /// Number of periods, the hidden one included.
    pub(crate) fn count(&self) -> usize {
        self.starts.starts().len()
    }
}

impl PeriodFinder<'_> {
    /// The period of an instant; none if it is in none of them.
    #[inline]
    pub(crate) fn period_of(self, time: Micros) -> Option<usize> {
        (time >= self.first && time < self.end).then(|| self.finder.find(time))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn periods(from: &str, to: &str, interval: Interval, explicit: bool, zone: Tz) -> Periods {
        let instant = |text: &str| text.parse::<DateTime<chrono::Utc>>().unwrap().with_timezone(&zone);
        let range = DateRange { from: instant(from), first: instant(from), to: instant(to) };
        Periods::new(&range, interval, WeekStart::Monday, explicit).unwrap()
    }

    /// The period of some instants.
    fn found(periods: &Periods, instants: &[&str]) -> Vec<Option<usize>> {
        let finder = periods.finder().unwrap();
        let instant = |text: &&str| text.parse::<DateTime<chrono::Utc>>().unwrap().timestamp_micros();
        instants.iter().map(|text| finder.period_of(instant(text))).collect()
    }

    #[test]
    fn periods_are_whole_and_one_before_them_is_hidden() {
        let weeks = periods("2023-05-03T10:00:00Z", "2023-05-16T23:59:59Z", Interval::Week, false, Tz::UTC);
        assert_eq!(weeks.days, ["2023-05-01", "2023-05-08", "2023-05-15"]);
        let instants = [
            "2023-04-23T23:59:59.999999Z",
            "2023-04-24T00:00:00Z",
            "2023-05-01T00:00:00Z",
            "2023-05-21T23:59:59.999999Z",
            "2023-05-22T00:00:00Z",
        ];
        assert_eq!(found(&weeks, &instants), [None, Some(0), Some(1), Some(3), None]);
        assert_eq!((weeks.count(), weeks.shown.len()), (4, 3));
    }

    #[test]
    fn explicit_periods_start_inside_the_range() {
        let days = |from: &str, to: &str| periods(from, to, Interval::Day, true, Tz::UTC);
        let some = days("2023-05-03T00:00:01Z", "2023-05-05T00:00:00Z");
        assert_eq!(some.days, ["2023-05-04", "2023-05-05"]);
        assert_eq!(found(&some, &["2023-05-03T00:00:00Z", "2023-05-05T23:59:59Z"]), [Some(0), Some(2)]);
        let none = days("2023-05-03T00:00:01Z", "2023-05-03T23:00:00Z");
        assert!(none.shown.is_empty() && none.finder().is_none() && none.bounds().is_none());
    }

    #[test]
    fn months_and_clock_changes_are_steps_of_the_calendar() {
        let zone = chrono_tz::US::Pacific;
        // Clocks go forward on 10 March 2024: that day has 23 hours.
        let days = periods("2024-03-11T08:00:00Z", "2024-03-11T20:00:00Z", Interval::Day, false, zone);
        assert_eq!(
            found(
                &days,
                &[
                    "2024-03-10T07:59:59Z",
                    "2024-03-10T08:00:00Z",
                    "2024-03-11T06:59:59Z",
                    "2024-03-11T07:00:00Z"
                ]
            ),
            [None, Some(0), Some(0), Some(1)]
        );
        let months = periods("2024-03-31T12:00:00Z", "2024-04-01T12:00:00Z", Interval::Month, false, Tz::UTC);
        assert_eq!(
            (months.days.as_slice(), months.count()),
            (&["2024-03-01".to_owned(), "2024-04-01".to_owned()][..], 3)
        );
        assert_eq!(found(&months, &["2024-02-01T00:00:00Z", "2024-04-30T23:59:59Z"]), [Some(0), Some(2)]);
    }

    #[test]
    fn more_periods_than_the_limit_are_refused() {
        let instant = |minutes: i64| {
            zone::from_micros(
                1_700_000_000 * 1_000_000 / 60_000_000 * 60_000_000 + minutes * 60_000_000,
                Tz::UTC,
            )
        };
        let periods = |count: i64| {
            let range = DateRange { from: instant(0), first: instant(0), to: instant(count - 1) };
            Periods::new(&range, Interval::Minute, WeekStart::Sunday, false)
        };
        assert_eq!(periods(10_000).unwrap().shown.len(), 10_000);
        assert_eq!(periods(10_001).unwrap_err().attr.as_deref(), Some("interval"));
    }
}
