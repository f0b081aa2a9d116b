#![allow(clippy::unwrap_used)]

use clap::Parser;

use super::attempts::{PartRules, PartTimes, simulate};
use super::*;
use crate::args::{Arguments, FunctionState};
use crate::cost::tests::parsed;

/// The documentation page.
const PAGE: &str = include_str!("../../../../docs/performance.md");

/// Round numbers. A segment has a thousand events in four ranges; a query reads half of them, 8 MB over 3 connections a range, and
/// takes 100 ms of CPU.
fn round_units() -> Units {
    let query = json!({"rows": 500, "cpu_ms": 110, "cached_cpu_ms": 20, "mb": 9, "gets": 16, "result_mb": 0, "more_result_mb": 0});
    let mut units = Units::measured().unwrap();
    units.large_query = serde_json::from_value(json!({
        "measured": {
            "events": 1000, "range_rows": 250, "start_cpu_ms": 10, "opened_mb": 1, "opened_gets": 2, "other_gets": 4,
            "entry_bytes": 0, "beside_ms": 40, "funnel": query, "funnel_by_browser": query, "trend": query,
            "uniques": query, "by_url": query, "sum": query,
        },
        "published": {
            "connection_mb_s": 10, "first_byte_ms": 20, "function_mb_s": 40, "init_ms": 20, "gets_a_second": 1e6,
            "vcpus_max": 6,
        },
        "assumed": {
            "environment_ms": 180, "invoke_ms": 10, "opening_cpu_ms": 0, "spread": 0, "pack_mb_s": 100,
            "merge_mb_s": 100, "trip_ms": 5, "packed": 0.5,
        },
        "product": {
            "ranges_at_once": 2, "opened_at_once": 2, "files_cached": 10, "late_ms": 250, "late_share": 4,
            "rows_that_fit": 1e9, "response_ms": 25000, "beat_ms": 400, "lease_ms": 2000,
        },
    }))
    .unwrap();
    units
}

fn funnel(events: f64, functions: FunctionState) -> LargeQuery {
    LargeQuery { kind: QueryKind::Funnel, events, memory_mb: 1769.0, functions }
}

fn split(rows_per_part: u64, at_once: usize) -> PartSettings {
    PartSettings { rows_per_part, at_once, ..PartSettings::default() }
}

fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-6 * right.abs().max(1.0), "{left} is not {right}");
}

#[test]
fn one_part_as_calculated_by_hand() {
    let units = round_units();
    let warm = QueryEstimate::of(&funnel(1000.0, FunctionState::Warm), &split(500, 64), &units);
    assert_eq!((warm.parts, warm.rows, warm.segments), (1, 500.0, 1.0));
    // Two rounds of two ranges: 40 ms of waiting, 8 MB at 40 MB/s; the second round is read while the first is decoded.
    close(warm.parts_ms, 240.0);
    close(warm.ms, 40.0 + 240.0);
    // Three for each range, and two of the caller.
    close(warm.quantities.gets, 14.0);
    close(warm.quantities.invocations, 1.0);
    let cold = QueryEstimate::of(&funnel(1000.0, FunctionState::Cold), &split(500, 64), &units);
    // The start, and two reads one after the other of 1 MB in all at 10 MB/s.
    close(cold.ms, 280.0 + 200.0 + 40.0 + 100.0);
    close(cold.quantities.gets, 16.0);
    // 180 ms of the start are not billed.
    close(cold.quantities.gb_seconds, 0.440 * 1769.0 / 1024.0);
    let cached = QueryEstimate::of(&funnel(1000.0, FunctionState::Cached), &split(500, 64), &units);
    close(cached.ms, 40.0 + 20.0);
    close(cached.quantities.gets, 2.0);
}

