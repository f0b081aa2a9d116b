//! Maps the time of an event to the buckets that count it.
//!
//! Must stay true: an event counts in consecutive buckets, exactly one unless the series has a rolling window. All series
//! of a period share its buckets, but the first counted instant depends on the aggregation.

use chrono::{DateTime, Days, Duration, NaiveDate, Offset};
use chrono_tz::Tz;

use crate::dates::buckets::Buckets;
use crate::dates::places::Places;
use crate::dates::range::DateRange;
use crate::dates::{Interval, zone};
use crate::limits;
use crate::query::Math;
use crate::scan::Micros;

/// A day in microseconds.
const DAY: Micros = 86_400_000_000;

/// The consecutive buckets `from..until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
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
pub(super) struct Slots<'a> {
    /// First and last instant to count.
    pub(super) bounds: (Micros, Micros),
    /// `None` for a total.
    pub(super) buckets: Option<&'a Buckets>,
    look: Look,
}

#[derive(Debug, Clone)]
enum Look {
    /// No rolling window: an event counts in the bucket of its time.
    Here,
    /// A window of this many microseconds that ends with the bucket; times are truncated to the interval. The last field
    /// holds the starts of the buckets.
    Back(Interval, Micros, Vec<Micros>),
    /// A window of days that ends with the first day of the bucket.
    BackDays(BackDays),
}

/// A rolling window of days over buckets of days, weeks or months.
#[derive(Debug, Clone)]
struct BackDays {
    days: u64,
    zone: Tz,
    starts: Vec<NaiveDate>,
    /// The first instants of the days, from the first counted one to the last.
    mornings: Places,
    /// By day: its buckets. `None` for days with a clock change, whose instants do not all follow their first one.
    slots: Vec<Option<Slot>>,
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
    pub(super) fn slots(&self, math: &Math) -> Slots<'_> {
        let (first, look) = match math {
            Math::Rolling(days, _) => {
                let end = if self.total { self.range.to } else { self.range.from };
                let first = days_before(end, *days).timestamp_micros();
                (first, self.look_back(*days, first))
            }
            Math::PerActor(_) => (self.range.from.timestamp_micros(), Look::Here),
            _ => (self.range.first.timestamp_micros(), Look::Here),
        };
        Slots { bounds: (first, self.last), buckets: (!self.total).then_some(&self.buckets), look }
    }

    /// The whole range as one bucket, up to its exact end: the range of a people link.
    pub(super) fn whole(&self) -> Slots<'_> {
        let bounds = (self.range.first.timestamp_micros(), self.range.to.timestamp_micros());
        Slots { bounds, buckets: None, look: Look::Here }
    }

    fn look_back(&self, days: u16, first: Micros) -> Look {
        let starts = self.buckets.starts();
        if self.total {
            Look::Here
        } else if self.interval.is_clock() {
            let starts = starts.iter().map(DateTime::timestamp_micros).collect();
            Look::Back(self.interval, Micros::from(days) * DAY, starts)
        } else {
            let starts = starts.iter().map(DateTime::date_naive).collect();
            let zone = self.range.from.timezone();
            Look::BackDays(BackDays::new(u64::from(days), zone, starts, (first, self.last)))
        }
    }

    /// By bucket: the time range that it counts, inclusive, for its people link.
    pub(super) fn spans(&self, math: &Math, running: bool) -> Vec<(Micros, Micros)> {
        let slots = self.slots(math);
        let own = self.buckets.spans(slots.bounds.0, self.last);
        let start = |index: usize, from: Micros| match &slots.look {
            _ if running => slots.bounds.0,
            Look::Here => from,
            Look::Back(_, length, starts) => {
                let step = if self.interval == Interval::Minute { DAY / 1440 } else { DAY / 24 };
                starts.get(index).map_or(from, |start| start + step - length)
            }
            Look::BackDays(BackDays { days, zone, starts, .. }) => starts.get(index).map_or(from, |day| {
                let day = day.checked_sub_days(Days::new(days - 1)).unwrap_or(*day);
                zone::day_start(day, *zone).timestamp_micros()
            }),
        };
        let end = |index: usize, to: Micros| match &slots.look {
            Look::BackDays(BackDays { zone, starts, .. }) => starts.get(index).map_or(to, |day| {
                let next = day.checked_add_days(Days::new(1)).unwrap_or(*day);
                to.min(zone::day_start(next, *zone).timestamp_micros() - 1)
            }),
            _ => to,
        };
        let span = |(index, (from, to)): (usize, (Micros, Micros))| {
            (start(index, from).max(slots.bounds.0), end(index, to))
        };
        own.into_iter().enumerate().map(span).collect()
    }
}

