//! Converts filter values and property values to instants.
//!
//! Must stay true: both sides are parsed by the same rules; only a property value may also be a Unix time. An instant
//! has microseconds and is in the years 1 to 9999.

use chrono::{DateTime, Datelike, Months, NaiveDateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use pennon_filters::dates::zone;
use pennon_filters::text;

use super::predicate::ComparableValue;
use crate::conditions::date_value::{self, DateValue, Unit};

/// The context for parsing dates: the project's time zone for dates without an offset, and the time of evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub(crate) zone: Tz,
    pub(crate) now: DateTime<Utc>,
}

/// A parsed date: an instant, or a duration before the time of evaluation.
#[derive(Debug, Clone, Copy)]
pub enum DateBound {
    /// Microseconds since the epoch.
    Fixed(i64),
    /// This many units before the time of evaluation.
    Relative(u32, Unit),
}

impl DateBound {
    /// Parses a string; dates without an offset are in `zone`.
    pub fn parse(text: &str, zone: Tz) -> Option<Self> {
        let instant = match date_value::parse(text)? {
            DateValue::Before(count, unit) => return Some(Self::Relative(count, unit)),
            DateValue::At(timestamp) => timestamp.to_utc()?,
            DateValue::Local(local) => zone::at(local, zone).with_timezone(&Utc),
        };
        in_range(instant).map(Self::Fixed)
    }

    /// The instant in microseconds since the epoch. `None` outside of the years 1 to 9999.
    pub fn at(self, clock: &Clock) -> Option<i64> {
        match self {
            Self::Fixed(instant) => Some(instant),
            Self::Relative(count, unit) => in_range(clock.subtract(count, unit)?),
        }
    }
}

impl Clock {
    /// Parses a relative or absolute date, to microseconds since the epoch.
    pub fn parse(&self, text: &str) -> Option<i64> {
        DateBound::parse(text, self.zone)?.at(self)
    }

    /// Parses a property value, to microseconds since the epoch.
    pub fn parse_property(&self, value: ComparableValue<'_>) -> Option<i64> {
        match value {
            ComparableValue::Text(text) => match text::numeric(text) {
                Some(seconds) => from_unix_seconds(seconds),
                None => self.parse(text),
            },
            ComparableValue::Json(value) => from_unix_seconds(value.as_f64()?),
        }
    }

    /// Hours, days and weeks are durations; months and years are calendar steps in the project's time zone.
    fn subtract(&self, count: u32, unit: Unit) -> Option<DateTime<Utc>> {
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

fn from_unix_seconds(seconds: f64) -> Option<i64> {
    /// Beyond this no instant is in range; below, microseconds fit an integer.
    const LIMIT: f64 = 1e12;
    if seconds.is_nan() || seconds.abs() > LIMIT {
        return None;
    }
    in_range(DateTime::from_timestamp_micros((seconds * 1e6).round() as i64)?)
}
