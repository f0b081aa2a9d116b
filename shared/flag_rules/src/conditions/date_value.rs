//! Values of the date operators of flag properties.
//!
//! Must stay true: [`parse`] accepts exactly what evaluation understands, so a value that was accepted on write can
//! always be evaluated. Queries accept more relative dates and more date formats (`pennon_filters::dates`).

use pennon_filters::body::timestamp::{self, ParsedTimestamp};
use pennon_filters::dates::grammar::Relative;

/// A date that a property is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateValue {
    /// A number of units before the time of evaluation.
    Relative(Relative),
    /// A date and time; without an offset it is in the project's time zone.
    Absolute(ParsedTimestamp),
}

/// Largest number of a relative date.
const RELATIVE_NUMBER_MAX: i64 = 9_999;
/// Units of a relative date: hours, days, weeks, calendar months, calendar years.
const RELATIVE_UNITS: [char; 5] = ['h', 'd', 'w', 'm', 'y'];

/// Parses `-6h`, `7d`, a date, or a date and time. The sign of a relative date is ignored.
pub fn parse(text: &str) -> Option<DateValue> {
    match parse_relative(text) {
        Some(relative) => Some(DateValue::Relative(relative)),
        None => timestamp::parse_local(text).map(DateValue::Absolute),
    }
}

fn parse_relative(text: &str) -> Option<Relative> {
    let relative = Relative::parse_exact(text)?;
    let (number, unit) = relative.number_and_unit()?;
    (number <= RELATIVE_NUMBER_MAX && RELATIVE_UNITS.contains(&unit)).then_some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_dates() {
        let number_and_unit = |text| parse_relative(text).and_then(Relative::number_and_unit);
        assert_eq!(number_and_unit("-6h"), Some((6, 'h')));
        assert_eq!(number_and_unit("9999y"), Some((9_999, 'y')));
        assert_eq!(number_and_unit("2w"), Some((2, 'w')));
        for text in ["10000d", "-d", "d", "--6h", "6", "6x", "+6h", "6 h", "٣d", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
        // Queries have these.
        for text in ["6M", "1q", "1mStart", " 6h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn absolute_dates() {
        let has_offset = |text| match parse(text) {
            Some(DateValue::Absolute(parsed)) => Some(parsed.offset.is_some()),
            _ => None,
        };
        for text in ["2022-05-01", "2022-05-01 10:00", "2022-05-01T10:00:00.5"] {
            assert_eq!(has_offset(text), Some(false), "{text}");
        }
        for text in ["2022-05-01T10:00:00Z", "2022-05-01 10:00+02:00"] {
            assert_eq!(has_offset(text), Some(true), "{text}");
        }
        for text in ["soon", "2022-13-01", "1650000000", "01-05-2022", "0000-01-01"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