#[test]
fn waves_as_calculated_by_hand() {
    let units = round_units();
    let query = funnel(1000.0, FunctionState::Warm);
    // A part has one range: 20 ms, 2 MB at 30 MB/s, 25 ms of CPU; 10 ms of its invocation are not billed.
    let part = 20.0 + 200.0 / 3.0 + 25.0;
    for (at_once, waves) in [(1, 4), (2, 2), (3, 2), (4, 1), (64, 1)] {
        let estimate = QueryEstimate::of(&query, &split(125, at_once), &units);
        assert_eq!((estimate.parts, estimate.waves), (4, waves));
        close(estimate.parts_ms, f64::from(waves) * (part + 10.0));
        close(estimate.ms, 40.0 + 5.0 + estimate.parts_ms);
        close(estimate.slow_ms, estimate.ms);
        close(estimate.attempts, 4.0);
        close(estimate.quantities.gets, 14.0);
        close(estimate.quantities.gb_seconds, (estimate.ms + 4.0 * part) / 1e3 * 1769.0 / 1024.0);
    }
    // Eight parts share the four ranges, and each decodes its range.
    let many = QueryEstimate::of(&query, &split(63, 64), &units);
    assert_eq!(many.parts, 8);
    close(many.decoded, 2.0);
    close(many.parts_ms, part + 10.0);
    close(many.quantities.gets, 26.0);
}

#[test]
fn the_price_of_known_invocations() {
    let prices = Prices::published().unwrap();
    let query = LargeQuery { memory_mb: 1024.0, ..funnel(1000.0, FunctionState::Cached) };
    let bill = QueryEstimate::of(&query, &split(250, 2), &round_units()).quantities.bill(&prices);
    let dollars = |what| bill.iter().find(|line| line.what == what).unwrap().dollars;
    // The caller and two parts. A part calculates 10 ms on 1024 of 1769 MB; the caller has 45 ms and waits for it and 10 ms.
    close(dollars("Lambda, calls") * 1e6, 0.6);
    let part = 17.275_390_625;
    close(dollars("Lambda, time") * 1e6, (45.0 + part + 10.0 + 2.0 * part) / 1e3 * 13.333_4);
    close(dollars("S3, reads") * 1e6, 2.0 * 0.4);
    close(dollars("HTTP API") * 1e6, 1.0);
}

#[test]
fn a_bucket_serves_no_more_than_its_limit() {
    let mut units = round_units();
    units.large_query.published.gets_a_second = 60.0;
    let estimate = QueryEstimate::of(&funnel(1000.0, FunctionState::Warm), &split(125, 4), &units);
    // Twelve requests.
    close(estimate.bucket_ms, 200.0);
    close(estimate.parts_ms, 200.0);
}

fn rules(units: &Units, at_once: usize, is_cold: bool) -> PartRules<'_> {
    PartRules { units: &units.large_query, at_once, is_cold, caches_segments: true }
}

#[test]
fn a_late_part_is_invoked_twice_and_both_are_billed() {
    let units = round_units();
    let mut times = [PartTimes { opened_ms: 100.0, first_ms: 100.0 }; 8];
    times[7].opened_ms = 10_000.0;
    let result = simulate(&times, rules(&units, 8, false), 0);
    // The others are done after 110 ms; from 250 ms on the last one is late. Its second attempt is not faster.
    close(result.ms, 10_010.0);
    assert_eq!((result.attempts, result.attempts_of[7]), (9, 2));
    close(result.billed_ms, 700.0 + 20_000.0);
    // A second attempt ends at most two seconds after the query.
    times[7].opened_ms = 10_000_000.0;
    let mut units = round_units();
    units.large_query.product.late_ms = 5_000.0;
    let result = simulate(&times, rules(&units, 8, false), 0);
    close(result.billed_ms, 700.0 + 10_000_000.0 + 9_997_000.0 + 10.0 - 10.0);
}

