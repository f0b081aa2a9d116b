//! Which buckets an event counts in, by its time.
//!
//! Must stay true: an event counts in neighbouring buckets, one unless the series looks back over days; all series of a
//! period share its buckets, but each kind of counting has its own first instant.

use chrono::{DateTime, Days, Duration, NaiveDate, Offset};
use chrono_tz::Tz;

use crate::dates::bucket_search::BucketStarts;
use crate::dates::buckets::Buckets;
use crate::dates::range::DateRange;
use crate::dates::{Interval, zone};
use crate::limits;
use crate::query::Math;
use crate::scan::Micros;

/// A day in microseconds.
const DAY: Micros = 86_400_000_000;

/// Buckets `from..until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) from: u32,
    pub(super) until: u32,
}

/// A range of time and its buckets.
#[derive(Debug, Clone)]
pub(super) struct Period {
    pub(super) range: DateRange,
    pub(super) buckets: Buckets,
    /// One number over the whole range.
    pub(super) total: bool,
    interval: Interval,
    /// The end, in whole seconds.
    last: Micros,
}

/// The slots of one series in one period.
#[derive(Debug, Clone)]
pub(super) struct Slots<'a> {
    /// First and last instant that count.
    pub(super) bounds: (Micros, Micros),
    /// None: one number over everything.
    pub(super) buckets: Option<&'a Buckets>,
    look: Look,
}

#[derive(Debug, Clone)]
enum Look {
    /// Each event in its bucket.
    Here,
    /// Over so many microseconds that end with the bucket; times are cut to the interval.
    Back(Interval, Micros, Vec<Micros>),
    /// Over so many days that end with the bucket's first.
    BackDays(BackDays),
}

/// Buckets that look back over days, by the day of an event.
#[derive(Debug, Clone)]
struct BackDays {
    days: u64,
    zone: Tz,
    starts: Vec<NaiveDate>,
    /// The first instants of the days from the first one that counts to the last.
    mornings: BucketStarts,
    /// By day its buckets; none where clocks change, so that it is not told by its first instant what belongs to it.
    slots: Vec<Option<Slot>>,
}

impl Period {
    /// The period of a range.
    pub(super) fn new(range: DateRange, buckets: Buckets, interval: Interval, total: bool) -> Self {
        Self { range, buckets, total, interval, last: range.to.timestamp() * 1_000_000 }
    }

    /// Numbers of a series.
    pub(super) fn width(&self) -> usize {
        if self.total { 1 } else { self.buckets.len() }
    }

    /// The slots of a series that counts so.
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

    /// The range as one, to its very end: what a link to people asks for.
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

    /// What each bucket counts of the time, both ends included, for links to its people.
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
    /// Each event counts in the bucket of its time, and nowhere else.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.look, Look::Here)
    }

    /// The buckets that an instant counts in.
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
    /// There is a bucket in it.
    fn is_some(&self) -> bool {
        self.from < self.until
    }
}

impl BackDays {
    /// With a table of the days between these instants.
    fn new(days: u64, zone: Tz, starts: Vec<NaiveDate>, (first, last): (Micros, Micros)) -> Self {
        let mut back = Self { days, zone, starts, mornings: BucketStarts::default(), slots: Vec::new() };
        let mut mornings = Vec::new();
        let mut day = zone::from_micros(first, zone).date_naive();
        let mut morning = zone::day_start(day, zone);
        // A table of more days than buckets look back on is never needed.
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
        back.mornings = BucketStarts::new(mornings);
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

/// The same wall-clock time so many days earlier.
fn days_before(at: DateTime<Tz>, days: u16) -> DateTime<Tz> {
    let local = at.naive_local();
    let earlier = local.checked_sub_days(Days::new(u64::from(days)));
    // Before all years that dates may name lies nothing.
    earlier.map_or(at, |earlier| zone::at(earlier, at.timezone()))
}
