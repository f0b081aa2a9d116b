//! Rules of trends with numbers counted by hand from the contract: totals of rolling actives, several formulas,
//! multipliers, and errors that name the parameter.

use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

/// Events `a` as (distinct id, time, properties), of a project that may count distinct ids. `p1` and `p2` are one person.
fn world(by_distinct_id: bool, events: &[(&str, &str, Value)]) -> World {
    let event = |(id, at, properties): &(&str, &str, Value)| json!({"event": "a", "distinct_id": id, "timestamp": at, "properties": properties});
    World::of_case(&json!({
        "now": "2020-01-31T12:00:00Z",
        "project": {"timezone": "UTC", "aggregate_users_by_distinct_id": by_distinct_id},
        "persons": [{"distinct_ids": ["p1", "p2"], "properties": {}}],
        "events": events.iter().map(event).collect::<Vec<_>>(),
    }))
}

fn parse_legacy(body: &Value) -> Result<Query, CalcError> {
    match InsightKind::Trends.parse_request(body.as_object().unwrap())? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn parse_node(node: &Value) -> Result<Query, CalcError> {
    match Query::from_query_node(node)? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn calculate(world: &World, query: &Query) -> Value {
    let whole = world.calculate(query, 1).unwrap();
    assert_eq!(world.calculate(query, 3).unwrap(), whole, "the result depends on how actors are divided");
    whole
}

#[test]
fn rolling_actives_of_a_total_are_plain_actives_if_the_interval_is_as_long() {
    let world =
        world(false, &[("x", "2020-01-01T10:00:00Z", json!({})), ("y", "2020-01-05T10:00:00Z", json!({}))]);
    // The range ends with 31 January; x and y did nothing in its last week, and both did something in the range.
    for (math, interval, want) in [
        ("weekly_active", "day", 0),
        ("weekly_active", "week", 2),
        ("weekly_active", "month", 2),
        ("monthly_active", "month", 2),
        // The last 30 days begin on 2 January.
        ("monthly_active", "week", 1),
    ] {
        let body = json!({"events": [{"id": "a", "math": math}], "interval": interval, "display": "ActionsPie",
            "date_from": "2019-12-01", "date_to": "2020-01-31"});
        let query = parse_legacy(&body).unwrap();
        assert_eq!(calculate(&world, &query)[0]["aggregated_value"], json!(want), "{math} by {interval}");
    }
}

#[test]
fn first_times_are_of_persons_even_if_distinct_ids_are_counted() {
    let world =
        world(true, &[("p1", "2020-01-01T10:00:00Z", json!({})), ("p2", "2020-01-02T10:00:00Z", json!({}))]);
    let entry = |math: &str| json!({"id": "a", "math": math});
    let body = json!({"events": [entry("first_time_for_user"), entry("dau"), entry("total")],
        "date_from": "2020-01-01", "date_to": "2020-01-02"});
    let result = calculate(&world, &parse_legacy(&body).unwrap());
    let data: Vec<&Value> = result.as_array().unwrap().iter().map(|series| &series["data"]).collect();
    assert_eq!(data, [&json!([1, 0]), &json!([1, 1]), &json!([1, 1])]);
    let alone =
        json!({"events": [entry("first_time_for_user")], "date_from": "2020-01-01", "date_to": "2020-01-02"});
    assert_eq!(world.calculate(&parse_legacy(&alone).unwrap(), 2).unwrap()[0]["data"], json!([1, 0]));
}

fn node(trends_filter: Value) -> Value {
    json!({"kind": "TrendsQuery", "trendsFilter": trends_filter,
        "series": [{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "a", "math": "dau"}],
        "dateRange": {"date_from": "2020-01-01", "date_to": "2020-01-01"}})
}

#[test]
fn every_formula_has_a_result_in_its_order_and_with_its_name() {
    let world =
        world(false, &[("x", "2020-01-01T10:00:00Z", json!({})), ("x", "2020-01-01T11:00:00Z", json!({}))]);
    let rows = |filter: Value| -> Vec<(Value, Value, Value)> {
        let result = calculate(&world, &parse_node(&node(filter)).unwrap());
        let row = |row: &Value| (row["label"].clone(), row["order"].clone(), row["data"].clone());
        result.as_array().unwrap().iter().map(row).collect()
    };
    let product = (json!("Formula (A * 10)"), json!(0), json!([20]));
    assert_eq!(rows(json!({"formula": "A * 10"})), std::slice::from_ref(&product));
    let ratio = (json!("Formula (A / B)"), json!(1), json!([2]));
    assert_eq!(rows(json!({"formulas": ["A * 10", "A / B"]})), [product.clone(), ratio]);
    let nodes = json!([{"formula": "A * 10"}, {"formula": "A / B", "custom_name": "per person"}]);
    let named = (json!("per person"), json!(1), json!([2]));
    // The newest field is used if a client sends all of them.
    assert_eq!(rows(json!({"formula": "A", "formulas": ["B"], "formulaNodes": nodes})), [product, named]);
    // Both periods of a formula are adjacent.
    let mut compared = node(json!({"formulas": ["A", "B"]}));
    compared["compareFilter"] = json!({"compare": true});
    let compared = calculate(&world, &parse_node(&compared).unwrap());
    let of = |key: &str| compared.as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("order"), [json!(0), json!(0), json!(1), json!(1)]);
    assert_eq!(of("compare_label"), ["current", "previous", "current", "previous"]);
}

#[test]
fn lists_of_formulas_have_a_limit_and_a_format() {
    let formulas = |count: usize| json!({"formulas": vec!["A"; count]});
    assert!(parse_node(&node(formulas(26))).is_ok());
    for bad in [
        formulas(27),
        json!({"formulas": "A"}),
        json!({"formulas": [1]}),
        json!({"formulas": ["A", ""]}),
        json!({"formulaNodes": ["A"]}),
        json!({"formulaNodes": [{}]}),
        json!({"formulas": ["A", "C"]}),
    ] {
        let error = parse_node(&node(bad.clone())).unwrap_err();
        assert!(
            error.attr.as_deref().unwrap_or_default().starts_with("trendsFilter__formula"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn numbers_of_properties_are_multiplied() {
    let world = world(
        false,
        &[
            ("x", "2020-01-01T10:00:00Z", json!({"ms": 1500})),
            ("y", "2020-01-01T11:00:00Z", json!({"ms": 2500})),
        ],
    );
    let body = |math: &str, factor: Value| {
        json!({"events": [{"id": "a", "math": math, "math_property": "ms", "math_multiplier": factor}],
            "date_from": "2020-01-01", "date_to": "2020-01-01"})
    };
    for (math, want) in
        [("sum", json!([4])), ("avg", json!([2])), ("min", json!([1.5])), ("p75", json!([2.25]))]
    {
        let query = parse_legacy(&body(math, json!(0.001))).unwrap();
        assert_eq!(calculate(&world, &query)[0]["data"], want, "{math}");
    }
    for (math, factor) in [("sum", json!(0)), ("sum", json!(-1)), ("sum", json!("x")), ("dau", json!(2))] {
        let error = parse_legacy(&body(math, factor.clone())).unwrap_err();
        assert!(error.detail.contains("math_multiplier"), "{math} {factor}: {error}");
    }
    assert!(parse_legacy(&body("dau", json!(1))).is_ok());
}

#[test]
fn invalid_dates_and_displays_are_rejected_by_name() {
    for (key, value) in [
        ("date_from", "2020-13-01"),
        ("date_from", "2020-02-30"),
        ("date_from", "2020-01-01T25:00:00Z"),
        ("date_from", "???"),
        ("date_to", "2020-13-01"),
        ("date_to", "all"),
        ("display", "Pie"),
        ("display", "actionslinegraph"),
    ] {
        let mut body = json!({"events": [{"id": "a"}]});
        body[key] = json!(value);
        let legacy = parse_legacy(&body).unwrap_err();
        let mut node = node(json!({}));
        match key {
            "display" => node["trendsFilter"][key] = json!(value),
            _ => node["dateRange"] = json!({key: value}),
        }
        let of_node = parse_node(&node).unwrap_err();
        let named = if key == "display" { "ActionsLineGraph, " } else { "-7d" };
        for error in [legacy, of_node] {
            assert_eq!(error.attr.as_deref(), Some(key), "{value}");
            assert!(error.detail.contains(named) && error.detail.contains(value), "{error}");
        }
        if key != "display" {
            let mut funnel = json!({"events": [{"id": "a"}, {"id": "b"}]});
            funnel[key] = json!(value);
            let error = InsightKind::Funnels.parse_request(funnel.as_object().unwrap()).unwrap_err();
            assert_eq!(error.attr.as_deref(), Some(key), "{value}");
        }
    }
    for (key, value) in [("date_from", "all"), ("date_from", ""), ("date_to", ""), ("date_to", "-1dEnd")] {
        let mut body = json!({"events": [{"id": "a"}]});
        body[key] = json!(value);
        assert!(parse_legacy(&body).is_ok(), "{key} {value}");
    }
}

#[test]
fn a_funnel_with_a_comparison_period_is_rejected_by_name() {
    let node = |compare: bool| {
        json!({"kind": "FunnelsQuery", "compareFilter": {"compare": compare},
            "series": [{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]})
    };
    assert!(Query::from_query_node(&node(false)).is_ok());
    let error = Query::from_query_node(&node(true)).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("compareFilter__compare"));
    assert!(error.detail.starts_with("Not supported yet"), "{error}");
    let legacy = |compare: Value| {
        let body = json!({"events": [{"id": "a"}, {"id": "b"}], "compare": compare});
        InsightKind::Funnels.parse_request(body.as_object().unwrap())
    };
    assert!(legacy(json!(false)).is_ok() && legacy(json!("false")).is_ok() && legacy(json!(null)).is_ok());
    for compare in [json!(true), json!("true")] {
        let error = legacy(compare).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("compare"));
        assert!(error.detail.starts_with("Not supported yet"), "{error}");
    }
}

#[test]
fn an_empty_url_is_the_root() {
    let world = world(
        false,
        &[
            ("x", "2020-01-01T10:00:00Z", json!({"url": ""})),
            ("x", "2020-01-01T10:00:00Z", json!({"url": "/?"})),
            ("x", "2020-01-01T10:00:00Z", json!({"url": null})),
        ],
    );
    let body = json!({"events": [{"id": "a"}], "breakdown": "url", "breakdown_type": "event",
        "breakdown_normalize_url": true, "date_from": "2020-01-01", "date_to": "2020-01-01"});
    let result = calculate(&world, &parse_legacy(&body).unwrap());
    let rows: Vec<_> =
        result.as_array().unwrap().iter().map(|row| (&row["breakdown_value"], &row["data"])).collect();
    let null = json!("$$_posthog_breakdown_null_$$");
    assert_eq!(rows, [(&json!("/"), &json!([2])), (&null, &json!([1]))]);
}

#[test]
fn links_that_are_left_out_are_explained() {
    let events: Vec<(String, String)> =
        (0..60).map(|n| (format!("x{n}"), "2020-01-01T10:00:00Z".to_owned())).collect();
    let events: Vec<(&str, &str, Value)> = events
        .iter()
        .map(|(id, at)| (id.as_str(), at.as_str(), json!({"k": format!("{id}{}", "y".repeat(500))})))
        .collect();
    let world = world(false, &events);
    let body = |interval: &str| {
        json!({"events": [{"id": "a"}], "breakdown": "k", "breakdown_type": "event", "breakdown_limit": 60,
            "interval": interval, "date_from": "2020-01-01", "date_to": "2020-01-31"})
    };
    let long = world.calculate(&parse_legacy(&body("hour")).unwrap(), 1).unwrap();
    assert!(
        long[0]["persons_urls_omitted"].as_str().unwrap().contains("longer interval"),
        "{}",
        long[0]["persons_urls_omitted"]
    );
    let short = world.calculate(&parse_legacy(&body("month")).unwrap(), 1).unwrap();
    assert!(short[0].get("persons_urls_omitted").is_none());
    assert!(short[0]["persons_urls"][0]["url"].is_string());
}
