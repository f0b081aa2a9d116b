//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.
//!
//! Fields of an input are its lines, so that a fuzzer can change one without the others.

use chrono::{DateTime, Datelike, SecondsFormat};
use chrono_tz::Tz;
use serde_json::Value;

use crate::CompileBudget;
use crate::body::timestamp;
use crate::dates::buckets::Buckets;
use crate::dates::compare::Comparison;
use crate::dates::grammar::{DateText, absolute};
use crate::dates::instants::{filter_second, property_micros, property_second};
use crate::dates::range::{DateRange, DateSpec, Rounding};
use crate::dates::{Interval, WeekStart};
use crate::limits;
use crate::operator::{FilterSide, Operator, ValueTest};
use crate::re2;
use crate::semver::{RangeKind, Version, VersionRange};

/// Longest text that is searched with a pattern: the cost of a search is bounded by pattern and text, to half a second.
const SEARCHED_BYTES_MAX: usize = 256;

/// The instants that relative dates are relative to: an ordinary one, a leap day, and the first and the last year.
const INSTANTS: [i64; 4] = [1_767_608_400, 1_709_208_000, -62_135_500_000, 253_402_200_000];

/// The time of the first event.
const EARLIEST: i64 = 1_700_000_000_000_000;

fn now(seconds: i64, zone: Tz) -> DateTime<Tz> {
    DateTime::from_timestamp(seconds, 123_456_000).unwrap_or_default().with_timezone(&zone)
}

/// A line that is not empty.
fn line<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<&'a str> {
    lines.next().filter(|line| !line.is_empty())
}

/// Dates: five lines with the start, the end, the time zone, the interval and a comparison.
pub fn dates(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let (from, to) = (line(&mut lines), line(&mut lines));
    let zone = line(&mut lines).and_then(|name| name.parse().ok()).unwrap_or(Tz::Europe__Berlin);
    let interval = line(&mut lines).and_then(Interval::from_name);
    let back = line(&mut lines);
    for text in [from, to, back].into_iter().flatten() {
        date_text(text, zone);
    }
    for explicit in [false, true] {
        let spec = DateSpec { from: from.map(str::to_owned), to: to.map(str::to_owned), explicit };
        for (number, interval) in Interval::ALL.into_iter().enumerate() {
            let rounding = Rounding { interval, exact: number == 1, cut_minutes: explicit };
            for seconds in INSTANTS {
                let range = spec.resolve(rounding, now(seconds, zone), Some(EARLIEST));
                assert!(spec.validate().is_ok() || range.is_err(), "an invalid date was resolved");
                if let Ok(range) = range {
                    ranges(&range, &spec, rounding, back);
                }
            }
        }
    }
    // Buckets of one interval only: thousands of them are counted.
    let (Some(interval), spec) =
        (interval, DateSpec { from: from.map(str::to_owned), ..DateSpec::default() })
    else {
        return;
    };
    let rounding = Rounding { interval, exact: false, cut_minutes: false };
    if let Ok(range) = spec.resolve(rounding, now(INSTANTS[0], zone), None) {
        buckets(&range, interval);
    }
}

/// A date text: an absolute one is the same after it was printed, and every instant has a year from 1 to 9999.
fn date_text(text: &str, zone: Tz) {
    let parsed = DateText::parse(text);
    if let Some(DateText::Absolute(local, offset)) = parsed {
        let offset_text = offset.map_or(String::new(), |offset| offset.to_string());
        let printed = format!("{}{offset_text}", local.format("%Y-%m-%dT%H:%M:%S%.6f"));
        assert_eq!(DateText::parse(&printed), parsed, "{text} printed as {printed}");
        assert_eq!(absolute(&printed), Some((local, offset)));
    }
    for seconds in INSTANTS {
        let now = now(seconds, zone);
        if let Some(instant) = parsed.and_then(|parsed| parsed.instant(now)) {
            let year = instant.year();
            assert!((1..=9999).contains(&year), "{text} is in the year {year}");
        }
        filter_second(&Value::from(text), now);
    }
}

fn ranges(range: &DateRange, spec: &DateSpec, rounding: Rounding, back: Option<&str>) {
    let _ = Comparison::Previous.of(range, spec, rounding);
    if let Some(Ok(back)) = back.map(|text| Comparison::back(text, "compare_to")) {
        let _ = back.of(range, spec, rounding);
    }
}

