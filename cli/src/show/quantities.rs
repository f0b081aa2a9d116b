//! Numbers, rates, durations and ages as people read them.

use chrono::{DateTime, Utc};

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
/// Durations from this many days on have no hours.
const WHOLE_DAYS: u64 = 100;
/// From here on, numbers are written with an exponent.
const EXPONENT_FROM: f64 = 1e15;

/// A number with separated thousands and at most two decimals; empty if it is not a number.
pub fn number(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        return String::new();
    }
    if size >= EXPONENT_FROM || (size > 0.0 && size < 0.005) {
        return format!("{number:.2e}");
    }
    let text = format!("{size:.2}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let decimals = decimals.trim_end_matches('0');
    let sign = if number < 0.0 { "-" } else { "" };
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{decimals}", group_thousands(whole))
}

fn group_thousands(digits: &str) -> String {
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A part of a whole in percent, with one decimal; `-` if there is no whole.
pub fn rate(part: f64, whole: f64) -> String {
    let percent = 100.0 * part / whole;
    if !percent.is_finite() {
        return "-".to_owned();
    }
    // Rounding hides neither the first nor the last of many.
    if percent > 0.0 && percent < 0.1 {
        return "<0.1 %".to_owned();
    }
    if percent > 99.9 && percent < 100.0 {
        return ">99.9 %".to_owned();
    }
    self::percent(percent)
}

/// A percentage with at most one decimal.
pub fn percent(percent: f64) -> String {
    let text = format!("{percent:.1}");
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// A duration in its two largest units, such as `2 h 5 min`; empty if it is negative or no number.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return String::new();
    }
    if seconds > 0.0 && seconds < 0.9995 {
        return format!("{} ms", (seconds * 1000.0).round().max(1.0));
    }
    if seconds < 9.95 {
        let text = format!("{seconds:.1}");
        return format!("{} s", text.strip_suffix(".0").unwrap_or(&text));
    }
    // Rounded to the smaller unit first, so that no part is 60.
    let (in_seconds, in_minutes) = (seconds.round(), (seconds / MINUTE).round());
    let (value, per, larger, smaller) = if in_seconds < MINUTE {
        return format!("{in_seconds} s");
    } else if in_seconds < HOUR {
        (in_seconds, 60, "min", "s")
    } else if in_minutes < DAY / MINUTE {
        (in_minutes, 60, "h", "min")
    } else {
        ((seconds / HOUR).round(), 24, "d", "h")
    };
    if value >= EXPONENT_FROM {
        return format!("{:.2e} d", seconds / DAY);
    }
    let (count, rest) = (value as u64 / per, value as u64 % per);
    let count_text = group_thousands(&count.to_string());
    let is_whole = rest == 0 || (larger == "d" && count >= WHOLE_DAYS);
    if is_whole {
        format!("{count_text} {larger}")
    } else {
        format!("{count_text} {larger} {rest} {smaller}")
    }
}

/// How long ago an instant is, in its largest unit, such as `3 d ago`.
pub fn age(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - at).num_milliseconds() as f64 / 1000.0;
    if seconds < 1.0 {
        return "now".to_owned();
    }
    let text = duration(seconds);
    let largest: Vec<&str> = text.split(' ').take(2).collect();
    format!("{} ago", largest.join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_have_thousands_and_at_most_two_decimals() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (7.0, "7"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (31106.0, "31,106"),
            (1234567.5, "1,234,567.5"),
            (-1234.567, "-1,234.57"),
            (0.05, "0.05"),
            (0.001, "1.00e-3"),
            (1e300, "1.00e300"),
            (f64::NAN, ""),
            (f64::INFINITY, ""),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn a_rate_is_100_percent_only_for_all_and_0_only_for_none() {
        let cases = [
            (57.0, 598.0, "9.5 %"),
            (598.0, 598.0, "100 %"),
            (0.0, 598.0, "0 %"),
            (1.0, 100_000.0, "<0.1 %"),
            (99_999.0, 100_000.0, ">99.9 %"),
            (0.0, 0.0, "-"),
            (1.0, 0.0, "-"),
            (1.0, 2.0, "50 %"),
            (3.0, 2.0, "150 %"),
        ];
        for (part, whole, text) in cases {
            assert_eq!(rate(part, whole), text, "{part} of {whole}");
        }
    }

    #[test]
    fn durations_have_two_units_and_no_part_is_60() {
        let cases = [
            (0.0, "0 s"),
            (0.25, "250 ms"),
            (0.0001, "1 ms"),
            (0.9999, "1 s"),
            (4.54, "4.5 s"),
            (9.96, "10 s"),
            (45.4, "45 s"),
            (59.6, "1 min"),
            (125.0, "2 min 5 s"),
            (3599.6, "1 h"),
            (7500.0, "2 h 5 min"),
            (86_399.0, "1 d"),
            (90_000.0, "1 d 1 h"),
            (86_400.0 * 99.5, "99 d 12 h"),
            (86_400.0 * 1234.4, "1,234 d"),
            (1e300, "1.16e295 d"),
            (-1.0, ""),
            (f64::NAN, ""),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn an_age_has_one_unit() {
        let now: DateTime<Utc> = "2026-01-05T10:00:00Z".parse().unwrap();
        let ago = |text: &str| age(text.parse().unwrap(), now);
        assert_eq!(ago("2026-01-05T10:00:00Z"), "now");
        assert_eq!(ago("2026-01-05T10:00:05Z"), "now");
        assert_eq!(ago("2026-01-05T07:55:00Z"), "2 h ago");
        assert_eq!(ago("2025-12-31T09:00:00Z"), "5 d ago");
    }
}
