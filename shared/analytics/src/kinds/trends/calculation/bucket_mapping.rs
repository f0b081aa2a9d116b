//! Maps the time of an event to the buckets that count it.
//!
//! Must stay true: an event counts in consecutive buckets, exactly one unless the series has a rolling window. All series
//! of a period share its buckets, but the first counted instant depends on the aggregation.

use chrono::{DateTime, Days, Duration, NaiveDate, Offset};
use chrono_tz::Tz;
use pennon_filters::dates::bucket_search::{BucketFinder, BucketStarts};
use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::{Interval, zone};
use serde::{Deserialize, Serialize};

use crate::kinds::trends::limits;
use crate::query::Math;
use crate::scan::Micros;

/// A day in microseconds.
const DAY: Micros = 86_400_000_000;

/// The index of instants that no bucket counts: one past the largest possible index.
const NO_BUCKET: usize = limits::BUCKETS;

/// The consecutive buckets `from..until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct BucketSpan {
    pub(super) from: u32,
    pub(super) until: u32,
}

/// A date range, current or for comparison, and its buckets.
#[derive(Debug, Clone)]
pub(super) struct Period {
    pub(super) range: DateRange,
    pub(super) buckets: Buckets,
    /// Whether there is one number over the whole range instead of one per bucket.
    pub(super) total: bool,
    interval: Interval,
    /// The end, truncated to whole seconds.
    last: Micros,
}

/// Maps instants to buckets for one series in one period.
#[derive(Debug, Clone)]
pub(super) struct BucketMapping<'a> {
    /// First and last instant to count.
    pub(super) bounds: (Micros, Micros),
    /// `None` for a total.
    pub(super) buckets: Option<&'a Buckets>,
    rolling_window: RollingWindow,
}

/// How far the buckets look back.
#[derive(Debug, Clone)]
enum RollingWindow {
    /// No rolling window: an event counts in the bucket of its time.
    None,
    /// A window of this many microseconds that ends with the bucket; times are truncated to the interval. The last field
    /// holds the starts of the buckets.
    Clock(Interval, Micros, Vec<Micros>),
    /// A window of days that ends with the first day of the bucket.
    Days(DayWindow),
}

/// A rolling window of days over buckets of days, weeks or months.
#[derive(Debug, Clone)]
struct DayWindow {
    days: u64,
    zone: Tz,
    starts: Vec<NaiveDate>,
    /// The first instants of the days, from the first counted one to the last.
    day_starts: BucketStarts,
    /// By day: its buckets. `None` for days with a clock change, where the first instant does not determine which ones belong to the day.
    spans: Vec<Option<BucketSpan>>,
}

impl Period {
    /// The period of a date range.
    pub(super) fn new(range: DateRange, buckets: Buckets, interval: Interval, total: bool) -> Self {
        Self { range, buckets, total, interval, last: range.to.timestamp() * 1_000_000 }
    }

    /// Number of values in a series: the buckets, or 1 for a total.
    pub(super) fn width(&self) -> usize {
        if self.total { 1 } else { self.buckets.len() }
    }

