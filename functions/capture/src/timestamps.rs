//! Computes the timestamp of an event by the server's clock.
//!
//! The client's clock skew is the difference between `sent_at` and the time of arrival; it is subtracted unless the event
//! disables that. Must stay true, as in PostHog: an event whose timestamp cannot be parsed gets the time of arrival; so does
//! one more than 23 hours in the future, unless the batch is a historical migration; a result outside of the years 1 to
//! 9999 becomes the epoch.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use pennon_core::limits::capture::OFFSET_MS_MAX;
use pennon_eventstore::{parse_four_digit_year, parse_timestamp};
use serde_json::Value;

use crate::error::CaptureError;
use crate::event::EventPath;

/// An instant in microseconds since the epoch.
type Micros = i64;

/// How far in the future of its arrival an event may be.
const FUTURE_MAX: Micros = 23 * 3_600_000_000;
/// The years 1 to 9999.
const VALID_RANGE: std::ops::RangeInclusive<Micros> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// The time fields of an event, before the correction by the request's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventTime {
    /// No timestamp, or none that can be parsed.
    Missing,
    /// By the client's clock, to be corrected by its skew.
    ClientClock(Micros),
    /// Not to be corrected.
    Exact(Micros),
    /// This long before the request arrived.
    BeforeArrival(Micros),
}

/// The clocks of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestClocks {
    pub now: Micros,
    /// The client's clock when it sent the request.
    pub sent_at: Option<Micros>,
    /// Whether the batch is a historical migration.
    pub historical: bool,
}

impl RequestClocks {
    /// The timestamp to store for an event with these time fields.
    pub(crate) fn resolve(self, time: EventTime) -> Micros {
        let skew = self.sent_at.map_or(0, |sent_at| self.now.saturating_sub(sent_at));
        let at = match time {
            EventTime::Missing => self.now,
            EventTime::ClientClock(at) => at.saturating_add(skew),
            EventTime::Exact(at) => at,
            EventTime::BeforeArrival(offset) => self.now.saturating_sub(offset),
        };
        if !self.historical && at.saturating_sub(self.now) > FUTURE_MAX {
            return self.now;
        }
        if VALID_RANGE.contains(&at) { at } else { 0 }
    }
}

/// Parses the time fields of an event; if both are set, the offset wins. `None` for a timestamp that cannot be parsed,
/// an error for a field of the wrong type.
pub(crate) fn parse_event_time(
    timestamp: Option<&Value>,
    offset: Option<&Value>,
    is_exact: bool,
    path: EventPath,
) -> Result<Option<EventTime>, CaptureError> {
    let time = match timestamp {
        None | Some(Value::Null) => Some(EventTime::Missing),
        Some(Value::String(text)) if text.trim().is_empty() => Some(EventTime::Missing),
        Some(Value::String(text)) => parse_time(text)
            .map(|at| if is_exact { EventTime::Exact(at) } else { EventTime::ClientClock(at) }),
        Some(_) => {
            return Err(path.invalid_field("invalid_input", "This is no ISO 8601 time.", "timestamp"));
        }
    };
    let invalid_offset =
        || path.invalid_field("invalid_input", "A number of milliseconds is required.", "offset");
    match offset {
        None | Some(Value::Null) => Ok(time),
        Some(offset) => {
            let milliseconds =
                offset.as_f64().filter(|offset| offset.abs() < OFFSET_MS_MAX).ok_or_else(invalid_offset)?;
            Ok(Some(EventTime::BeforeArrival((milliseconds * 1000.0) as Micros)))
        }
    }
}

/// Parses an instant in one of the formats that PostHog accepts: ISO 8601, RFC 2822, a number since the epoch whose number
/// of digits gives the unit, dates with slashes.
pub(crate) fn parse_time(text: &str) -> Option<Micros> {
    let text = text.trim();
    parse_timestamp(text).or_else(|| parse_four_digit_year(text)).or_else(|| parse_other_formats(text))
}

fn parse_other_formats(text: &str) -> Option<Micros> {
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
    let date = |format| NaiveDate::parse_from_str(text, format).ok()?.and_hms_opt(0, 0, 0);
    let with_time =
        |format: &&str| NaiveDateTime::parse_from_str(text, &format!("{format} %H:%M:%S%.f")).ok();
    let at = DATES.iter().find_map(with_time).or_else(|| DATES.into_iter().find_map(date))?;
    Some(at.and_utc().timestamp_micros())
}
