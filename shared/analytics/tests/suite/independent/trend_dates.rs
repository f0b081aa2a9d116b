//! Ranges of trends, on the clock of the project's zone.

use chrono::{
    Datelike, Duration, LocalResult, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Timelike,
};
use chrono_tz::Tz;

use super::calendar::{Calendar, Period, local};
use super::history::SECOND;

/// A date as a request has it.
#[derive(Clone, Debug, PartialEq)]
pub enum DateText {
    Day(NaiveDate),
    Clock(NaiveDateTime),
    Relative { count: Option<u32>, unit: char, edge: &'static str },
    All,
}

fn last_of_month(day: NaiveDate) -> NaiveDate {
    day.with_day(1).unwrap().checked_add_months(Months::new(1)).unwrap().pred_opt().unwrap()
}

fn end_of_day(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::MIN) + Duration::days(1) - Duration::microseconds(1)
}

fn start_of_hour(time: NaiveDateTime) -> NaiveDateTime {
    time.date().and_hms_opt(time.hour(), 0, 0).unwrap()
}

fn start_of_minute(time: NaiveDateTime) -> NaiveDateTime {
    time.date().and_hms_opt(time.hour(), time.minute(), 0).unwrap()
}

impl DateText {
    pub fn text(&self) -> String {
        match self {
            Self::Day(day) => day.to_string(),
            Self::Clock(time) => time.format("%Y-%m-%dT%H:%M:%S").to_string(),
            Self::Relative { count, unit, edge } => {
                let count = count.map_or(String::new(), |count| format!("-{count}"));
                format!("{count}{unit}{edge}")
            }
            Self::All => "all".to_owned(),
        }
    }

    pub fn is_absolute(&self) -> bool {
        matches!(self, Self::Day(_) | Self::Clock(_))
    }

    fn has_hours(&self) -> bool {
        matches!(self, Self::Relative { unit: 'h', .. })
    }

    /// Before any rounding.
    pub fn at(&self, now: NaiveDateTime, earliest: NaiveDateTime) -> NaiveDateTime {
        let (count, unit, edge) = match self {
            Self::Day(day) => return day.and_time(NaiveTime::MIN),
            Self::Clock(time) => return *time,
            Self::All => return earliest,
            Self::Relative { count, unit, edge } => (count.unwrap_or(0), *unit, *edge),
        };
        let months = match unit {
            'm' => count,
            'y' => 12 * count,
            _ => 0,
        };
        let mut time = now.checked_sub_months(Months::new(months)).unwrap();
        let day = time.date();
        time = match (unit, edge) {
            ('h', "Start") => start_of_hour(time),
            ('h', "End") => start_of_hour(time) + Duration::hours(1) - Duration::microseconds(1),
            ('d', "Start") => day.and_time(NaiveTime::MIN),
            ('d', "End") => end_of_day(day),
            ('m', "Start") => day.with_day(1).unwrap().and_time(time.time()),
            ('m' | 'y', "End") => last_of_month(day).and_time(time.time()),
            ('y', "Start") => NaiveDate::from_ymd_opt(day.year(), 1, 1).unwrap().and_time(time.time()),
            _ => time,
        };
        let count = i64::from(count);
        time - match unit {
            'h' => Duration::hours(count),
            'd' => Duration::days(count),
            'w' => Duration::weeks(count),
            'q' => Duration::weeks(13 * count),
            'M' => Duration::minutes(count),
            _ => Duration::zero(),
        }
    }
}

/// The dates and the interval of a query.
#[derive(Clone, Debug)]
pub struct RangeSpec {
    pub from: Option<DateText>,
    pub to: Option<DateText>,
    pub explicit: bool,
    pub interval: &'static str,
    /// The result is one total.
    pub total: bool,
    /// The range of the total is not rounded.
    pub bold: bool,
}

/// The range of a `RangeSpec`.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub calendar: Calendar,
    pub from: NaiveDateTime,
    pub to: NaiveDateTime,
    /// First instant counted where that is not `from`.
    pub first: NaiveDateTime,
}

impl Range {
    pub fn current(range_spec: &RangeSpec, zone: Tz, week_start: i64, now: i64, earliest: i64) -> Self {
        let interval = if range_spec.total { "day" } else { range_spec.interval };
        let calendar = Calendar { zone, week_start, interval };
        let now = local(zone, now).naive_local();
        let earliest = local(zone, earliest).naive_local();
        let from = match &range_spec.from {
            None => (now.date() - Duration::days(7)).and_time(NaiveTime::MIN),
            Some(text) => {
                let at = text.at(now, earliest);
                let kept = interval == "minute" || range_spec.bold || range_spec.explicit;
                match text {
                    DateText::Relative { .. } if kept => at,
                    DateText::Relative { .. } if text.has_hours() => start_of_hour(at),
                    DateText::Relative { .. } => at.date().and_time(NaiveTime::MIN),
                    _ => at,
                }
            }
        };
        let absolute = range_spec.to.as_ref().is_some_and(DateText::is_absolute);
        let at = range_spec.to.as_ref().map_or(now, |text| text.at(now, earliest));
        let to = match interval {
            _ if range_spec.explicit || range_spec.bold && range_spec.to.is_none() => at,
            "hour" if !absolute => start_of_hour(at) + Duration::hours(1) - Duration::microseconds(1),
            "minute" if !absolute => start_of_minute(at) + Duration::minutes(1) - Duration::microseconds(1),
            "hour" | "minute" => at,
            _ => end_of_day(at.date()),
        };
        Self::of(calendar, range_spec, from, to)
    }

