//! Parses times: ISO 8601, or epoch numbers whose unit is detected by their magnitude.
//!
//! Must stay true: all times of one field of a file have the same format, or the file is rejected; so a mix of seconds and
//! milliseconds is detected.

use std::collections::BTreeMap;

use pennon_eventstore::parse_timestamp;
use serde_json::Value;

/// The format of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// A text such as `2024-06-30T12:00:00Z`.
    Iso,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
    /// Microseconds since 1970.
    Microseconds,
    /// Nanoseconds since 1970.
    Nanoseconds,
    /// A Parquet column of timestamps or dates.
    Typed,
}

impl TimeFormat {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            TimeFormat::Iso => "ISO 8601",
            TimeFormat::Seconds => "epoch seconds",
            TimeFormat::Milliseconds => "epoch milliseconds",
            TimeFormat::Microseconds => "epoch microseconds",
            TimeFormat::Nanoseconds => "epoch nanoseconds",
            TimeFormat::Typed => "Parquet timestamps",
        }
    }
}

/// The format of a time, and the instant in microseconds since the epoch; `None` if `value` is not a time.
///
/// The ranges of the four units are adjacent and do not overlap: seconds from 1973 to 5138, and each finer unit from 1973 on.
pub(crate) fn parse_time(value: &Value) -> Option<(TimeFormat, i64)> {
    match value {
        Value::String(text) => match parse_timestamp(text) {
            Some(at) => Some((TimeFormat::Iso, at)),
            None => {
                let text = text.trim();
                let is_number =
                    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                let number = is_number.then(|| serde_json::from_str::<Value>(text).ok()).flatten()?;
                parse_epoch(&number)
            }
        },
        number => parse_epoch(number),
    }
}

fn parse_epoch(value: &Value) -> Option<(TimeFormat, i64)> {
    let Value::Number(number) = value else { return None };
    let magnitude = number.as_f64()?;
    let (format, micros_each) = match magnitude {
        n if n < 1e8 => return None,
        n if n < 1e11 => (TimeFormat::Seconds, 1e6),
        n if n < 1e14 => (TimeFormat::Milliseconds, 1e3),
        n if n < 1e17 => (TimeFormat::Microseconds, 1.0),
        n if n < 1e20 => (TimeFormat::Nanoseconds, 1e-3),
        _ => return None,
    };
    let exact = number.as_i64().and_then(|n| match format {
        TimeFormat::Seconds => n.checked_mul(1_000_000),
        TimeFormat::Milliseconds => n.checked_mul(1000),
        TimeFormat::Nanoseconds => Some(n / 1000),
        _ => Some(n),
    });
    Some((format, exact.unwrap_or((magnitude * micros_each).round() as i64)))
}

/// The formats of the times of a file, by field, with the first record that had them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeFormats {
    formats: BTreeMap<&'static str, (TimeFormat, u64)>,
}

impl TimeFormats {
    /// Parses the time in a field of record `line`, in microseconds since the epoch.
    pub(crate) fn parse(
        &mut self,
        field: &'static str,
        line: u64,
        value: Option<&Value>,
    ) -> Result<i64, String> {
        let value = match value {
            None | Some(Value::Null) => return Err(format!("there is no {field}")),
            Some(value) => value,
        };
        let Some((format, at)) = parse_time(value) else {
            return Err(format!(
                "{field} {value} is neither an ISO 8601 time of the years 1 to 9999 nor an epoch of seconds (10 digits), \
                 milliseconds (13), microseconds (16) or nanoseconds (19)"
            ));
        };
        self.check(field, format, line)?;
        Ok(at)
    }

    /// Checks that a field has the same format as in earlier records. `line` is the record.
    pub(crate) fn check(&mut self, field: &'static str, format: TimeFormat, line: u64) -> Result<(), String> {
        match self.formats.get(field) {
            None => {
                self.formats.insert(field, (format, line));
                Ok(())
            }
            Some((known, _)) if *known == format => Ok(()),
            Some((known, first)) => Err(format!(
                "{field} is {} here and {} in record {first}; write all of a field in one form",
                format.name(),
                known.name()
            )),
        }
    }

    /// The fields and their formats.
    pub(crate) fn formats(&self) -> impl Iterator<Item = (&'static str, TimeFormat)> {
        self.formats.iter().map(|(field, (format, _))| (*field, *format))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn magnitude_determines_the_unit() {
        let at = 1_602_611_311_000_000;
        for (value, format, micros) in [
            (json!(1_602_611_311), TimeFormat::Seconds, at),
            (json!("1602611311"), TimeFormat::Seconds, at),
            (json!(1_602_611_311.25), TimeFormat::Seconds, at + 250_000),
            (json!(1_602_611_311_123_i64), TimeFormat::Milliseconds, at + 123_000),
            (json!(1_602_611_311_123_456_i64), TimeFormat::Microseconds, at + 123_456),
            (json!(1_602_611_311_123_456_789_i64), TimeFormat::Nanoseconds, at + 123_456),
            (json!("2020-10-13T17:48:31Z"), TimeFormat::Iso, at),
            (json!(100_000_000), TimeFormat::Seconds, 100_000_000_000_000),
            (json!(99_999_999_999_i64), TimeFormat::Seconds, 99_999_999_999_000_000),
            (json!(100_000_000_000_i64), TimeFormat::Milliseconds, 100_000_000_000_000),
        ] {
            assert_eq!(parse_time(&value), Some((format, micros)), "{value}");
        }
        for none in
            [json!(17), json!(99_999_999), json!(-1_602_611_311), json!("soon"), json!(true), json!("1.2.3")]
        {
            assert_eq!(parse_time(&none), None, "{none}");
        }
    }

    #[test]
    fn a_field_has_one_format() {
        let mut times = TimeFormats::default();
        times.parse("timestamp", 1, Some(&json!(1_602_611_311))).unwrap();
        times.parse("created_at", 1, Some(&json!("2024-01-01"))).unwrap();
        let error = times.parse("timestamp", 7, Some(&json!(1_602_611_311_000_i64))).unwrap_err();
        assert!(error.contains("epoch milliseconds here and epoch seconds in record 1"), "{error}");
        let error = times.parse("timestamp", 7, Some(&json!("2024-01-01"))).unwrap_err();
        assert!(error.contains("ISO 8601 here"), "{error}");
        assert_eq!(times.formats().count(), 2);
    }
}