fn buckets(range: &DateRange, interval: Interval) {
    for week_start in [WeekStart::Sunday, WeekStart::Monday] {
        let Ok(buckets) = Buckets::new(range, interval, week_start) else { continue };
        assert!(buckets.len() <= limits::BUCKETS);
        assert!(buckets.starts().is_sorted_by(|left, right| left < right), "buckets ascend");
        for at in [buckets.starts().first(), buckets.starts().last()].into_iter().flatten() {
            let found = buckets.index(at.timestamp_micros()).and_then(|index| buckets.starts().get(index));
            assert_eq!(found, Some(at), "the start of a bucket is in it");
        }
        assert_eq!((buckets.days().len(), buckets.labels().len()), (buckets.len(), buckets.len()));
    }
}

/// Timestamps of bodies and property values: a formatted instant parses back to the same instant.
pub fn timestamps(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(instant) = timestamp::parse(text) {
        let printed = timestamp::format(instant);
        assert_eq!(timestamp::parse(&printed), Some(instant), "{text} printed as {printed}");
        let other = instant.to_rfc3339_opts(SecondsFormat::Micros, false);
        assert_eq!(timestamp::parse(&other), Some(instant), "{text} printed as {other}");
    }
    let number = serde_json::from_str::<serde_json::Number>(text).ok().map(Value::Number);
    for value in [Some(Value::from(text)), number].into_iter().flatten() {
        for zone in [Tz::UTC, Tz::America__Sao_Paulo, Tz::Pacific__Apia] {
            let (second, micros) = (property_second(&value, zone), property_micros(&value, zone));
            let whole = micros.map(|micros| micros.div_euclid(1_000_000));
            assert!(micros.is_none() || second == whole, "{value}: {second:?} and {micros:?}");
        }
    }
}

/// Regular expressions of queries: the first line is the pattern, the rest the text.
pub fn regular_expressions(bytes: &[u8]) {
    let Ok(input) = std::str::from_utf8(bytes) else { return };
    let (pattern, text) = input.split_once('\n').unwrap_or((input, "Ab1 \u{e4}_\u{2028}x"));
    let mut budget = CompileBudget::default();
    let Ok(Some(regex)) = re2::compile(pattern, &mut budget, "value") else { return };
    if text.len() <= SEARCHED_BYTES_MAX && regex.can_search(text.len()) {
        // RE2 and this translation are ASCII-only in their classes; a match of any is one of the same text again.
        assert_eq!(regex.is_match(text), regex.regex().find(text).is_some());
    }
}

/// Versions: two lines, which have one order; and all kinds of ranges.
pub fn versions(bytes: &[u8]) {
    use RangeKind::{Caret, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual, Tilde, Wildcard};
    let Ok(input) = std::str::from_utf8(bytes) else { return };
    let (left, right) = input.split_once('\n').unwrap_or((input, "1.2.3-rc.1"));
    let Some(version) = Version::parse(left) else { return };
    let contains = |kind, text: &str| VersionRange::parse(kind, text).map(|range| range.contains(&version));
    for kind in [Equal, GreaterOrEqual, LessOrEqual, Tilde, Caret] {
        assert_eq!(contains(kind, left), Some(true), "{left:?} is not in its own range {kind:?}");
    }
    contains(Wildcard, right);
    let is = |kind| contains(kind, right);
    let Some(is_equal) = is(Equal) else { return };
    let (is_less, is_greater) = (is(Less) == Some(true), is(Greater) == Some(true));
    assert_eq!(u8::from(is_less) + u8::from(is_equal) + u8::from(is_greater), 1, "{left:?} {right:?}");
    assert_eq!(is(NotEqual), Some(!is_equal));
    assert_eq!(is(GreaterOrEqual), Some(!is_less));
    let reversed = Version::parse(right).map(Version::into_owned);
    assert!(reversed.is_some(), "{right:?} is a range and no version");
}

/// Operators: JSON `[operator, value of the filter, value of the property]`.
pub fn operators(bytes: &[u8]) {
    let Ok((name, value, property)) = serde_json::from_slice::<(String, Value, Value)>(bytes) else { return };
    for side in [FilterSide::Flags, FilterSide::Calculations] {
        let Some(operator) = Operator::parse(&name, side) else { continue };
        for now in INSTANTS.map(|seconds| now(seconds, Tz::America__New_York)) {
            let mut budget = CompileBudget::default();
            let tests = [
                ValueTest::new(operator, &value, now, &mut budget, "value"),
                ValueTest::of_instants(operator, &value, now, &mut budget, "value"),
            ];
            for test in tests.into_iter().flatten() {
                test.holds(None);
                if property.as_str().is_none_or(|text| text.len() <= SEARCHED_BYTES_MAX) {
                    test.holds(Some(&property));
                }
                test.matches_time(now.timestamp_micros());
            }
        }
    }
}