impl Slots<'_> {
    /// Whether each event counts only in the bucket of its time.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.look, Look::Here)
    }

    /// The buckets that count an instant.
    #[inline]
    pub(super) fn at(&self, time: Micros) -> Option<Slot> {
        if time < self.bounds.0 || time > self.bounds.1 {
            return None;
        }
        let Some(buckets) = self.buckets else { return Some(Slot { from: 0, until: 1 }) };
        let (from, until) = match &self.look {
            Look::Here => buckets.index(time).map(|index| (index, index + 1))?,
            Look::Back(interval, length, starts) => {
                let zone = buckets.starts().first()?.timezone();
                let unit = crate::dates::range::floor(zone::from_micros(time, zone), *interval);
                let unit = unit.timestamp_micros();
                let within = |edge: Micros| starts.partition_point(|start| *start < edge);
                (within(unit), within(unit + length))
            }
            Look::BackDays(back) => return back.at(time).filter(Slot::is_some),
        };
        let slot = Slot { from: u32::try_from(from).ok()?, until: u32::try_from(until).ok()? };
        slot.is_some().then_some(slot)
    }
}

impl Slot {
    /// Whether it contains a bucket.
    fn is_some(&self) -> bool {
        self.from < self.until
    }
}

impl BackDays {
    /// Precomputes the buckets of the days between two instants.
    fn new(days: u64, zone: Tz, starts: Vec<NaiveDate>, (first, last): (Micros, Micros)) -> Self {
        let mut back = Self { days, zone, starts, mornings: Places::default(), slots: Vec::new() };
        let mut mornings = Vec::new();
        let mut day = zone::from_micros(first, zone).date_naive();
        let mut morning = zone::day_start(day, zone);
        // The table covers at most as many days as there may be buckets; later days are computed on demand.
        while morning.timestamp_micros() <= last && back.slots.len() <= limits::BUCKETS {
            let Some(next) = day.checked_add_days(Days::new(1)) else { break };
            let next_morning = zone::day_start(next, zone);
            let evening = zone::shift(next_morning, Duration::microseconds(-1));
            let even = morning.offset().fix() == evening.offset().fix()
                && (morning.date_naive(), evening.date_naive()) == (day, day);
            mornings.push(morning.timestamp_micros());
            back.slots.push(even.then(|| back.of_day(day)).flatten());
            (day, morning) = (next, next_morning);
        }
        mornings.push(morning.timestamp_micros());
        back.slots.push(None);
        back.mornings = Places::new(mornings);
        back
    }

    #[inline]
    fn at(&self, time: Micros) -> Option<Slot> {
        let known = self.mornings.find(time).and_then(|index| self.slots.get(index).copied());
        known.flatten().or_else(|| self.of_day(zone::from_micros(time, self.zone).date_naive()))
    }

    fn of_day(&self, day: NaiveDate) -> Option<Slot> {
        let after = day.checked_add_days(Days::new(self.days))?;
        let within = |edge: NaiveDate| self.starts.partition_point(|start| *start < edge);
        Some(Slot { from: u32::try_from(within(day)).ok()?, until: u32::try_from(within(after)).ok()? })
    }
}

/// The same wall-clock time `days` earlier.
fn days_before(at: DateTime<Tz>, days: u16) -> DateTime<Tz> {
    let local = at.naive_local();
    let earlier = local.checked_sub_days(Days::new(u64::from(days)));
    // No date is earlier than the years that chrono supports.
    earlier.map_or(at, |earlier| zone::at(earlier, at.timezone()))
}
