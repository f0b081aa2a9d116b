//! Rules of trends one by one, with numbers counted by hand or printed in the contract.

use pennon_analytics::people::union;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::{World, link_parameters};

/// Events as (name, distinct id, time, properties).
fn world(now: &str, events: &[(&str, &str, &str, Value)]) -> World {
    let events: Vec<Value> = events
        .iter()
        .map(|(name, who, when, properties)| {
            json!({"event": name, "distinct_id": who, "timestamp": when, "properties": properties})
        })
        .collect();
    World::of_case(&json!({"now": now, "project": {"timezone": "UTC"}, "persons": [], "events": events}))
}

fn trend(body: &Value) -> Query {
    match InsightKind::Trends.parse_request(body.as_object().unwrap()).unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn calculate(world: &World, body: Value) -> Value {
    world.calculate(&trend(&body), 3).unwrap()
}

fn refusal(body: Value) -> CalcError {
    InsightKind::Trends.parse_request(body.as_object().unwrap()).unwrap_err()
}

fn pick(result: &Value, keys: &[&str]) -> Value {
    let row = |row: &Value| Value::Array(keys.iter().map(|key| row[key].clone()).collect());
    result.as_array().unwrap().iter().map(row).collect()
}

/// One event a day from the first of January, a number in each.
fn numbers(values: impl IntoIterator<Item = i64>) -> World {
    let events: Vec<_> = values
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            ("a", format!("p{}", index % 7), json!({"n": value, "text": value.to_string()}))
        })
        .collect();
    let events: Vec<_> = events
        .iter()
        .map(|(name, who, properties)| (*name, who.as_str(), "2020-01-02T12:00:00Z", properties.clone()))
        .collect();
    world("2020-01-03T00:00:00Z", &events)
}

