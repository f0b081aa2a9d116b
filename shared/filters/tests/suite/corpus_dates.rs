//! The date cases: texts, ranges and buckets at a given instant.

use chrono::{DateTime, Utc};
use pennon_filters::dates::buckets::Buckets;
use pennon_filters::dates::compare::Comparison;
use pennon_filters::dates::range::{DateRange, DateSpec, Rounding};
use pennon_filters::dates::{Interval, WeekStart};
use serde_json::{Value, json};

use crate::support::{cases, instant};

fn spec(case: &Value, from: &Value) -> DateSpec {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    DateSpec { from: text(from), to: text(&case["date_to"]), explicit: case["explicit_date"] == json!(true) }
}

fn rounding(interval: Interval) -> Rounding {
    Rounding { interval, exact: false, cut_minutes: false }
}

fn range(case: &Value, from: &Value) -> (DateRange, Interval) {
    let interval = Interval::from_name(case["interval"].as_str().unwrap_or("day")).unwrap();
    let zone: chrono_tz::Tz = case["timezone"].as_str().unwrap().parse().unwrap();
    let now = instant(case["now"].as_str().unwrap()).with_timezone(&zone);
    (spec(case, from).resolve(rounding(interval), now, None).unwrap(), interval)
}

fn same<Z: chrono::TimeZone>(got: &DateTime<Z>, want: &Value, name: &Value) {
    assert_eq!(got.with_timezone(&Utc), instant(want.as_str().unwrap()), "{name}");
}

#[test]
fn dates_mean_the_expected_instants() {
    let mut run = 0;
    for case in cases("dates.json") {
        let name = &case["name"];
        run += 1;
        match case["kind"].as_str().unwrap() {
            "parse" => same(&range(&case, &case["input"]).0.from, &case["expect"], name),
            "range" => {
                let (range, _) = range(&case, &case["date_from"]);
                same(&range.from, &case["expect_from"], name);
                same(&range.to, &case["expect_to"], name);
            }
            "buckets" => {
                let (range, interval) = range(&case, &case["date_from"]);
                let week = WeekStart::from_day(case["week_start_day"].as_i64().unwrap_or(0));
                let buckets = Buckets::new(&range, interval, week).unwrap();
                assert_eq!(json!(buckets.days()), case["expect_days"], "{name}");
            }
            // Tested with the rules of flags.
            "flag_relative" => {}
            "previous" | "compare_to" => {
                let (current, interval) = range(&case, &case["date_from"]);
                let comparison = match case["compare_to"].as_str() {
                    None => Comparison::Previous,
                    Some(text) => Comparison::back(text, "compare_to").unwrap(),
                };
                let earlier = comparison.of(&current, &spec(&case, &case["date_from"]), rounding(interval));
                let earlier = earlier.unwrap();
                same(&earlier.from, &case["expect_from"], name);
                same(&earlier.to, &case["expect_to"], name);
            }
            other => panic!("unknown kind {other}"),
        }
    }
    assert_eq!(run, 30);
}
