//! Ranges of trends, and results of long ranges, with numbers counted by hand.

use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

/// Events `a` as (time, `k`).
fn world(now: &str, zone: &str, events: &[(&str, &str)]) -> World {
    let event = |(when, k): &(&str, &str)| json!({"event": "a", "distinct_id": "p", "timestamp": when, "properties": {"k": k, "n": 1}});
    let events: Vec<Value> = events.iter().map(event).collect();
    World::of_case(&json!({"now": now, "project": {"timezone": zone}, "persons": [], "events": events}))
}

fn try_calculate(world: &World, body: &Value) -> Result<Value, CalcError> {
    let mut whole = json!({"events": [{"id": "a"}]});
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    match InsightKind::Trends.parse_request(whole.as_object().unwrap())? {
        ParsedQuery::Query(query) => world.calculate(&query, 3),
        other => panic!("{other:?}"),
    }
}

fn calculate(world: &World, body: Value) -> Value {
    try_calculate(world, &body).unwrap()
}

fn totals(result: &Value) -> Vec<i64> {
    result.as_array().unwrap().iter().map(|row| row["aggregated_value"].as_i64().unwrap()).collect()
}

#[test]
fn the_earlier_period_of_a_total_is_rounded_by_the_requested_interval() {
    // F..T is 10 to 14 February, before it 5 to 9 February; by months that counts from the first.
    let months = world("2020-02-20T12:00:00Z", "UTC", &[("2020-02-02T12:00:00Z", "x")]);
    let of = |interval: &str| {
        json!({"display": "ActionsTable", "interval": interval, "compare": true,
        "date_from": "2020-02-10", "date_to": "2020-02-14"})
    };
    assert_eq!(totals(&calculate(&months, of("month"))), [0, 1]);
    assert_eq!(totals(&calculate(&months, of("day"))), [0, 0]);
    // By hours F..T is 3 January 00:00 to 4 January 13:59, before it 1 January 00:00 to 2 January 13:59.
    let events =
        [("2020-01-02T13:30:00Z", "x"), ("2020-01-02T20:00:00Z", "x"), ("2020-01-04T20:00:00Z", "x")];
    let hours = world("2020-01-04T13:30:00Z", "UTC", &events);
    let of = |interval: &str| json!({"display": "ActionsPie", "interval": interval, "compare": true, "date_from": "-1dStart"});
    assert_eq!(totals(&calculate(&hours, of("hour"))), [1, 1]);
    assert_eq!(totals(&calculate(&hours, of("day"))), [1, 2]);
}

#[test]
fn a_day_of_a_clock_change_has_twenty_five_hours() {
    // Clocks went from midnight back to 23:00: half past eleven for the second time.
    let world = world("2024-05-01T12:00:00Z", "America/Santiago", &[("2024-04-07T03:30:00Z", "x")]);
    let data = |body: Value| calculate(&world, body)[0]["data"].clone();
    assert_eq!(data(json!({"date_from": "2024-04-06", "date_to": "2024-04-06"})), json!([1]));
    assert_eq!(data(json!({"date_from": "2024-04-06", "date_to": "2024-04-07"})), json!([1, 0]));
    let before =
        calculate(&world, json!({"date_from": "2024-04-07", "date_to": "2024-04-07", "compare": true}));
    assert_eq!((&before[0]["data"], &before[1]["data"]), (&json!([0]), &json!([1])));
}

#[test]
fn the_default_range_is_calculated_by_minutes() {
    let world = world("2020-01-08T23:59:30Z", "UTC", &[("2020-01-08T23:59:10Z", "x")]);
    let series = vec![json!({"id": "a"}); 4];
    let rows = calculate(&world, json!({"interval": "minute", "compare": true, "events": series}));
    let rows = rows.as_array().unwrap();
    let data = rows[0]["data"].as_array().unwrap();
    assert_eq!((rows.len(), data.len(), data.last()), (8, 11_520, Some(&json!(1))));
    // Links of all of them would exceed the maximum size of a response.
    assert_eq!(rows[0]["persons_urls"], Value::Null);
    let omitted = rows[0]["persons_urls_omitted"].as_str().unwrap();
    assert!(omitted.contains("92160 links to people") && omitted.contains("longer interval"), "{omitted}");
}

#[test]
fn a_series_of_an_action_that_does_not_exist_has_no_row_without_links() {
    let world = world("2020-01-02T12:00:00Z", "UTC", &[("2020-01-01T10:00:00Z", "x")]);
    let rows =
        calculate(&world, json!({"events": [{"id": "a"}], "actions": [{"id": 77}], "date_from": "-3d"}));
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert!(rows[0]["persons_urls"][0]["url"].is_string() && rows[0].get("persons_urls_omitted").is_none());
}

#[test]
fn smoothing_follows_the_running_sum_and_leaves_broken_down_series() {
    let events = [
        ("2020-01-01T10:00:00Z", "x"),
        ("2020-01-02T10:00:00Z", "x"),
        ("2020-01-02T11:00:00Z", "x"),
        ("2020-01-04T10:00:00Z", "x"),
    ];
    let world = world("2020-01-05T12:00:00Z", "UTC", &events);
    let body = |more: Value| {
        let mut body = json!({"display": "ActionsLineGraphCumulative", "smoothing_intervals": 3,
            "date_from": "2020-01-01", "date_to": "2020-01-05"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        calculate(&world, body)[0]["data"].clone()
    };
    assert_eq!(body(json!({"breakdown": "k"})), json!([1, 3, 3, 4, 4]));
    // 1/1, 4/2, 7/3, 10/3, 11/3.
    assert_eq!(body(json!({})), json!([1, 2, 2, 3, 3]));
}

#[test]
fn values_times_hours_that_exceed_the_memory_limit_are_rejected() {
    // 3,600 values of 9,600 hours are 276 million bytes.
    let values: Vec<String> = (0..3_600).map(|value| format!("v{value}")).collect();
    let events: Vec<_> = values.iter().map(|value| ("2020-01-01T10:00:00Z", value.as_str())).collect();
    let world = world("2020-01-02T23:30:00Z", "UTC", &events);
    for math in [
        json!({"id": "a"}),
        json!({"id": "a", "math": "dau"}),
        json!({"id": "a", "math": "sum", "math_property": "n"}),
    ] {
        let body =
            |from: &str| json!({"events": [math], "breakdown": "k", "interval": "hour", "date_from": from});
        let error = try_calculate(&world, &body("-400d")).unwrap_err();
        assert!(error.detail.starts_with("Counting this takes more than 256 MiB"), "{error}");
        assert_eq!(calculate(&world, body("-2d")).as_array().unwrap().len(), 26);
    }
}

#[test]
fn lists_that_do_not_parse_are_rejected_with_the_texts_of_the_contract() {
    let world = world("2020-01-02T12:00:00Z", "UTC", &[]);
    for list in ["events", "actions"] {
        let mut body = json!({});
        body[list] = json!("[{");
        let error = try_calculate(&world, &body).unwrap_err();
        assert_eq!(
            (error.attr.as_deref(), error.detail.as_str()),
            (Some(list), "Properties are unparsable!")
        );
    }
}