#[test]
fn statistics_of_101_to_200_are_as_printed() {
    let world = numbers(101..=200);
    for (math, want) in [
        ("median", 150.5),
        ("p75", 175.25),
        ("p90", 190.1),
        ("p95", 195.05),
        ("p99", 199.01),
        ("avg", 150.5),
        ("sum", 15_050.0),
        ("min", 101.0),
        ("max", 200.0),
    ] {
        for property in ["n", "text"] {
            let series = json!([{"id": "a", "math": math, "math_property": property}]);
            let daily = calculate(&world, json!({"events": series, "date_from": "2020-01-01"}));
            let data: Vec<f64> =
                daily[0]["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
            assert!((data[1] - want).abs() < 1e-9, "{math} of {property}: {data:?}");
            assert_eq!((data[0], data[2]), (0.0, 0.0));
            let total = json!({"events": series, "date_from": "2020-01-01", "display": "ActionsTable"});
            let total = calculate(&world, total)[0]["aggregated_value"].as_f64().unwrap();
            assert!((total - want).abs() < 1e-9, "{math} of {property}: {total}");
        }
    }
}

#[test]
fn values_that_are_not_numbers_are_skipped() {
    let values = [json!(1), json!("2.5"), json!("x"), json!(true), json!(null), json!([1])];
    let events: Vec<_> =
        values.into_iter().map(|n| ("a", "p", "2020-01-01T10:00:00Z", json!({"n": n}))).collect();
    let world = world("2020-01-01T12:00:00Z", &events);
    let of = |math: &str, property: Value| {
        let series = json!([{"id": "a", "math": math, "math_property": property}]);
        calculate(&world, json!({"events": series, "date_from": "dStart"}))[0]["data"][0].clone()
    };
    assert_eq!(of("sum", json!("n")), json!(3.5));
    assert_eq!(of("avg", json!("n")), json!(1.75));
    assert_eq!(of("max", json!("missing")), json!(0));
    // Without a property events are counted.
    assert_eq!(of("sum", Value::Null), json!(6));
    assert_eq!(of("unknown_property", Value::Null), json!(6));
}

#[test]
fn events_of_each_person_are_counted_within_buckets() {
    // p: 3 and 1, q: 1 on the first day.
    let events = [
        ("a", "p", "2020-01-01T01:00:00Z", json!({})),
        ("a", "p", "2020-01-01T02:00:00Z", json!({})),
        ("a", "p", "2020-01-01T03:00:00Z", json!({})),
        ("a", "q", "2020-01-01T04:00:00Z", json!({})),
        ("a", "p", "2020-01-02T05:00:00Z", json!({})),
    ];
    let world = world("2020-01-03T12:00:00Z", &events);
    let body = |math: &str, display: &str| json!({"events": [{"id": "a", "math": math}], "date_from": "2020-01-01", "display": display});
    let data = |math| calculate(&world, body(math, "ActionsBar"))[0]["data"].clone();
    assert_eq!(data("avg_count_per_actor"), json!([2, 1, 0]));
    assert_eq!(data("max_count_per_actor"), json!([3, 1, 0]));
    assert_eq!(data("p75_count_per_actor"), json!([2.5, 1, 0]));
    let total = calculate(&world, body("avg_count_per_actor", "ActionsPie"));
    assert_eq!(total[0]["aggregated_value"], json!(2.5));
}

#[test]
fn actives_are_counted_over_the_days_before() {
    let events = [
        ("a", "p", "2020-01-01T10:00:00Z", json!({})),
        ("a", "q", "2020-01-05T10:00:00Z", json!({})),
        ("a", "p", "2020-01-05T11:00:00Z", json!({})),
    ];
    let world = world("2020-01-20T12:00:00Z", &events);
    let body = |extra: Value| {
        let mut body = json!({"events": [{"id": "a", "math": "weekly_active"}], "date_from": "2020-01-06", "date_to": "2020-01-12"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    // The fifth is in the windows that end with the sixth to the eleventh.
    assert_eq!(calculate(&world, body(json!({})))[0]["data"], json!([2, 2, 2, 2, 2, 2, 0]));
    let total = calculate(&world, body(json!({"display": "BoldNumber", "date_to": "2020-01-11"})));
    assert_eq!(total[0]["aggregated_value"], json!(2));
    // Over a month of weeks the window ends with the first day of the week.
    let monthly = json!({"events": [{"id": "a", "math": "monthly_active"}], "interval": "week", "date_from": "2020-01-05", "date_to": "2020-02-08"});
    assert_eq!(calculate(&world, monthly)[0]["data"], json!([2, 2, 2, 2, 2]));
}

#[test]
fn first_times_consider_all_earlier_events() {
    let events = [
        ("a", "p", "2019-06-01T10:00:00Z", json!({"b": "x"})),
        ("a", "p", "2020-01-01T10:00:00Z", json!({"b": "x"})),
        ("a", "q", "2020-01-01T10:00:00Z", json!({"b": "y"})),
        ("a", "q", "2020-01-02T10:00:00Z", json!({"b": "x"})),
        ("a", "r", "2020-01-02T10:00:00Z", json!({"b": "x"})),
    ];
    let world = world("2020-01-03T12:00:00Z", &events);
    let body = |properties: Value| json!({"events": [{"id": "a", "math": "first_time_for_user", "properties": properties}], "date_from": "2020-01-01"});
    assert_eq!(calculate(&world, body(json!([])))[0]["data"], json!([1, 1, 0]));
    // q's first event has not the value x, and its second is not its first.
    assert_eq!(calculate(&world, body(json!([{"key": "b", "value": "x"}])))[0]["data"], json!([0, 1, 0]));
}

#[test]
fn events_without_session_are_one_session() {
    let events = [
        ("a", "p", "2020-01-01T10:00:00Z", json!({"$session_id": "s"})),
        ("a", "q", "2020-01-01T11:00:00Z", json!({"$session_id": "s"})),
        ("a", "p", "2020-01-01T12:00:00Z", json!({})),
        ("a", "q", "2020-01-01T13:00:00Z", json!({"$session_id": ""})),
        ("a", "q", "2020-01-01T13:00:00Z", json!({"$session_id": "t"})),
    ];
    let world = world("2020-01-01T20:00:00Z", &events);
    let body = json!({"events": [{"id": "a", "math": "unique_session"}], "date_from": "dStart"});
    assert_eq!(calculate(&world, body)[0]["data"], json!([3]));
}

#[test]
fn groups_are_counted_for_any_person() {
    let events = [
        ("a", "p", "2020-01-01T10:00:00Z", json!({"$group_0": "g"})),
        ("a", "q", "2020-01-02T11:00:00Z", json!({"$group_0": "g"})),
        ("a", "r", "2020-01-02T11:00:00Z", json!({"$group_0": "h"})),
        ("a", "r", "2020-01-02T11:00:00Z", json!({"$group_0": ""})),
        ("a", "r", "2020-01-02T11:00:00Z", json!({"$group_1": "i"})),
    ];
    let world = world("2020-01-02T20:00:00Z", &events);
    let data = |math: &str, display: &str| {
        let series = json!([{"id": "a", "math": math, "math_group_type_index": 0}]);
        calculate(&world, json!({"events": series, "date_from": "-1d", "display": display}))[0]["data"]
            .clone()
    };
    for math in ["unique_group", "dau"] {
        assert_eq!(data(math, "ActionsLineGraph"), json!([1, 2]), "{math}");
        assert_eq!(data(math, "ActionsLineGraphCumulative"), json!([1, 2]), "{math}");
    }
    assert_eq!(data("weekly_active", "ActionsLineGraph"), json!([1, 2]));
    let beyond = json!({"events": [{"id": "a", "math": "unique_group", "math_group_type_index": 5}]});
    assert_eq!(refusal(beyond).attr.as_deref(), Some("events"));
}

#[test]
fn aggregate_expressions_are_calculated() {
    let world = numbers([10, 20, 60]);
    let body = |text: &str, display: &str| json!({"events": [{"id": "a", "math": "hogql", "math_hogql": text}], "date_from": "2020-01-01", "display": display});
    let data = |text| calculate(&world, body(text, "ActionsLineGraph"))[0]["data"].clone();
    assert_eq!(data("avg(properties.n) + 1000"), json!([0, 1030, 0]));
    assert_eq!(data("count()"), json!([0, 3, 0]));
    let total = calculate(&world, body("sum(properties.n) / count()", "BoldNumber"));
    assert_eq!(total[0]["aggregated_value"], json!(30));
    let none = json!({"events": [{"id": "a", "math": "hogql"}]});
    assert_eq!(refusal(none).attr.as_deref(), Some("events"));
}

#[test]
fn bins_are_as_printed() {
    let world = numbers([10, 20, 30, 40]);
    let body = |count: u32| json!({"events": [{"id": "a"}], "date_from": "2020-01-01", "breakdown": "n", "breakdown_histogram_bin_count": count});
    let rows = pick(&calculate(&world, body(4)), &["breakdown_value", "count"]);
    // Equal sizes are sorted by text.
    assert_eq!(
        rows,
        json!([["[10,17.5]", 1.0], ["[17.5,25]", 1.0], ["[25,32.5]", 1.0], ["[32.5,40.01]", 1.0]])
    );
    let one = pick(&calculate(&numbers([4, 4]), body(3)), &["breakdown_value", "count"]);
    assert_eq!(one, json!([["[4,4.01]", 2.0]]));
}

#[test]
fn values_beyond_the_limit_are_added_up() {
    let events: Vec<_> = [("x", 3), ("y", 2), ("w", 1), ("", 4)]
        .into_iter()
        .flat_map(|(value, times)| vec![("a", "p", "2020-01-01T10:00:00Z", json!({"k": value})); times])
        .collect();
    let world = world("2020-01-01T12:00:00Z", &events);
    let calculate_with = |extra: Value| {
        let mut body = json!({"events": [{"id": "a"}], "date_from": "dStart", "breakdown": "k"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        pick(&calculate(&world, body), &["breakdown_value", "count", "aggregated_value"])
    };
    let (nothing, other) = ("$$_posthog_breakdown_null_$$", "$$_posthog_breakdown_other_$$");
    let lines = |rows: &[(&str, f64)]| {
        rows.iter().map(|(value, count)| json!([value, count, null])).collect::<Value>()
    };
    let all = calculate_with(json!({}));
    assert_eq!(pick_two(&all), pick_two(&lines(&[("x", 3.0), ("y", 2.0), ("w", 1.0), (nothing, 4.0)])));
    // Over time, null is the first to be cut off; in a total it is ranked like any value.
    let cut = calculate_with(json!({"breakdown_limit": 2}));
    assert_eq!(pick_two(&cut), pick_two(&lines(&[("x", 3.0), ("y", 2.0), (other, 5.0)])));
    let total = calculate_with(json!({"breakdown_limit": "2", "display": "ActionsPie"}));
    assert_eq!(total, json!([["x", 0, 3], [nothing, 0, 4], [other, 0, 3]]));
    let hidden = calculate_with(json!({"breakdown_limit": 2, "breakdown_hide_other_aggregation": true}));
    assert_eq!(hidden.as_array().unwrap().len(), 2);
}

fn pick_two(rows: &Value) -> Value {
    rows.as_array().unwrap().iter().map(|row| json!([row[0], row[1]])).collect()
}

#[test]
fn compared_periods_have_their_own_dates() {
    let events = [
        ("a", "p", "2020-01-16T10:00:00Z", json!({})),
        ("a", "p", "2020-01-11T10:00:00Z", json!({})),
        ("a", "q", "2020-01-12T10:00:00Z", json!({})),
    ];
    let world = world("2020-01-24T12:00:00Z", &events);
    let calculate_with = |extra: Value| {
        let mut body = json!({"events": [{"id": "a"}], "compare": true});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        calculate(&world, body)
    };
    let days = |result: &Value, row: usize| {
        let days = result[row]["days"].as_array().unwrap();
        (days.first().unwrap().clone(), days.last().unwrap().clone())
    };
    let fixed = calculate_with(json!({"date_from": "2020-01-15", "date_to": "2020-01-19"}));
    assert_eq!(days(&fixed, 1), (json!("2020-01-10"), json!("2020-01-14")));
    assert_eq!(
        pick(&fixed, &["compare", "compare_label", "count"]),
        json!([[true, "current", 1.0], [true, "previous", 2.0]])
    );
    assert_eq!(
        days(&calculate_with(json!({"date_from": "-7d"})), 1),
        (json!("2020-01-10"), json!("2020-01-17"))
    );
    assert_eq!(
        days(&calculate_with(json!({"date_from": "-6d"})), 1),
        (json!("2020-01-11"), json!("2020-01-17"))
    );
    let back =
        calculate_with(json!({"date_from": "2020-01-15", "date_to": "2020-01-19", "compare_to": "-2d"}));
    assert_eq!(days(&back, 1), (json!("2020-01-13"), json!("2020-01-17")));
    let wrong = json!({"events": [{"id": "a"}], "compare": true, "compare_to": "2020-01-01"});
    assert_eq!(refusal(wrong).attr.as_deref(), Some("compare_to"));
}

#[test]
fn smoothing_is_as_printed() {
    let counts = [1, 0, 1, 3, 1, 0, 2, 0, 1, 0, 1, 0];
    let events: Vec<(&str, &str, String, Value)> = counts
        .iter()
        .zip(9..)
        .flat_map(|(count, day)| vec![("a", "p", format!("2020-01-{day:02}T10:00:00Z"), json!({})); *count])
        .collect();
    let events: Vec<_> =
        events.iter().map(|(name, who, when, more)| (*name, *who, when.as_str(), more.clone())).collect();
    let world = world("2020-01-20T12:00:00Z", &events);
    let body = json!({"events": [{"id": "a"}], "date_from": "2020-01-09", "date_to": "2020-01-20", "smoothing_intervals": 7});
    assert_eq!(calculate(&world, body)[0]["data"], json!([1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]));
}

#[test]
fn bad_breakdowns_are_refused_by_name() {
    for (attr, extra) in [
        (
            "breakdowns",
            json!({"breakdowns": [{"property": "a"}, {"property": "b"}, {"property": "c"}, {"property": "d"}]}),
        ),
        ("breakdown", json!({"breakdown": ["a", "b"]})),
        ("breakdown", json!({"breakdown": "x", "breakdown_type": "cohort"})),
        ("breakdown_type", json!({"breakdown": "x", "breakdown_type": "moon"})),
        ("breakdown", json!({"breakdown": "x", "breakdown_type": "group"})),
        (
            "breakdown_group_type_index",
            json!({"breakdown": "x", "breakdown_type": "group", "breakdown_group_type_index": 5}),
        ),
        ("breakdown_limit", json!({"breakdown": "x", "breakdown_limit": 1001})),
        ("breakdown_limit", json!({"breakdown": "x", "breakdown_limit": -1})),
        ("breakdown_histogram_bin_count", json!({"breakdown": "x", "breakdown_histogram_bin_count": 1001})),
        ("breakdown", json!({"breakdown": (1..=51).collect::<Vec<_>>(), "breakdown_type": "cohort"})),
        ("breakdowns", json!({"breakdowns": [{"property": 1, "type": "cohort"}, {"property": "b"}]})),
        ("formula", json!({"formula": "A + B"})),
    ] {
        let mut body = json!({"events": [{"id": "a"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let error = refusal(body);
        assert_eq!(error.attr.as_deref(), Some(attr), "{error}");
        assert!(!error.detail.starts_with(crate::support::NOT_SUPPORTED), "{error}");
    }
    let at_the_limits = json!({"events": [{"id": "a"}], "breakdown_limit": 1000, "breakdowns": [
        {"property": "a", "histogram_bin_count": 1000}, {"property": "b"}, {"property": "c", "type": "person"}]});
    let _ = trend(&at_the_limits);
    let cohorts = json!({"events": [{"id": "a"}], "breakdown": (1..=50).collect::<Vec<_>>(), "breakdown_type": "cohort"});
    let _ = trend(&cohorts);
}

#[test]
fn every_field_changes_the_description_and_the_cache_key() {
    let plain = json!({"events": [{"id": "a", "math": "total"}, {"id": "b", "math": "dau"}]});
    let with = |extra: Value| {
        let mut body = plain.clone();
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        trend(&body)
    };
    let cases = [
        (json!({}), "count()"),
        (json!({"formula": "A / B"}), "-- formula: A / B"),
        (json!({"compare": true}), "-- compared with: the period before"),
        (json!({"compare": true, "compare_to": "-1m"}), "-- compared with: -1m"),
        (json!({"smoothing_intervals": 3}), "-- trailing average: 3 intervals"),
        (json!({"breakdown": "k"}), "GROUP BY bucket, event.`k`"),
        (json!({"breakdown": "k", "breakdown_limit": 3}), "event.`k`"),
        (json!({"breakdown": "k", "breakdown_hide_other_aggregation": true}), "event.`k`"),
        (json!({"breakdown": "k", "breakdown_normalize_url": true}), "event.`k`"),
        (json!({"breakdown": "k", "breakdown_histogram_bin_count": 3}), "event.`k`"),
        (json!({"breakdowns": [{"property": "k"}]}), "event.`k`"),
        (json!({"breakdown": "k", "breakdown_type": "person"}), "person.`k`"),
        (json!({"breakdown": [1, "all"], "breakdown_type": "cohort"}), "COHORT 1"),
        (json!({"events": [{"id": "a", "math": "sum", "math_property": "x"}]}), "sum(properties.`x`)"),
        (json!({"events": [{"id": "a", "math": "sum", "math_property": "y"}]}), "sum(properties.`y`)"),
        (json!({"events": [{"id": "a", "math": "dau", "math_group_type_index": 1}]}), "$group_1"),
        (json!({"events": [{"id": "a", "math": "hogql", "math_hogql": "count()"}]}), "count()"),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for (extra, text) in cases {
        let query = with(extra.clone());
        assert!(query.describe().contains(text), "{}", query.describe());
        assert!(seen.insert(query.normalised()), "{extra}");
        // The filters of the result are the same query again.
        let again = trend(&Value::Object(query.to_insight_filters()));
        assert_eq!(again.normalised(), query.normalised(), "{extra}");
    }
}

#[test]
fn too_many_series_and_numbers_are_rejected_at_their_limits() {
    let series = |count: usize| json!({"events": vec![json!({"id": "a"}); count]});
    let _ = trend(&series(26));
    assert_eq!(refusal(series(27)).attr.as_deref(), Some("events"));
    // 100,000 numbers are the limit: two periods of 10,000 hours of five series.
    let world = world("2020-01-01T00:00:00Z", &[]);
    let hours = |last: &str, series: usize| {
        json!({"events": vec![json!({"id": "a"}); series], "interval": "hour", "compare": true,
        "date_from": "2018-01-01 00:00:00", "date_to": last})
    };
    let rows = calculate(&world, hours("2019-02-21 15:00:00", 5));
    assert_eq!(rows[9]["data"].as_array().unwrap().len(), 10_000);
    let error = world.calculate(&trend(&hours("2019-02-21 16:00:00", 5)), 1).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("interval"), "{error}");
    // 12,000 of them in one series.
    let rows = calculate(&world, hours("2019-05-15 23:00:00", 1));
    assert_eq!(rows[0]["data"].as_array().unwrap().len(), 12_000);
    let error = world.calculate(&trend(&hours("2019-05-16 00:00:00", 1)), 1).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("interval"), "{error}");
}

/// Every link of a result lists as many persons and events as its number.
#[test]
fn links_list_the_persons_behind_each_number() {
    let mut followed = 0;
    for case in crate::support::cases("trends.json") {
        let world = World::of_case(&case);
        let Ok(ParsedQuery::Query(query)) =
            InsightKind::Trends.parse_request(case["request"]["body"].as_object().unwrap())
        else {
            continue;
        };
        let (Query::Trends(trends), Ok(result)) = (&query, world.calculate(&query, 3)) else { continue };
        for row in result.as_array().unwrap() {
            let Some(links) = row["persons_urls"].as_array() else { continue };
            for (link, number) in links.iter().zip(row["data"].as_array().unwrap()) {
                let math = link["filter"]["entity_math"].as_str().unwrap();
                let Some(url) = link["url"].as_str() else { continue };
                // The dau of the other values is a sum, and a running or smoothed number is not of one bucket.
                let of_rest = row["breakdown_value"].to_string().contains("breakdown_other");
                if trends.smoothing > 1 || (of_rest && math != "total") {
                    continue;
                }
                let (people, events) = people_of(&world, url);
                let number = number.as_u64();
                match math {
                    "total" => assert_eq!(number, Some(events), "{}: {url}", case["name"]),
                    "dau" | "weekly_active" | "unique_group" | "first_time_for_user" => {
                        assert_eq!(number, Some(people), "{}: {url}", case["name"]);
                    }
                    _ => continue,
                }
                followed += 1;
            }
        }
    }
    assert!(followed > 500, "only {followed} links were followed");
}

/// A link has a range of thirty days, which are more minutes than a query may have.
#[test]
fn links_of_rolling_actives_by_minute_list_the_persons() {
    let world = world(
        "2020-03-10T12:00:30Z",
        &[
            ("a", "ada", "2020-02-20T00:00:00Z", json!({})),
            ("a", "bob", "2020-03-10T11:59:59Z", json!({})),
            ("a", "cyd", "2020-02-01T00:00:00Z", json!({})),
        ],
    );
    let body =
        json!({"events": [{"id": "a", "math": "monthly_active"}], "interval": "minute", "date_from": "-1h"});
    let rows = calculate(&world, body);
    let (numbers, links) = (&rows[0]["data"], rows[0]["persons_urls"].as_array().unwrap());
    assert_eq!((links.len(), numbers[0].as_u64(), numbers[60].as_u64()), (61, Some(1), Some(2)));
    for (link, number) in links.iter().zip(numbers.as_array().unwrap()) {
        assert_eq!(number.as_u64(), Some(people_of(&world, link["url"].as_str().unwrap()).0), "{link}");
    }
}

fn people_of(world: &World, url: &str) -> (u64, u64) {
    let request = link_parameters(url);
    let Ok(ParsedQuery::Query(query)) = InsightKind::Trends.parse_request(&request) else { panic!("{url}") };
    let selector = query.data_point(&request).unwrap();
    let plan = query.plan(&world.project, world.now).unwrap();
    let facts = world.facts(&plan);
    let parts = plan.join(world.partitions(plan.scan(), 3), facts, &|| false).unwrap();
    let people = parts.iter().flat_map(|part| plan.people(part, &selector, &|| false).unwrap());
    let people = union(people);
    (people.len() as u64, people.iter().map(|one| one.times.len() as u64).sum())
}