    /// The bucket mapping of a series with this aggregation.
    pub(super) fn bucket_mapping(&self, math: &Math) -> BucketMapping<'_> {
        let (first, rolling_window) = match math {
            Math::Rolling(days, _) => {
                let end = if self.total { self.range.to } else { self.range.from };
                let first = days_before(end, *days).timestamp_micros();
                (first, self.rolling_window(*days, first))
            }
            Math::PerActor(_) => (self.range.from.timestamp_micros(), RollingWindow::None),
            _ => (self.range.first.timestamp_micros(), RollingWindow::None),
        };
        BucketMapping {
            bounds: (first, self.last),
            buckets: (!self.total).then_some(&self.buckets),
            rolling_window,
        }
    }

    /// The whole range as one bucket, up to its exact end: the range of a people link.
    pub(super) fn whole_range(&self) -> BucketMapping<'_> {
        let bounds = (self.range.first.timestamp_micros(), self.range.to.timestamp_micros());
        BucketMapping { bounds, buckets: None, rolling_window: RollingWindow::None }
    }

    fn rolling_window(&self, days: u16, first: Micros) -> RollingWindow {
        let starts = self.buckets.starts();
        if self.total {
            RollingWindow::None
        } else if self.interval.is_clock() {
            let starts = starts.iter().map(DateTime::timestamp_micros).collect();
            RollingWindow::Clock(self.interval, Micros::from(days) * DAY, starts)
        } else {
            let starts = starts.iter().map(DateTime::date_naive).collect();
            let zone = self.range.from.timezone();
            RollingWindow::Days(DayWindow::new(u64::from(days), zone, starts, (first, self.last)))
        }
    }

    /// By bucket: the time range that it counts, inclusive, for its people link.
    pub(super) fn time_ranges(&self, math: &Math, running: bool) -> Vec<(Micros, Micros)> {
        let mapping = self.bucket_mapping(math);
        let bucket_ranges = self.buckets.spans(mapping.bounds.0, self.last);
        let start = |index: usize, from: Micros| match &mapping.rolling_window {
            _ if running => mapping.bounds.0,
            RollingWindow::None => from,
            RollingWindow::Clock(_, length, starts) => {
                let step = if self.interval == Interval::Minute { DAY / 1440 } else { DAY / 24 };
                starts.get(index).map_or(from, |start| start + step - length)
            }
            RollingWindow::Days(DayWindow { days, zone, starts, .. }) => {
                starts.get(index).map_or(from, |day| {
                    let day = day.checked_sub_days(Days::new(days - 1)).unwrap_or(*day);
                    zone::day_start(day, *zone).timestamp_micros()
                })
            }
        };
        let end = |index: usize, to: Micros| match &mapping.rolling_window {
            RollingWindow::Days(DayWindow { zone, starts, .. }) => starts.get(index).map_or(to, |day| {
                let next = day.checked_add_days(Days::new(1)).unwrap_or(*day);
                to.min(zone::day_start(next, *zone).timestamp_micros() - 1)
            }),
            _ => to,
        };
        let span = |(index, (from, to)): (usize, (Micros, Micros))| {
            (start(index, from).max(mapping.bounds.0), end(index, to))
        };
        bucket_ranges.into_iter().enumerate().map(span).collect()
    }
}

/// Maps an instant to its bucket without a branch on the instant, which the CPU could not predict.
#[derive(Clone, Copy)]
pub(super) struct BucketLookup<'a> {
    finder: BucketFinder<'a>,
    first: Micros,
    last: Micros,
    outside: usize,
}

impl<'a> BucketLookup<'a> {
    /// Instants within the inclusive bounds map to their bucket, all others to `outside`. Without buckets there is one.
    pub(super) fn new(buckets: Option<&'a Buckets>, bounds: (Micros, Micros), outside: usize) -> Self {
        let empty = Self { finder: BucketFinder::SINGLE, first: Micros::MAX, last: Micros::MIN, outside };
        match buckets.map_or(Some(BucketFinder::SINGLE), Buckets::finder) {
            Some(finder) => Self { finder, first: bounds.0.max(finder.first()), last: bounds.1, outside },
            None => empty,
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub(super) fn bucket_of(self, time: Micros) -> usize {
        let inside = (time >= self.first) & (time <= self.last);
        let bucket = self.finder.find(time.max(self.first).min(self.last)).min(self.outside);
        if inside { bucket } else { self.outside }
    }

    /// The bucket of an instant as a span; `None` outside.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "loops over rows keep its few numbers in registers")]
    pub(super) fn span_of(self, time: Micros) -> Option<BucketSpan> {
        let bucket = self.bucket_of(time);
        let from = bucket as u32; // There are fewer than 2^32 buckets.
        (bucket != self.outside).then_some(BucketSpan { from, until: from + 1 })
    }
}

impl BucketMapping<'_> {
    /// Whether each event counts only in the bucket of its time.
    pub(super) fn is_one_to_one(&self) -> bool {
        matches!(self.rolling_window, RollingWindow::None)
    }

    /// The search for the bucket of an instant, where each event counts only in the bucket of its time.
    pub(super) fn lookup(&self) -> Option<BucketLookup<'_>> {
        self.is_one_to_one().then(|| BucketLookup::new(self.buckets, self.bounds, NO_BUCKET))
    }

