//! Parses property values and filter values as instants, in seconds or microseconds since the Unix epoch.
//!
//! Must stay true: parsing a property value never depends on the current time; only filter values can be relative.

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime};
use chrono_tz::Tz;
use serde_json::Value;

use super::grammar::{self, Cursor, Relative};
use super::zone;
use crate::dates::Micros;
use crate::text::{number_of, numeric};

/// Numbers from here on are milliseconds: as seconds they would be after the year 5000.
const MILLISECONDS_FROM: f64 = 100_000_000_000.0;

/// Parses a property value to whole seconds: ISO text, `YYYY/MM/DD`, `DD-MM-YYYY`, `DD/MM/YYYY`, RFC 822, or unix time
/// in seconds or milliseconds, as number or text. Text without an offset is wall-clock time in `zone`.
pub fn property_second(value: &Value, zone: Tz) -> Option<i64> {
    match value {
        Value::Number(_) => number_of(value).and_then(unix_second),
        Value::String(text) => text_second(text.trim(), zone),
        _ => None,
    }
}

/// As [`property_second`], in microseconds.
pub fn property_micros(value: &Value, zone: Tz) -> Option<Micros> {
    let text = value.as_str().map(str::trim);
    match text.and_then(|text| grammar::absolute(text).or_else(|| parse_alternative_order(text))) {
        Some((local, offset)) => Some(zone::micros_of(local, offset, zone)),
        None => property_second(value, zone)?.checked_mul(1_000_000),
    }
}

/// Parses a filter value to whole seconds: as for a property, or a relative date such as `-7d`.
pub fn filter_second(value: &Value, now: DateTime<Tz>) -> Option<i64> {
    property_second(value, now.timezone()).or_else(|| {
        let local = Relative::parse_whole(value.as_str()?)?.before(now.naive_local())?;
        Some(zone::at(local, now.timezone()).timestamp())
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
fn unix_second(number: f64) -> Option<i64> {
    let seconds = if number.abs() >= MILLISECONDS_FROM { number / 1000.0 } else { number };
    (seconds.abs() < MILLISECONDS_FROM * 1000.0).then_some(seconds.floor() as i64)
}

fn text_second(text: &str, zone: Tz) -> Option<i64> {
    if let Some((local, offset)) = grammar::absolute(text).or_else(|| parse_alternative_order(text)) {
        return Some(zone::micros_of(local, offset, zone).div_euclid(1_000_000));
    }
    if let Some(number) = numeric(text) {
        return unix_second(number);
    }
    DateTime::parse_from_rfc2822(text).ok().map(|instant| instant.timestamp())
}

/// Parses `YYYY/MM/DD`, `DD-MM-YYYY` and `DD/MM/YYYY`, with an optional time.
fn parse_alternative_order(text: &str) -> Option<(NaiveDateTime, Option<FixedOffset>)> {
    let mut cursor = Cursor(text.as_bytes());
    let year_first = text.as_bytes().get(4) == Some(&b'/');
    let date = if year_first {
        let year = cursor.digits(4, 4)?;
        cursor.expect(b"/")?;
        let month = cursor.digits(1, 2)?;
        cursor.expect(b"/")?;
        NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, cursor.digits(1, 2)?)?
    } else {
        let day = cursor.digits(1, 2)?;
        let separator = cursor.expect(b"-/")?;
        let month = cursor.digits(1, 2)?;
        cursor.expect(&[separator])?;
        NaiveDate::from_ymd_opt(i32::try_from(cursor.digits(4, 4)?).ok()?, month, day)?
    };
    if cursor.0.is_empty() {
        return Some((date.and_time(NaiveTime::MIN), None));
    }
    cursor.expect(b"T ")?;
    let time = cursor.time()?;
    let offset = cursor.offset()?;
    Some((date.and_time(time), offset))
}
