//! Timestamps in requests and responses: ISO 8601 in, UTC with `Z` out.
//!
//! Must stay true: a formatted instant parses back to the same instant; instants have microseconds and years 1 to 9999,
//! so formatted texts sort like the instants.

use chrono::{DateTime, Datelike, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// A parsed date and time, with the offset from UTC if the text has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedTimestamp {
    /// The local date and time; midnight when the text is only a date. At most microseconds.
    pub local: NaiveDateTime,
    /// The offset that the text states.
    pub offset: Option<FixedOffset>,
}

impl ParsedTimestamp {
    /// The instant; without an offset the text is in UTC. `None` outside of the years 1 to 9999.
    pub fn to_utc(self) -> Option<DateTime<Utc>> {
        let offset = match self.offset {
            Some(offset) => offset,
            None => FixedOffset::east_opt(0)?,
        };
        let instant = self.local.and_local_timezone(offset).single()?.with_timezone(&Utc);
        (1..=9999).contains(&instant.year()).then_some(instant)
    }
}

/// Formats an instant: `2021-08-25T22:09:14.252000Z`, without a fraction when it is zero.
pub fn format(instant: DateTime<Utc>) -> String {
    let pattern =
        if instant.nanosecond() / 1_000 == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.6fZ" };
    instant.format(pattern).to_string()
}

/// Truncates to whole microseconds, the precision that is stored and returned.
pub fn truncate(instant: DateTime<Utc>) -> DateTime<Utc> {
    let nanos = instant.nanosecond() / 1_000 * 1_000;
    instant.with_nanosecond(nanos).unwrap_or(instant)
}

/// Parses a timestamp; without an offset it is in UTC.
pub fn parse(text: &str) -> Option<DateTime<Utc>> {
    parse_local(text)?.to_utc()
}

/// Parses `YYYY-MM-DD`, then optionally `T` or a space and `HH:MM[:SS[.fraction]]`, then optionally an offset.
pub fn parse_local(text: &str) -> Option<ParsedTimestamp> {
    let text = text.trim();
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let date = parse_date(date)?;
    if rest.is_empty() {
        return Some(ParsedTimestamp { local: date.and_time(NaiveTime::MIN), offset: None });
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let end = rest.find(['Z', 'z', '+', '-', ' ']).unwrap_or(rest.len());
    let time = parse_time(&rest[..end])?;
    let offset = match rest[end..].trim_start() {
        "" => None,
        offset => Some(parse_offset(offset)?),
    };
    Some(ParsedTimestamp { local: date.and_time(time), offset })
}

fn parse_date(text: &str) -> Option<NaiveDate> {
    let mut parts = text.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    if parts.next().is_some() || year == 0 {
        return None;
    }
    NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)
}

fn parse_time(text: &str) -> Option<NaiveTime> {
    let mut parts = text.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let (second, micros) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once(['.', ',']) {
            None => (digits(seconds, 2)?, 0),
            Some((seconds, fraction)) => (digits(seconds, 2)?, parse_micros(fraction)?),
        },
    };
    if parts.next().is_some() {
        return None;
    }
    NaiveTime::from_hms_micro_opt(hour, minute, second, micros)
}

/// The first six digits of a fraction of a second; finer ones are dropped.
fn parse_micros(fraction: &str) -> Option<u32> {
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{fraction:0<6}").get(..6)?.parse().ok()
}

fn parse_offset(text: &str) -> Option<FixedOffset> {
    if text.eq_ignore_ascii_case("z") {
        return FixedOffset::east_opt(0);
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (digits(rest, 2)?, 0),
        4 => (digits(rest.get(..2)?, 2)?, digits(rest.get(2..)?, 2)?),
        5 => {
            let (hours, minutes) = rest.split_once(':')?;
            (digits(hours, 2)?, digits(minutes, 2)?)
        }
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    FixedOffset::east_opt(sign * i32::try_from(hours * 3_600 + minutes * 60).ok()?)
}

fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Serde form of a timestamp: the text of [`format()`].
pub fn serialize<S: Serializer>(instant: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*instant))
}

/// Serde form of a timestamp: any text that [`parse`] reads.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DateTime<Utc>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| D::Error::custom("not a timestamp"))
}

/// Serde form of a timestamp that may be null.
pub mod nullable {
    use super::*;

    /// Null, or the text of [`format()`](super::format()).
    pub fn serialize<S: Serializer>(
        instant: &Option<DateTime<Utc>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match instant {
            Some(instant) => super::serialize(instant, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Null, or any text that [`parse`] reads.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DateTime<Utc>>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| D::Error::custom("not a timestamp"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn written_form_has_six_digits_or_none() {
        assert_eq!(format(parse("2021-08-25T22:09:14.252Z").unwrap()), "2021-08-25T22:09:14.252000Z");
        assert_eq!(format(parse("2024-01-01T00:00:00+00:00").unwrap()), "2024-01-01T00:00:00Z");
        assert_eq!(format(parse("2024-01-01T00:00:00.000001").unwrap()), "2024-01-01T00:00:00.000001Z");
        let nanos = DateTime::from_timestamp(0, 1_999).unwrap();
        assert_eq!(format(truncate(nanos)), "1970-01-01T00:00:00.000001Z");
    }

    #[test]
    fn offsets_are_applied_and_naive_means_utc() {
        for (text, expected) in [
            ("2024-01-01T02:00:00+02:00", "2024-01-01T00:00:00Z"),
            ("2024-01-01 02:00+0200", "2024-01-01T00:00:00Z"),
            ("2024-01-01T02:00:00-05", "2024-01-01T07:00:00Z"),
            ("2024-01-01t02:00z", "2024-01-01T02:00:00Z"),
            ("2024-02-29", "2024-02-29T00:00:00Z"),
            ("2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00.123456Z"),
        ] {
            assert_eq!(format(parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_timestamps() {
        for text in [
            "",
            "yesterday",
            "2024",
            "2023-02-29",
            "2024-1-1",
            "24-01-01",
            "2024-01-01T",
            "2024-01-01T10",
            "2024-01-01T25:00",
            "2024-01-01T10:00:60Z",
            "2024-01-01T10:00:00.Z",
            "2024-01-01T10:00:00+25:00",
            "2024-01-01T10:00:00 UTC",
            "+12024-01-01T00:00:00Z",
            "0000-01-01",
            "0001-01-01T00:00:00+02:00",
            "2024-01-0é",
            "2024-01-01T10:00+éé",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