#[test]
fn functions_that_started_cold_are_warm_for_their_next_part() {
    let units = round_units();
    let times = [PartTimes { opened_ms: 100.0, first_ms: 300.0 }; 3];
    let result = simulate(&times, rules(&units, 2, true), 0);
    // Two start in 200 ms and open segments; one of them has the third part, too.
    close(result.ms, 10.0 + 200.0 + 300.0 + 10.0 + 100.0);
    close(result.billed_ms, 2.0 * 320.0 + 100.0);
    assert_eq!((result.attempts, result.openings), (3, 2));
    let forgetful = PartRules { caches_segments: false, ..rules(&units, 2, true) };
    close(simulate(&times, forgetful, 0).ms, 510.0 + 310.0);
}

#[test]
fn second_attempts_shorten_queries_of_which_parts_differ() {
    let mut units = round_units();
    units.large_query.assumed.spread = 1.0;
    let times = [PartTimes { opened_ms: 500.0, first_ms: 500.0 }; 64];
    let sum =
        |units: &Units| (0..100).map(|seed| simulate(&times, rules(units, 64, false), seed).ms).sum::<f64>();
    let with = sum(&units);
    units.large_query.product.late_ms = f64::INFINITY;
    assert!(with < sum(&units));
    assert_eq!(simulate(&times, rules(&units, 64, false), 3), simulate(&times, rules(&units, 64, false), 3));
}

#[test]
fn more_events_are_never_cheaper_and_never_faster_in_as_many_parts() {
    let (units, prices) = (Units::measured().unwrap(), Prices::published().unwrap());
    let settings = PartSettings { rows_per_part: 0, parts_max: 32, ..PartSettings::default() };
    for kind in QueryKind::value_variants() {
        for functions in FunctionState::value_variants() {
            let mut before = (0.0, 0.0);
            for millions in [10.0, 20.0, 100.0, 500.0, 1e3, 2e3, 3e3, 1e4, 1e5] {
                let query = LargeQuery { kind: *kind, ..funnel(millions * 1e6, *functions) };
                let estimate = QueryEstimate::of(&query, &settings, &units);
                let now = (estimate.ms, total(&estimate.quantities.bill(&prices)));
                assert!(now.0 > before.0 && now.1 > before.1, "{query:?}: {now:?} after {before:?}");
                before = now;
            }
        }
    }
}

#[test]
fn limits_are_listed() {
    let units = Units::measured().unwrap();
    let exceeded = |events| {
        QueryEstimate::of(&funnel(events, FunctionState::Warm), &PartSettings::default(), &units).exceeded
    };
    assert!(exceeded(1e9).is_empty());
    // 256 parts of 61 million rows, 10,000 segments with entries of 1.6 KB, and 7 GB of times.
    let all = [
        "25 s of a request",
        "memory of a part",
        "size of a task",
        "size of a result",
        "GB-seconds of a query",
    ];
    assert_eq!(exceeded(1e11), all);
}

/// The emulated function has no network limit, reads 80 MB/s a connection, and starts in 6.1 ms.
#[test]
fn the_benchmark_of_first_queries_is_reproduced() {
    let mut units = Units::measured().unwrap();
    let published = &mut units.large_query.published;
    (published.function_mb_s, published.init_ms) = (f64::INFINITY, 6.1);
    units.large_query.assumed.environment_ms = 0.0;
    let measured = [233.0, 272.0, 190.0, 202.0, 444.0, 211.0];
    for (kind, measured) in QueryKind::value_variants().iter().zip(measured) {
        let query = LargeQuery { kind: *kind, ..funnel(1e7, FunctionState::Cold) };
        let estimate = QueryEstimate::of(&query, &split(u64::MAX, 64), &units);
        assert!(
            (estimate.ms / measured - 1.0).abs() < 0.06,
            "{kind:?}: {} instead of {measured}",
            estimate.ms
        );
    }
}

