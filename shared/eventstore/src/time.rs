//! Parsing of event timestamps, and a clock for long-running work.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};
use pennon_analytics::scan::Micros;
use tokio::time::Instant;

/// A clock for work whose start time was passed in. Timestamps that it writes late must not look older than
/// they are: readers rely on the grace period, which starts at them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkClock {
    at: Micros,
    by: Instant,
}

impl WorkClock {
    /// Starts the clock at `now`.
    pub(crate) fn start(now: Micros) -> WorkClock {
        WorkClock { at: now, by: Instant::now() }
    }

    /// The start time plus the time elapsed since.
    pub(crate) fn now(&self) -> Micros {
        self.at.saturating_add(self.elapsed())
    }

    /// Microseconds since the start.
    pub(crate) fn elapsed(&self) -> Micros {
        Micros::try_from(self.by.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }
}

/// An ISO 8601 instant, or none when `text` is not one: date and time divided by `T` or a blank, seconds and their
/// fraction optional, with `Z`, an offset, or neither for UTC; a date alone is its midnight. Digits below the
/// microsecond are cut off. Years 1 to 9999.
pub fn parse_timestamp(text: &str) -> Option<Micros> {
    parsed(text).filter(|at| (1..=9999).contains(&at.year())).map(|at| at.and_utc().timestamp_micros())
}

/// As [`parse_timestamp`], of any year of four digits, and of what an offset makes of it.
pub fn parse_four_digit_year(text: &str) -> Option<Micros> {
    parsed(text).map(|at| at.and_utc().timestamp_micros())
}

fn parsed(text: &str) -> Option<NaiveDateTime> {
    let text = text.trim();
    DateTime::parse_from_rfc3339(text).map(|at| at.naive_utc()).ok().or_else(|| other_forms(text))
}

fn other_forms(text: &str) -> Option<NaiveDateTime> {
    const OFFSET: [&str; 2] = ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z"];
    const NAIVE: [&str; 2] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
    // Chrono reads years of any length; here they have four digits.
    if text.len() < 10 || !text.is_char_boundary(10) || text.as_bytes()[4] != b'-' {
        return None;
    }
    if text.len() == 10 {
        return NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
    }
    let (date, time) = text.split_at(10);
    let time = time.strip_prefix(['T', 't', ' '])?;
    let joined = match time.strip_suffix(['Z', 'z']) {
        Some(time) => format!("{date}T{time}+00:00"),
        None => format!("{date}T{time}"),
    };
    let offset = OFFSET.iter().find_map(|form| DateTime::parse_from_str(&joined, form).ok());
    offset
        .map(|at| at.naive_utc())
        .or_else(|| NAIVE.iter().find_map(|form| NaiveDateTime::parse_from_str(&joined, form).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_instant() {
        // 2024-01-04T11:45:38Z is 19726 days and 42338 seconds after the epoch.
        let at = (19_726 * 86_400 + 42_338) * 1_000_000;
        for text in [
            "2024-01-04T11:45:38Z",
            "2024-01-04T11:45:38.000Z",
            "2024-01-04t11:45:38z",
            "2024-01-04 11:45:38Z",
            "2024-01-04T11:45:38",
            "2024-01-04 11:45:38",
            " 2024-01-04T13:45:38+02:00 ",
            "2024-01-04T13:45:38+0200",
            "2024-01-04 06:15:38-05:30",
        ] {
            assert_eq!(parse_timestamp(text), Some(at), "{text}");
        }
        assert_eq!(parse_timestamp("2024-01-04T11:45:38.123456Z"), Some(at + 123_456));
        assert_eq!(parse_timestamp("2024-01-04T11:45:38.1234569"), Some(at + 123_456));
        assert_eq!(parse_timestamp("2024-01-04T11:45Z"), Some(at - 38_000_000));
        assert_eq!(parse_timestamp("2024-01-04"), Some(19_726 * 86_400 * 1_000_000));
        assert_eq!(parse_timestamp("1969-12-31T23:59:59.5Z"), Some(-500_000));
    }

    #[test]
    fn the_years_one_to_9999() {
        assert!(parse_timestamp("0001-01-01T00:00:00Z").is_some());
        assert!(parse_timestamp("9999-12-31T23:59:59.999999Z").is_some());
        for text in ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "+12000-01-01T00:00:00Z", "-001-01-01"]
        {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "now",
            "2024",
            "2024-13-01",
            "2024-02-30",
            "2024-01-01T25:00:00Z",
            "1704368738",
            "2024-01-04T",
            "2024-01-04T11:45:38Q",
            "01/04/2024",
            "2024-01-0\u{fc}T11:45:38Z",
            "2024-01-04T11:45:38+",
            "20240104",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