    /// The buckets that count an instant.
    #[inline]
    pub(super) fn span_at(&self, time: Micros) -> Option<BucketSpan> {
        if time < self.bounds.0 || time > self.bounds.1 {
            return None;
        }
        let Some(buckets) = self.buckets else { return Some(BucketSpan { from: 0, until: 1 }) };
        let (from, until) = match &self.rolling_window {
            RollingWindow::None => buckets.index(time).map(|index| (index, index + 1))?,
            RollingWindow::Clock(interval, length, starts) => {
                let zone = buckets.starts().first()?.timezone();
                let unit = pennon_filters::dates::range::floor(zone::from_micros(time, zone), *interval);
                let unit = unit.timestamp_micros();
                let within = |edge: Micros| starts.partition_point(|start| *start < edge);
                (within(unit), within(unit + length))
            }
            RollingWindow::Days(window) => return window.span_at(time).filter(BucketSpan::is_not_empty),
        };
        let span = BucketSpan { from: u32::try_from(from).ok()?, until: u32::try_from(until).ok()? };
        span.is_not_empty().then_some(span)
    }
}

impl BucketSpan {
    /// Whether it contains a bucket.
    fn is_not_empty(&self) -> bool {
        self.from < self.until
    }
}

impl DayWindow {
    /// Precomputes the buckets of the days between two instants.
    fn new(days: u64, zone: Tz, starts: Vec<NaiveDate>, (first, last): (Micros, Micros)) -> Self {
        let mut window = Self { days, zone, starts, day_starts: BucketStarts::default(), spans: Vec::new() };
        let mut day_starts = Vec::new();
        let mut day = zone::from_micros(first, zone).date_naive();
        let mut day_start = zone::day_start(day, zone);
        // The table covers at most as many days as there may be buckets; later days are computed on demand.
        while day_start.timestamp_micros() <= last && window.spans.len() <= limits::BUCKETS {
            let Some(next) = day.checked_add_days(Days::new(1)) else { break };
            let next_day_start = zone::day_start(next, zone);
            let day_end = zone::shift(next_day_start, Duration::microseconds(-1));
            let is_regular = day_start.offset().fix() == day_end.offset().fix()
                && (day_start.date_naive(), day_end.date_naive()) == (day, day);
            day_starts.push(day_start.timestamp_micros());
            window.spans.push(is_regular.then(|| window.span_of_day(day)).flatten());
            (day, day_start) = (next, next_day_start);
        }
        day_starts.push(day_start.timestamp_micros());
        window.spans.push(None);
        window.day_starts = BucketStarts::new(day_starts);
        window
    }

    #[inline]
    fn span_at(&self, time: Micros) -> Option<BucketSpan> {
        let known = self.day_starts.find(time).and_then(|index| self.spans.get(index).copied());
        known.flatten().or_else(|| self.span_of_day(zone::from_micros(time, self.zone).date_naive()))
    }

    fn span_of_day(&self, day: NaiveDate) -> Option<BucketSpan> {
        let after = day.checked_add_days(Days::new(self.days))?;
        let within = |edge: NaiveDate| self.starts.partition_point(|start| *start < edge);
        Some(BucketSpan { from: u32::try_from(within(day)).ok()?, until: u32::try_from(within(after)).ok()? })
    }
}

/// The same wall-clock time `days` earlier.
fn days_before(at: DateTime<Tz>, days: u16) -> DateTime<Tz> {
    let local = at.naive_local();
    let earlier = local.checked_sub_days(Days::new(u64::from(days)));
    // No date is earlier than the years that chrono supports.
    earlier.map_or(at, |earlier| zone::at(earlier, at.timezone()))
}