#[test]
fn options_select_one_query() {
    let line = "pennon cost --query-kind by-url --query-events 1B --functions cold --part-rows 5M --parts-at-once 9 --json";
    let output: Value = serde_json::from_str(&crate::cost::cost(&parsed(line)).unwrap()).unwrap();
    assert_eq!(output["query"], "by-url");
    assert_eq!(output["functions"], "cold");
    // 3,096,577 of ten million rows; a part has five million: 62 parts, and the next power of two.
    assert_eq!(
        (&output["rows"], &output["parts"], &output["at_once"]),
        (&json!(309_657_700.0), &json!(64), &json!(9))
    );
    assert_eq!(output["waves"], 8);
    assert_eq!(crate::cost::cost(&parsed(line)), crate::cost::cost(&parsed(line)));
}

#[test]
fn options_of_a_query_are_limited() {
    let parsed = |options: &str| {
        let words = ["pennon", "cost"].into_iter().chain(options.split_whitespace());
        Arguments::try_parse_from(words).is_ok()
    };
    assert!(parsed("--query-kind funnel --functions cached --parts-at-once 999 --memory 10240"));
    let wrong = [
        "--functions cold",
        "--part-rows 1M",
        "--query-kind retention",
        "--query-kind funnel --parts-at-once 0",
    ];
    let above = ["--query-kind funnel --parts-at-once 1000", "--query-kind funnel --memory 10241"];
    for options in wrong.iter().chain(&above) {
        assert!(!parsed(options), "{options}");
    }
}

#[test]
fn queries_of_no_and_of_most_events_have_finite_estimates() {
    let (units, prices) = (Units::measured().unwrap(), Prices::published().unwrap());
    for (events, parts) in [(0.0, 1), (1.0, 1), (1e15, 256)] {
        let estimate =
            QueryEstimate::of(&funnel(events, FunctionState::Cold), &PartSettings::default(), &units);
        assert_eq!(estimate.parts, parts);
        assert!(estimate.ms.is_finite() && total(&estimate.quantities.bill(&prices)).is_finite());
    }
}

/// The cells of a table: seconds of warm and cold functions in the median and the 95th of a hundred, and dollars.
fn cells(query: LargeQuery, settings: &PartSettings) -> String {
    let (units, prices) = (Units::measured().unwrap(), Prices::published().unwrap());
    let [warm, cold] = [FunctionState::Warm, FunctionState::Cold]
        .map(|functions| QueryEstimate::of(&LargeQuery { functions, ..query }, settings, &units));
    let dollars = [&warm, &cold].map(|estimate| total(&estimate.quantities.bill(&prices)));
    format!(
        "{} | {:.2} | {:.1} (95 %: {:.1}) | {:.1} (95 %: {:.1}) | {:.4} | {:.4} | {} |",
        warm.parts,
        warm.decoded,
        warm.ms / 1e3,
        warm.slow_ms / 1e3,
        cold.ms / 1e3,
        cold.slow_ms / 1e3,
        dollars[0],
        dollars[1],
        cold.exceeded.join(", "),
    )
}

#[test]
fn the_tables_of_the_documentation_are_simulated() {
    let mut rows = Vec::new();
    for events in [1e9, 1e10, 1e11] {
        for kind in [QueryKind::Funnel, QueryKind::FunnelByBrowser, QueryKind::Trend] {
            let query = LargeQuery { kind, ..funnel(events, FunctionState::Warm) };
            let cells = cells(query, &PartSettings::default());
            rows.push(format!("| {} billion | {} | {cells}", events / 1e9, name_of(kind)));
        }
    }
    for (millions, at_once) in [(10, 64), (8, 64), (5, 64), (5, 16), (2, 64), (1, 64), (1, 256)] {
        let cells = cells(funnel(1e9, FunctionState::Warm), &split(millions * 1_000_000, at_once));
        rows.push(format!("| {millions} million | {at_once} | {cells}"));
    }
    let missing = rows.into_iter().filter(|row| !PAGE.contains(row.as_str())).collect::<Vec<_>>();
    assert!(missing.is_empty(), "docs/performance.md does not have\n{}", missing.join("\n"));
}
