//! When an event happened, by our clock.
//!
//! The client's clock is corrected by the difference that it shows when it sends, unless the event forbids it. Must stay
//! true, as with the vendor: a time that cannot be read is the time of arrival; one that lies more than 23 hours ahead is
//! too, unless the batch is history that is being moved; what ends up outside of the years 1 to 9999 is the epoch.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use pennon_eventstore::{parse_four_digit_year, parse_timestamp};
use serde_json::Value;

use crate::event::Place;
use crate::refusal::Refusal;

/// An instant in microseconds since the epoch.
type Micros = i64;

/// How far ahead of its arrival an event may be.
const AHEAD_MAX: Micros = 23 * 3_600_000_000;
/// The years 1 to 9999.
const YEARS: std::ops::RangeInclusive<Micros> = -62_135_596_800_000_000..=253_402_300_799_999_999;
/// Most milliseconds of an offset: three thousand years.
const OFFSET_MAX: f64 = 1e14;

/// When an event happened, as far as it says so itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It does not say, or nothing that can be read.
    Nothing,
    /// By the client's clock.
    ByClient(Micros),
    /// By a clock that is not to be corrected.
    Exactly(Micros),
    /// So long before it arrived.
    Before(Micros),
}

/// The clocks of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub now: Micros,
    /// The client's clock when it sent the request.
    pub sent_at: Option<Micros>,
    /// Whether the batch is history that is being moved.
    pub historical: bool,
}

impl Clock {
    /// When an event happened that tells this.
    pub(crate) fn instant(self, told: Told) -> Micros {
        let skew = self.sent_at.map_or(0, |sent_at| self.now.saturating_sub(sent_at));
        let at = match told {
            Told::Nothing => self.now,
            Told::ByClient(at) => at.saturating_add(skew),
            Told::Exactly(at) => at,
            Told::Before(offset) => self.now.saturating_sub(offset),
        };
        if !self.historical && at.saturating_sub(self.now) > AHEAD_MAX {
            return self.now;
        }
        if YEARS.contains(&at) { at } else { 0 }
    }
}

/// What an event tells by these two fields; of both the offset counts. None where there is a time that cannot be read.
pub(crate) fn told(
    timestamp: Option<&Value>,
    offset: Option<&Value>,
    is_exact: bool,
    place: Place,
) -> Result<Option<Told>, Refusal> {
    let at = match timestamp {
        None | Some(Value::Null) => Some(Told::Nothing),
        Some(Value::String(text)) if text.trim().is_empty() => Some(Told::Nothing),
        Some(Value::String(text)) => {
            read(text).map(|at| if is_exact { Told::Exactly(at) } else { Told::ByClient(at) })
        }
        Some(_) => {
            return Err(place.refuse("invalid_input", "This is no ISO 8601 time.", "timestamp"));
        }
    };
    let wrong = || place.refuse("invalid_input", "A number of milliseconds is required.", "offset");
    match offset {
        None | Some(Value::Null) => Ok(at),
        Some(offset) => {
            let milliseconds =
                offset.as_f64().filter(|offset| offset.abs() < OFFSET_MAX).ok_or_else(wrong)?;
            Ok(Some(Told::Before((milliseconds * 1000.0) as Micros)))
        }
    }
}

/// An instant in one of the forms that the vendor reads: ISO 8601, RFC 2822, a number since the epoch whose length tells
/// the unit, dates with slashes.
pub(crate) fn read(text: &str) -> Option<Micros> {
    let text = text.trim();
    parse_timestamp(text).or_else(|| parse_four_digit_year(text)).or_else(|| other_forms(text))
}

fn other_forms(text: &str) -> Option<Micros> {
    const DATES: [&str; 2] = ["%Y/%m/%d", "%m/%d/%Y"];
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse::<i64>().ok()?;
        return match text.len() {
            10 => Some(number * 1_000_000),
            13 => Some(number * 1_000),
            16 => Some(number),
            19 => Some(number / 1_000),
            _ => None,
        };
    }
    if let Ok(at) = DateTime::parse_from_rfc2822(text) {
        return Some(at.with_timezone(&Utc).timestamp_micros());
    }
    let date = |form| NaiveDate::parse_from_str(text, form).ok()?.and_hms_opt(0, 0, 0);
    let with_time = |form: &&str| NaiveDateTime::parse_from_str(text, &format!("{form} %H:%M:%S%.f")).ok();
    let at = DATES.iter().find_map(with_time).or_else(|| DATES.into_iter().find_map(date))?;
    Some(at.and_utc().timestamp_micros())
}
