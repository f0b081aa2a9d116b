//! Converts filter values and property values to instants.
//!
//! Must stay true: both sides are parsed by the same rules; only a property value may also be a Unix time. An instant
//! has microseconds and is in the years 1 to 9999.

use chrono::{DateTime, Datelike, Utc};
use chrono_tz::Tz;
use pennon_filters::dates::grammar::Relative;
use pennon_filters::dates::{Micros, zone};
use pennon_filters::text;

use super::predicate::ComparableValue;
use crate::conditions::date_value::{self, DateValue};

/// The context for parsing dates: the project's time zone for dates without an offset, and the time of evaluation.
#[derive(Debug, Clone, Copy)]
pub struct EvaluationClock {
    pub(crate) zone: Tz,
    pub(crate) now: DateTime<Utc>,
}

/// A parsed date: an instant, or a duration before the time of evaluation.
#[derive(Debug, Clone, Copy)]
pub enum DateBound {
    /// An instant.
    Fixed(Micros),
    /// Before the time of evaluation.
    Relative(Relative),
}

impl DateBound {
    /// Parses a string; dates without an offset are in `zone`.
    pub fn parse(text: &str, zone: Tz) -> Option<Self> {
        match date_value::parse(text)? {
            DateValue::Relative(relative) => Some(Self::Relative(relative)),
            DateValue::Absolute(parsed) => {
                in_range(zone::micros_of(parsed.local, parsed.offset, zone)).map(Self::Fixed)
            }
        }
    }

    /// The instant. `None` outside of the years 1 to 9999.
    pub fn at(self, clock: &EvaluationClock) -> Option<Micros> {
        match self {
            Self::Fixed(instant) => Some(instant),
            Self::Relative(relative) => {
                in_range(relative.before_instant(clock.now, clock.zone)?.timestamp_micros())
            }
        }
    }
}

impl EvaluationClock {
    /// Parses a relative or absolute date.
    pub fn parse(&self, text: &str) -> Option<Micros> {
        DateBound::parse(text, self.zone)?.at(self)
    }

    /// Parses a property value.
    pub fn parse_property(&self, value: ComparableValue<'_>) -> Option<Micros> {
        match value {
            ComparableValue::Text(text) => match text::numeric(text) {
                Some(seconds) => from_unix_seconds(seconds),
                None => self.parse(text),
            },
            ComparableValue::Json(value) => from_unix_seconds(value.as_f64()?),
        }
    }
}

fn in_range(instant: Micros) -> Option<Micros> {
    let year = DateTime::from_timestamp_micros(instant)?.year();
    (1..=9999).contains(&year).then_some(instant)
}

fn from_unix_seconds(seconds: f64) -> Option<Micros> {
    /// Beyond this no instant is in range; below, microseconds fit an integer.
    const LIMIT: f64 = 1e12;
    if seconds.is_nan() || seconds.abs() > LIMIT {
        return None;
    }
    in_range((seconds * 1e6).round() as i64)
}
