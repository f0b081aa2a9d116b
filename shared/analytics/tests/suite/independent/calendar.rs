//! Periods by the calendar: hours walked one by one, days by their dates.

use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use chrono_tz::Tz;

use super::history::{HOUR, SECOND, utc};

/// The local time of an instant.
pub fn local(zone: Tz, time: i64) -> DateTime<Tz> {
    utc(time).with_timezone(&zone)
}

#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    pub zone: Tz,
    pub week_start: i64,
    pub interval: &'static str,
}

/// The start of a period: its local time, and for hours and minutes the instant, because an hour may occur twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    pub instant: i64,
    pub local: NaiveDateTime,
}

impl Calendar {
    pub fn is_short(&self) -> bool {
        matches!(self.interval, "hour" | "minute")
    }

    fn width(&self) -> i64 {
        if self.interval == "hour" { HOUR } else { 60 * SECOND }
    }

    /// The first day of the period of a day.
    pub fn first_day(&self, mut day: NaiveDate) -> NaiveDate {
        while match self.interval {
            "week" if self.week_start == 1 => day.weekday().number_from_monday() != 1,
            "week" => day.weekday().number_from_sunday() != 1,
            "month" => day.day() != 1,
            _ => false,
        } {
            day = day.pred_opt().unwrap();
        }
        day
    }

    pub fn period(&self, time: i64) -> Period {
        let shown = local(self.zone, time);
        if !self.is_short() {
            let local = self.first_day(shown.date_naive()).and_time(NaiveTime::MIN);
            return Period { instant: 0, local };
        }
        let minutes = if self.interval == "hour" { i64::from(shown.minute()) } else { 0 };
        let past = (minutes * 60 + i64::from(shown.second())) * SECOND + time.rem_euclid(SECOND);
        Period { instant: time - past, local: local(self.zone, time - past).naive_local() }
    }

    /// All periods from that of one instant to that of another.
    pub fn periods(&self, from: i64, to: i64) -> Vec<Period> {
        let (first, last) = (self.period(from), self.period(to));
        let mut periods = Vec::new();
        if self.is_short() {
            let mut instant = first.instant;
            while instant <= last.instant {
                periods.push(Period { instant, local: local(self.zone, instant).naive_local() });
                instant += self.width();
            }
            return periods;
        }
        let mut day = first.local.date();
        while day <= last.local.date() {
            if self.first_day(day) == day {
                periods.push(Period { instant: 0, local: day.and_time(NaiveTime::MIN) });
            }
            day = day.checked_add_days(Days::new(1)).unwrap();
        }
        periods
    }

    /// As in `days` of a result.
    pub fn day_text(&self, period: &Period) -> String {
        let format = if self.is_short() { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d" };
        period.local.format(format).to_string()
    }
}
