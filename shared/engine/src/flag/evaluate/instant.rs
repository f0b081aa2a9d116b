//! The instants that filter values and property values stand for.
//!
//! Must stay true: both sides are read by the same rules; only a property's value may also be a Unix time. An instant
//! has microseconds and lies in the years 1 to 9999.

use chrono::{DateTime, Datelike, Months, NaiveDateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::predicate::Given;
use crate::{
    dates::zone,
    flag::date_value::{self, DateValue, Unit},
    text,
};

/// What turns texts into instants: the project's zone for times without an offset, and the moment of evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub(in crate::flag) zone: Tz,
    pub(in crate::flag) now: DateTime<Utc>,
}

/// What a date text stands for: an instant, or a length of time before the moment of evaluation.
#[derive(Debug, Clone, Copy)]
pub enum DateBound {
    /// Microseconds since the epoch.
    Fixed(i64),
    /// So many units before the moment of evaluation.
    Relative(u32, Unit),
}

impl DateBound {
    /// Reads a text; times without an offset are in `zone`.
    pub fn parse(text: &str, zone: Tz) -> Option<Self> {
        let instant = match date_value::parse(text)? {
            DateValue::Before(count, unit) => return Some(Self::Relative(count, unit)),
            DateValue::At(written) => written.in_utc()?,
            DateValue::Local(local) => zone::at(local, zone).with_timezone(&Utc),
        };
        in_range(instant).map(Self::Fixed)
    }

    /// The instant, in microseconds since the epoch. None: it lies outside of the years 1 to 9999.
    pub fn at(self, clock: &Clock) -> Option<i64> {
        match self {
            Self::Fixed(instant) => Some(instant),
            Self::Relative(count, unit) => in_range(clock.before(count, unit)?),
        }
    }
}

impl Clock {
    /// The instant of a text, relative or absolute, in microseconds since the epoch.
    pub fn read(&self, text: &str) -> Option<i64> {
        DateBound::parse(text, self.zone)?.at(self)
    }

    /// The instant of a property's value.
    pub fn read_given(&self, given: Given<'_>) -> Option<i64> {
        match given {
            Given::Text(text) => match text::numeric(text) {
                Some(seconds) => unix(seconds),
                None => self.read(text),
            },
            Given::Json(value) => unix(value.as_f64()?),
        }
    }

    /// Hours, days and weeks are lengths of time, months and years steps in the calendar of the project's zone.
    fn before(&self, count: u32, unit: Unit) -> Option<DateTime<Utc>> {
        let count_i64 = i64::from(count);
        let ago = |length| self.now.checked_sub_signed(length);
        match unit {
            Unit::Hour => ago(TimeDelta::hours(count_i64)),
            Unit::Day => ago(TimeDelta::days(count_i64)),
            Unit::Week => ago(TimeDelta::weeks(count_i64)),
            Unit::Month => self.months_ago(count),
            Unit::Year => self.months_ago(count.checked_mul(12)?),
        }
    }

    fn months_ago(&self, count: u32) -> Option<DateTime<Utc>> {
        let local: NaiveDateTime = self.now.with_timezone(&self.zone).naive_local();
        let local = local.checked_sub_months(Months::new(count))?;
        Some(zone::at(local, self.zone).with_timezone(&Utc))
    }
}

fn in_range(instant: DateTime<Utc>) -> Option<i64> {
    (1..=9999).contains(&instant.year()).then(|| instant.timestamp_micros())
}

fn unix(seconds: f64) -> Option<i64> {
    /// Beyond this no instant is in range, and below a float's microseconds fit an integer.
    const LIMIT: f64 = 1e12;
    if seconds.is_nan() || seconds.abs() > LIMIT {
        return None;
    }
    in_range(DateTime::from_timestamp_micros((seconds * 1e6).round() as i64)?)
}
