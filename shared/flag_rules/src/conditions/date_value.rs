//! Values of the date operators of flag properties.
//!
//! Must stay true: [`parse`] accepts exactly what evaluation understands, so a value that was accepted on write can
//! always be evaluated.

use chrono::NaiveDateTime;
use pennon_filters::body::timestamp::{self, ParsedTimestamp};

/// The unit of a relative date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `h`
    Hour,
    /// `d`
    Day,
    /// `w`
    Week,
    /// `m`, a calendar month
    Month,
    /// `y`, a calendar year
    Year,
}

/// A date that a property is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateValue {
    /// This many units before the time of evaluation.
    Before(u32, Unit),
    /// A date and time with its offset from UTC.
    At(ParsedTimestamp),
    /// A date and time in the project's time zone.
    Local(NaiveDateTime),
}

/// Largest count of a relative date.
const RELATIVE_COUNT_MAX: u32 = 9_999;

/// Parses `-6h`, `7d`, a date, or a date and time. The sign of a relative date is ignored.
pub fn parse(text: &str) -> Option<DateValue> {
    if let Some(relative) = parse_relative(text) {
        return Some(relative);
    }
    let parsed = timestamp::parse_local(text)?;
    Some(match parsed.offset {
        Some(_) => DateValue::At(parsed),
        None => DateValue::Local(parsed.local),
    })
}

fn parse_relative(text: &str) -> Option<DateValue> {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (last, unit) = text.char_indices().last()?;
    let unit = match unit {
        'h' => Unit::Hour,
        'd' => Unit::Day,
        'w' => Unit::Week,
        'm' => Unit::Month,
        'y' => Unit::Year,
        _ => return None,
    };
    let count = &text[..last];
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u32 = count.parse().ok()?;
    (count <= RELATIVE_COUNT_MAX).then_some(DateValue::Before(count, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_dates() {
        assert_eq!(parse("-6h"), Some(DateValue::Before(6, Unit::Hour)));
        assert_eq!(parse("9999y"), Some(DateValue::Before(9_999, Unit::Year)));
        assert_eq!(parse("2w"), Some(DateValue::Before(2, Unit::Week)));
        for text in ["10000d", "-d", "d", "--6h", "6", "6x", "+6h", "6 h", "٣d", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn absolute_dates() {
        for text in ["2022-05-01", "2022-05-01 10:00", "2022-05-01T10:00:00.5"] {
            assert!(matches!(parse(text), Some(DateValue::Local(_))), "{text}");
        }
        for text in ["2022-05-01T10:00:00Z", "2022-05-01 10:00+02:00"] {
            assert!(matches!(parse(text), Some(DateValue::At(_))), "{text}");
        }
        for text in ["soon", "2022-13-01", "1650000000", "01-05-2022", "0000-01-01"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
