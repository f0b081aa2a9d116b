//! Date texts, ranges, buckets and labels against the tables of the contract.
#![allow(clippy::unwrap_used)]

use chrono::{DateTime, Datelike, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;
use serde_json::json;

use super::buckets::Buckets;
use super::grammar::{DateText, Relative};
use super::instants::{filter_second, property_second};
use super::range::{DateRange, DateSpec, Rounding};
use super::zone::utc_text;
use super::{Interval, WeekStart};

fn at(text: &str, zone: Tz) -> DateTime<Tz> {
    DateTime::parse_from_rfc3339(text).unwrap().with_timezone(&zone)
}

fn meaning(text: &str) -> String {
    utc_text(&DateText::parse(text).unwrap().instant(at("2024-03-31T10:20:30Z", Tz::UTC)).unwrap())
}

#[test]
fn texts_are_parsed_by_the_grammar() {
    let cases = [
        ("-1m", "2024-02-29T10:20:30Z"),
        ("1m", "2024-02-29T10:20:30Z"),
        ("-1mStart", "2024-02-01T10:20:30Z"),
        ("-1mEnd", "2024-02-29T10:20:30Z"),
        ("mStart", "2024-03-01T10:20:30Z"),
        ("yStart", "2024-01-01T10:20:30Z"),
        ("-1yEnd", "2023-03-31T10:20:30Z"),
        ("-1dStart", "2024-03-30T00:00:00Z"),
        ("-1dEnd", "2024-03-30T23:59:59.999999Z"),
        ("-2hStart", "2024-03-31T08:00:00Z"),
        ("-2hEnd", "2024-03-31T08:59:59.999999Z"),
        ("-1q", "2023-12-31T10:20:30Z"),
        ("-2w", "2024-03-17T10:20:30Z"),
        ("-30M", "2024-03-31T09:50:30Z"),
        ("-5D", "2024-03-31T10:20:30Z"),
        ("d", "2024-03-31T10:20:30Z"),
        ("monday 3d", "2024-03-31T10:20:30Z"),
        ("in 3d", "2024-03-28T10:20:30Z"),
        ("2020-1-9", "2020-01-09T00:00:00Z"),
        ("2020-01-09 10:11", "2020-01-09T10:11:00Z"),
        ("2020-01-09T10:11:12.5+02:00", "2020-01-09T08:11:12.500000Z"),
        ("2020-01-09T10:11:12Z", "2020-01-09T10:11:12Z"),
    ];
    for (text, want) in cases {
        assert_eq!(meaning(text), want, "{text}");
    }
    for text in ["", "xx", "2024-13-01", "2023-02-30", "2024-01-01 25:00", "2024-1d", "2024-01-01junk"] {
        assert_eq!(DateText::parse(text), None, "{text}");
    }
    for text in [
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+01:00",
        "-99999y",
        "-999999999999999999999d",
        "99999999999h",
    ] {
        assert!(
            DateText::parse(text).unwrap().instant(at("2024-03-31T10:20:30Z", Tz::UTC)).is_none(),
            "{text}"
        );
    }
}

#[test]
fn across_a_clock_change_only_durations_from_an_instant_are_absolute_time() {
    // Clocks went forward on 10 March 2024.
    let zone = chrono_tz::America::New_York;
    let now = at("2024-03-10T16:00:00Z", zone);
    for (text, wall_clock, absolute) in [
        ("-24h", "2024-03-09T17:00:00Z", "2024-03-09T16:00:00Z"),
        ("-1d", "2024-03-09T17:00:00Z", "2024-03-09T16:00:00Z"),
        ("-1w", "2024-03-03T17:00:00Z", "2024-03-03T16:00:00Z"),
        ("-1m", "2024-02-10T17:00:00Z", "2024-02-10T17:00:00Z"),
        ("-1y", "2023-03-10T17:00:00Z", "2023-03-10T17:00:00Z"),
    ] {
        let instant = DateText::parse(text).unwrap().instant(now).unwrap();
        assert_eq!(utc_text(&instant), wall_clock, "{text}");
        let relative = Relative::parse_exact(text).unwrap();
        let instant = relative.before_instant(now.with_timezone(&Utc), zone).unwrap();
        assert_eq!(utc_text(&instant), absolute, "{text}");
    }
}

fn resolve(from: Option<&str>, to: Option<&str>, interval: Interval) -> DateRange {
    let spec = DateSpec { from: from.map(str::to_owned), to: to.map(str::to_owned), explicit: false };
    let rounding = Rounding { interval, exact: false, cut_minutes: false };
    spec.resolve(rounding, at("2020-01-15T10:20:30Z", Tz::UTC), None).unwrap()
}

#[test]
fn the_first_instant_counted_follows_the_table() {
    let cases = [
        (None, Interval::Hour, "2020-01-08T00:00:00Z"),
        (Some("2020-01-09T10:11:12Z"), Interval::Minute, "2020-01-09T10:11:00Z"),
        (Some("2020-01-09T10:11:12Z"), Interval::Hour, "2020-01-09T10:00:00Z"),
        (Some("2020-01-09T10:11:12Z"), Interval::Day, "2020-01-09T00:00:00Z"),
        (Some("2020-01-09T10:11:12Z"), Interval::Week, "2020-01-09T00:00:00Z"),
        (Some("2020-01-09T10:11:12Z"), Interval::Month, "2020-01-01T00:00:00Z"),
        (Some("-90M"), Interval::Minute, "2020-01-15T08:50:30Z"),
        (Some("-24h"), Interval::Hour, "2020-01-14T10:00:00Z"),
        (Some("-24h"), Interval::Day, "2020-01-14T10:00:00Z"),
        (Some("-24h"), Interval::Week, "2020-01-14T00:00:00Z"),
        (Some("-3d"), Interval::Month, "2020-01-01T00:00:00Z"),
    ];
    for (from, interval, want) in cases {
        assert_eq!(utc_text(&resolve(from, None, interval).first), want, "{from:?} {interval:?}");
    }
}

#[test]
fn the_end_follows_the_table() {
    let cases = [
        (None, Interval::Day, "2020-01-15T23:59:59.999999Z"),
        (None, Interval::Hour, "2020-01-15T10:59:59.999999Z"),
        (None, Interval::Minute, "2020-01-15T10:20:59.999999Z"),
        (Some("-1h"), Interval::Hour, "2020-01-15T09:59:59.999999Z"),
        (Some("2020-01-09"), Interval::Hour, "2020-01-09T00:00:00Z"),
        (Some("2020-01-09 08:00:00"), Interval::Week, "2020-01-09T23:59:59.999999Z"),
        (Some("-1dStart"), Interval::Month, "2020-01-14T23:59:59.999999Z"),
    ];
    for (to, interval, want) in cases {
        assert_eq!(utc_text(&resolve(None, to, interval).to), want, "{to:?} {interval:?}");
    }
}

#[test]
fn a_single_number_is_exact_about_time() {
    let exact = |from: &str, to: Option<&str>| {
        let spec = DateSpec { from: Some(from.to_owned()), to: to.map(str::to_owned), explicit: false };
        let rounding = Rounding { interval: Interval::Day, exact: true, cut_minutes: false };
        let range = spec.resolve(rounding, at("2020-01-15T10:20:30Z", Tz::UTC), None).unwrap();
        (utc_text(&range.first), utc_text(&range.to))
    };
    assert_eq!(exact("-1d", None), ("2020-01-14T10:20:30Z".into(), "2020-01-15T10:20:30Z".into()));
    assert_eq!(exact("2020-01-02", Some("2020-01-03")).1, "2020-01-03T23:59:59.999999Z");
}

#[test]
fn weeks_are_labelled_by_their_days_in_the_range() {
    let label = |from: &str, to: &str| {
        let range = resolve(Some(from), Some(to), Interval::Week);
        Buckets::new(&range, Interval::Week, WeekStart::Sunday).unwrap().labels()
    };
    assert_eq!(label("2020-10-31", "2020-11-07"), ["31-Oct-2020", "1–7 Nov"]);
    assert_eq!(label("2020-11-29", "2020-12-05"), ["29-Nov – 5-Dec"]);
    assert_eq!(label("2019-12-29", "2020-01-04"), ["29-Dec-2019 – 4-Jan-2020"]);
    let monday = Buckets::new(
        &resolve(Some("2020-11-01"), Some("2020-11-02"), Interval::Week),
        Interval::Week,
        WeekStart::Monday,
    );
    assert_eq!(monday.unwrap().days(), ["2020-10-26", "2020-11-02"]);
}

#[test]
fn too_many_buckets_are_refused_without_building_them() {
    let range = resolve(Some("0001-01-01"), None, Interval::Minute);
    let refused = Buckets::new(&range, Interval::Minute, WeekStart::Sunday).unwrap_err();
    assert_eq!(refused.attr.as_deref(), Some("interval"));
    let backwards = resolve(Some("2020-01-09"), Some("2020-01-02"), Interval::Day);
    assert!(Buckets::new(&backwards, Interval::Day, WeekStart::Sunday).unwrap().is_empty());
}

#[test]
fn a_clock_change_keeps_every_hour_and_day() {
    let zone = chrono_tz::America::New_York;
    let day = |from, to| DateRange { from: at(from, zone), first: at(from, zone), to: at(to, zone) };
    let spring = day("2024-03-10T05:00:00Z", "2024-03-11T03:59:59Z");
    assert_eq!(Buckets::new(&spring, Interval::Hour, WeekStart::Sunday).unwrap().len(), 23);
    let autumn = day("2024-11-03T04:00:00Z", "2024-11-04T04:59:59Z");
    assert_eq!(Buckets::new(&autumn, Interval::Hour, WeekStart::Sunday).unwrap().len(), 25);
    let both = day("2024-01-01T05:00:00Z", "2025-01-01T04:59:59Z");
    assert_eq!(Buckets::new(&both, Interval::Day, WeekStart::Sunday).unwrap().len(), 366);
}

#[test]
fn property_values_are_read_as_instants() {
    let second = |value| property_second(&value, Tz::UTC);
    let want = Some(1_617_217_932);
    for value in [
        json!("2021-03-31T19:12:12"),
        json!("2021-03-31 19:12:12.9"),
        json!("2021-03-31T21:12:12+02:00"),
        json!("2021/03/31 19:12:12"),
        json!("31-03-2021 19:12:12"),
        json!("31/03/2021 19:12:12"),
        json!("Wed, 31 Mar 2021 19:12:12 +0000"),
        json!(1_617_217_932),
        json!(1_617_217_932.5),
        json!("1617217932"),
        json!(1_617_217_932_123_i64),
    ] {
        assert_eq!(second(value.clone()), want, "{value}");
    }
    for value in
        [json!("soon"), json!(true), json!(null), json!("2021-13-01"), json!(1e300), json!("99/99/2021")]
    {
        assert_eq!(second(value.clone()), None, "{value}");
    }
    let now = at("2021-04-01T19:12:12Z", Tz::UTC);
    assert_eq!(filter_second(&json!("-1d"), now), want);
    assert_eq!(filter_second(&json!("about 1d"), now), None);
}

fn zones() -> impl Strategy<Value = Tz> {
    prop::sample::select(vec![
        Tz::UTC,
        chrono_tz::US::Pacific,
        chrono_tz::Asia::Tokyo,
        chrono_tz::Asia::Kathmandu,
        chrono_tz::Australia::Lord_Howe,
        chrono_tz::America::Sao_Paulo,
    ])
}

/// The local start of a day, week or month bucket, computed without the code under test.
fn calendar_key(instant: DateTime<Tz>, interval: Interval) -> (i32, u32) {
    let day = instant.date_naive();
    match interval {
        Interval::Month => (day.year(), day.month()),
        Interval::Week => {
            (day.num_days_from_ce() - i32::try_from(day.weekday().num_days_from_sunday()).unwrap(), 0)
        }
        _ => (day.num_days_from_ce(), 0),
    }
}

proptest! {
    #[test]
    fn an_instant_falls_in_the_bucket_of_its_day_week_or_month(
        zone in zones(),
        interval in prop::sample::select(vec![Interval::Day, Interval::Week, Interval::Month]),
        from in 1_500_000_000_i64..1_700_000_000,
        length in 0_i64..40_000_000,
        into in 0.0..1.0_f64,
    ) {
        let instant = |second| Utc.timestamp_opt(second, 0).unwrap().with_timezone(&zone);
        let range = DateRange { from: instant(from), first: instant(from), to: instant(from + length) };
        let buckets = Buckets::new(&range, interval, WeekStart::Sunday).unwrap();
        let inside = instant(from + (length as f64 * into) as i64);
        let index = buckets.index(inside.timestamp_micros()).unwrap();
        prop_assert_eq!(calendar_key(buckets.starts()[index], interval), calendar_key(inside, interval));
        prop_assert!(buckets.starts()[index] <= inside);
        let keys: Vec<_> = buckets.starts().iter().map(|start| calendar_key(*start, interval)).collect();
        prop_assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn an_instant_falls_in_the_bucket_of_its_hour(
        zone in zones(), from in 1_500_000_000_i64..1_700_000_000, length in 0_i64..4_000_000, into in 0.0..1.0_f64,
    ) {
        // Half-hour clock changes move the hour's start; the contract does not define them.
        prop_assume!(zone != chrono_tz::Australia::Lord_Howe);
        let instant = |second| Utc.timestamp_opt(second, 0).unwrap().with_timezone(&zone);
        let range = DateRange { from: instant(from), first: instant(from), to: instant(from + length) };
        let buckets = Buckets::new(&range, Interval::Hour, WeekStart::Sunday).unwrap();
        let inside = instant(from + (length as f64 * into) as i64);
        let start = buckets.starts()[buckets.index(inside.timestamp_micros()).unwrap()];
        prop_assert_eq!((start.date_naive(), start.hour(), start.minute()), (inside.date_naive(), inside.hour(), 0));
        prop_assert!(inside.timestamp() - start.timestamp() < 3600);
    }

    #[test]
    fn no_text_breaks_the_grammar(text in "\\PC{0,20}", relative in "-?[0-9]{0,20}[hdwmqyMHDWQY](Start|End)?") {
        let now = at("2024-02-29T10:20:30Z", Tz::UTC);
        let _ = DateText::parse(&text).and_then(|text| text.instant(now));
        let _ = DateText::parse(&relative).and_then(|text| text.instant(now));
        let _ = property_second(&json!(text), Tz::UTC);
    }
}
