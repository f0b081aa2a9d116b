//! The buckets of a time series: start instants, lookup by instant, labels.
//!
//! Must stay true: buckets are ascending and without gaps, from the bucket of the range's start to the bucket of its end,
//! also across clock changes.

use chrono::{DateTime, Datelike, Days, Duration, Months, NaiveDate};
use chrono_tz::Tz;

use super::bucket_search::{BucketFinder, BucketStarts};
use super::range::{DateRange, floor};
use super::{Interval, WeekStart, zone};
use crate::dates::Micros;
use crate::error::CalcResult;
use crate::limits;

/// The buckets of one range.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    interval: Interval,
    starts: Vec<DateTime<Tz>>,
    bucket_starts: BucketStarts,
    from: NaiveDate,
    to: NaiveDate,
}

impl Buckets {
    /// The buckets of a range; empty if it ends before it starts. An error above [`limits::BUCKETS`].
    pub fn new(range: &DateRange, interval: Interval, week_start: WeekStart) -> CalcResult<Self> {
        let last = start_of(range.to, interval, week_start);
        let mut next = start_of(range.from, interval, week_start);
        let mut starts = Vec::new();
        while next <= last {
            if starts.len() == limits::BUCKETS {
                return Err(limits::too_many(
                    "interval",
                    "intervals between date_from and date_to",
                    limits::BUCKETS,
                ));
            }
            starts.push(next);
            let after = next_bucket_start(next, interval);
            if after <= next {
                break;
            }
            next = after;
        }
        let bucket_starts = BucketStarts::new(starts.iter().map(DateTime::timestamp_micros).collect());
        let (from, to) = (range.from.date_naive(), range.to.date_naive());
        Ok(Self { interval, starts, bucket_starts, from, to })
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if the range ends before it starts.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// First instant of each bucket.
    pub fn starts(&self) -> &[DateTime<Tz>] {
        &self.starts
    }

    /// The bucket of an instant; none before the first bucket, the last bucket for all instants after its start.
    #[inline]
    pub fn index(&self, at: Micros) -> Option<usize> {
        self.bucket_starts.find(at)
    }

    /// A finder for loops over many instants; none without buckets.
    pub fn finder(&self) -> Option<BucketFinder<'_>> {
        self.bucket_starts.finder()
    }

    /// The `days` of a series: dates, with times for hours and minutes.
    pub fn days(&self) -> Vec<String> {
        let form = if self.interval.is_clock() { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d" };
        self.starts.iter().map(|start| start.format(form).to_string()).collect()
    }

    /// The `labels` of a series.
    pub fn labels(&self) -> Vec<String> {
        let label = |start: &DateTime<Tz>| match self.interval {
            Interval::Minute | Interval::Hour => start.format("%-d-%b %H:%M").to_string(),
            Interval::Day => start.format("%-d-%b-%Y").to_string(),
            Interval::Month => start.format("%b %Y").to_string(),
            Interval::Week => self.week_label(start.date_naive()),
        };
        self.starts.iter().map(label).collect()
    }

    /// The days of the week that are in the range, in the shortest form.
    fn week_label(&self, week: NaiveDate) -> String {
        let start = week.max(self.from);
        let end = week.checked_add_days(Days::new(6)).unwrap_or(week).min(self.to).max(start);
        let text = |day: NaiveDate, form: &str| day.format(form).to_string();
        if start == end {
            text(start, "%-d-%b-%Y")
        } else if start.year() != end.year() {
            format!("{} – {}", text(start, "%-d-%b-%Y"), text(end, "%-d-%b-%Y"))
        } else if start.month() != end.month() {
            format!("{} – {}", text(start, "%-d-%b"), text(end, "%-d-%b"))
        } else {
            format!("{}–{}", start.day(), text(end, "%-d %b"))
        }
    }

    /// The intersection of each bucket with a range, both ends inclusive: the range in the bucket's link to its actors.
    pub fn spans(&self, first: Micros, last: Micros) -> Vec<(Micros, Micros)> {
        let starts = self.bucket_starts.starts();
        let ends = starts.iter().skip(1).map(|next| next - 1).chain([last]);
        starts.iter().zip(ends).map(|(start, end)| ((*start).max(first), end.min(last))).collect()
    }
}

/// The start of the bucket that contains an instant.
pub fn start_of(at: DateTime<Tz>, interval: Interval, week_start: WeekStart) -> DateTime<Tz> {
    if interval != Interval::Week {
        return floor(at, interval);
    }
    let day = at.date_naive();
    let into_week = match week_start {
        WeekStart::Sunday => day.weekday().num_days_from_sunday(),
        WeekStart::Monday => day.weekday().num_days_from_monday(),
    };
    zone::day_start(day.checked_sub_days(Days::new(u64::from(into_week))).unwrap_or(day), at.timezone())
}

/// The start of the bucket after the one that starts at `start`; `start` itself at the end of the calendar.
pub fn next_bucket_start(start: DateTime<Tz>, interval: Interval) -> DateTime<Tz> {
    let day = start.date_naive();
    let next = match interval {
        Interval::Minute => return zone::shift(start, Duration::minutes(1)),
        Interval::Hour => return zone::shift(start, Duration::hours(1)),
        Interval::Day => day.checked_add_days(Days::new(1)),
        Interval::Week => day.checked_add_days(Days::new(7)),
        Interval::Month => day.checked_add_months(Months::new(1)),
    };
    next.map_or(start, |day| zone::day_start(day, start.timezone()))
}
