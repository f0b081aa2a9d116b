//! Times of a file: ISO 8601, or epoch numbers told apart by their magnitude.
//!
//! Must stay true: all times of a field of a file have one form, or the file is refused; so no file mixes seconds with
//! milliseconds unnoticed.

use std::collections::BTreeMap;

use pennon_eventstore::parse_timestamp;
use serde_json::Value;

/// In which form a time was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeForm {
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

impl TimeForm {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            TimeForm::Iso => "ISO 8601",
            TimeForm::Seconds => "epoch seconds",
            TimeForm::Milliseconds => "epoch milliseconds",
            TimeForm::Microseconds => "epoch microseconds",
            TimeForm::Nanoseconds => "epoch nanoseconds",
            TimeForm::Typed => "Parquet timestamps",
        }
    }
}

/// The form and the instant, in microseconds, of a time; none where it is no time.
///
/// The ranges of the four units meet and do not overlap: seconds from 1973 to 5138, and each finer unit from 1973 on.
pub(crate) fn parse_time(value: &Value) -> Option<(TimeForm, i64)> {
    match value {
        Value::String(text) => match parse_timestamp(text) {
            Some(at) => Some((TimeForm::Iso, at)),
            None => {
                let text = text.trim();
                let is_number =
                    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                let number = is_number.then(|| serde_json::from_str::<Value>(text).ok()).flatten()?;
                epoch(&number)
            }
        },
        number => epoch(number),
    }
}

fn epoch(value: &Value) -> Option<(TimeForm, i64)> {
    let Value::Number(number) = value else { return None };
    let magnitude = number.as_f64()?;
    let (form, micros_each) = match magnitude {
        n if n < 1e8 => return None,
        n if n < 1e11 => (TimeForm::Seconds, 1e6),
        n if n < 1e14 => (TimeForm::Milliseconds, 1e3),
        n if n < 1e17 => (TimeForm::Microseconds, 1.0),
        n if n < 1e20 => (TimeForm::Nanoseconds, 1e-3),
        _ => return None,
    };
    let exact = number.as_i64().and_then(|n| match form {
        TimeForm::Seconds => n.checked_mul(1_000_000),
        TimeForm::Milliseconds => n.checked_mul(1000),
        TimeForm::Nanoseconds => Some(n / 1000),
        _ => Some(n),
    });
    Some((form, exact.unwrap_or((magnitude * micros_each).round() as i64)))
}

/// The forms of the times of a file, by field.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeFields {
    forms: BTreeMap<&'static str, (TimeForm, u64)>,
}

impl TimeFields {
    /// The instant in a field of record `line`.
    pub(crate) fn instant(
        &mut self,
        field: &'static str,
        line: u64,
        value: Option<&Value>,
    ) -> Result<i64, String> {
        let value = match value {
            None | Some(Value::Null) => return Err(format!("there is no {field}")),
            Some(value) => value,
        };
        let Some((form, at)) = parse_time(value) else {
            return Err(format!(
                "{field} {value} is no ISO 8601 time of the years 1 to 9999, and no epoch of seconds (10 digits), \
                 milliseconds (13), microseconds (16) or nanoseconds (19)"
            ));
        };
        self.note(field, form, line)?;
        Ok(at)
    }

    /// Notes that a field of record `line` has this form.
    pub(crate) fn note(&mut self, field: &'static str, form: TimeForm, line: u64) -> Result<(), String> {
        match self.forms.get(field) {
            None => {
                self.forms.insert(field, (form, line));
                Ok(())
            }
            Some((known, _)) if *known == form => Ok(()),
            Some((known, first)) => Err(format!(
                "{field} is {} here and {} in record {first}; write all of a field in one form",
                form.name(),
                known.name()
            )),
        }
    }

    /// The fields and their forms.
    pub(crate) fn forms(&self) -> impl Iterator<Item = (&'static str, TimeForm)> {
        self.forms.iter().map(|(field, (form, _))| (*field, *form))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn magnitude_tells_the_unit() {
        let at = 1_602_611_311_000_000;
        for (value, form, micros) in [
            (json!(1_602_611_311), TimeForm::Seconds, at),
            (json!("1602611311"), TimeForm::Seconds, at),
            (json!(1_602_611_311.25), TimeForm::Seconds, at + 250_000),
            (json!(1_602_611_311_123_i64), TimeForm::Milliseconds, at + 123_000),
            (json!(1_602_611_311_123_456_i64), TimeForm::Microseconds, at + 123_456),
            (json!(1_602_611_311_123_456_789_i64), TimeForm::Nanoseconds, at + 123_456),
            (json!("2020-10-13T17:48:31Z"), TimeForm::Iso, at),
            (json!(100_000_000), TimeForm::Seconds, 100_000_000_000_000),
            (json!(99_999_999_999_i64), TimeForm::Seconds, 99_999_999_999_000_000),
            (json!(100_000_000_000_i64), TimeForm::Milliseconds, 100_000_000_000_000),
        ] {
            assert_eq!(parse_time(&value), Some((form, micros)), "{value}");
        }
        for none in
            [json!(17), json!(99_999_999), json!(-1_602_611_311), json!("soon"), json!(true), json!("1.2.3")]
        {
            assert_eq!(parse_time(&none), None, "{none}");
        }
    }

    #[test]
    fn a_field_has_one_form() {
        let mut times = TimeFields::default();
        times.instant("timestamp", 1, Some(&json!(1_602_611_311))).unwrap();
        times.instant("created_at", 1, Some(&json!("2024-01-01"))).unwrap();
        let error = times.instant("timestamp", 7, Some(&json!(1_602_611_311_000_i64))).unwrap_err();
        assert!(error.contains("epoch milliseconds here and epoch seconds in record 1"), "{error}");
        let error = times.instant("timestamp", 7, Some(&json!("2024-01-01"))).unwrap_err();
        assert!(error.contains("ISO 8601 here"), "{error}");
        assert_eq!(times.forms().count(), 2);
    }
}