    fn of(calendar: Calendar, range_spec: &RangeSpec, from: NaiveDateTime, to: NaiveDateTime) -> Self {
        let relative = matches!(range_spec.from, Some(DateText::Relative { .. }));
        let hours = range_spec.from.as_ref().is_some_and(DateText::has_hours);
        let first = match calendar.interval {
            _ if range_spec.explicit || range_spec.bold => from,
            "hour" | "minute" if relative => from,
            "minute" => start_of_minute(from),
            "hour" => start_of_hour(from),
            "day" if hours => from,
            "month" => from.date().with_day(1).unwrap().and_time(NaiveTime::MIN),
            _ => from.date().and_time(NaiveTime::MIN),
        };
        Self { calendar, from, to, first }
    }

    /// The range that this one is compared with.
    pub fn previous(&self, range_spec: &RangeSpec, back: Option<&DateText>) -> Self {
        let length = self.to - self.from;
        if let Some(back) = back {
            let from = back.at(self.from, self.from);
            return Self::of(self.calendar, range_spec, from, from + length);
        }
        let mut from = self.from - length;
        if range_spec.interval == "minute" {
            return Self::of(self.calendar, range_spec, from, self.from);
        }
        from = from.date().and_time(self.from.time());
        let weeks = match &range_spec.from {
            // The default is a week.
            None => true,
            Some(DateText::Relative { count: Some(count), unit: 'd', edge: "" }) => count % 7 == 0,
            _ => false,
        };
        let relative_end = matches!(range_spec.to, Some(DateText::Relative { .. }));
        if range_spec.interval == "day" && weeks && !relative_end {
            from += Duration::days(1);
        }
        let mut to = from + length;
        to = if range_spec.interval == "hour" {
            start_of_hour(to) + (self.to - start_of_hour(self.to))
        } else {
            to.date().and_time(self.to.time())
        };
        Self::of(self.calendar, range_spec, from, to)
    }

    /// `None` if the local time occurs twice or never.
    fn instant(&self, time: NaiveDateTime) -> Option<i64> {
        match self.calendar.zone.from_local_datetime(&time) {
            LocalResult::Single(time) => Some(time.timestamp_micros()),
            _ => None,
        }
    }

    /// No clock change makes its ends doubtful.
    pub fn is_clear(&self) -> bool {
        [self.from, self.to, self.first].into_iter().all(|time| self.instant(time).is_some())
    }

    pub fn start_instant(&self) -> i64 {
        self.instant(self.from).unwrap()
    }

    pub fn first_instant(&self) -> i64 {
        self.instant(self.first).unwrap()
    }

    pub fn end_instant(&self) -> i64 {
        self.instant(self.to).unwrap()
    }

    /// In whole seconds.
    pub fn last_instant(&self) -> i64 {
        self.instant(self.to).unwrap().div_euclid(SECOND) * SECOND
    }

    /// An instant so many days before another, by the clock.
    pub fn days_before(&self, time: NaiveDateTime, days: i64) -> i64 {
        let local = time - Duration::days(days);
        self.calendar.zone.from_local_datetime(&local).earliest().map_or(0, |time| time.timestamp_micros())
    }

    pub fn periods(&self) -> Vec<Period> {
        if self.from > self.to {
            return Vec::new();
        }
        self.calendar.periods(self.start_instant(), self.instant(self.to).unwrap())
    }

    pub fn label(&self, period: &Period) -> String {
        let day = |format: &str, day: NaiveDate| day.format(format).to_string();
        let start = period.local.date();
        match self.calendar.interval {
            "hour" | "minute" => period.local.format("%-d-%b %H:%M").to_string(),
            "month" => day("%b %Y", start),
            "week" => {
                let end = (start + Duration::days(6)).min(self.to.date());
                let start = start.max(self.from.date());
                let end = end.max(start);
                if start == end {
                    day("%-d-%b-%Y", start)
                } else if start.year() != end.year() {
                    format!("{} \u{2013} {}", day("%-d-%b-%Y", start), day("%-d-%b-%Y", end))
                } else if start.month() == end.month() {
                    format!("{}\u{2013}{}", start.day(), day("%-d %b", end))
                } else {
                    format!("{} \u{2013} {}", day("%-d-%b", start), day("%-d-%b", end))
                }
            }
            _ => day("%-d-%b-%Y", start),
        }
    }
}

impl Range {
    /// When a day begins.
    pub fn midnight(&self, day: NaiveDateTime) -> i64 {
        self.calendar.zone.from_local_datetime(&day).earliest().unwrap().timestamp_micros()
    }
}
