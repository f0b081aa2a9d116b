//! The rules of flag impact: what is refused, the limits, the verdicts, and the actors behind a number.

use pennon_analytics::people::MatchedActor;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use serde_json::{Value, json};

use crate::support::{World, link_parameters};

/// A project with one event a row: seconds after midnight, distinct id, name, properties.
fn world(events: &[(i64, &str, &str, Value)]) -> World {
    let events = events.iter().map(|(second, id, name, properties)| {
        let time = format!("2024-03-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        json!({"event": name, "distinct_id": id, "timestamp": time, "properties": properties})
    });
    World::of_case(&json!({
        "now": "2024-03-02T00:00:00Z", "project": {"timezone": "UTC"}, "persons": [], "groups": [], "cohorts": [],
        "actions": [], "events": events.collect::<Vec<_>>(),
    }))
}

fn call(second: i64, id: &'static str, variant: Value) -> (i64, &'static str, &'static str, Value) {
    (second, id, "$feature_flag_called", json!({"$feature_flag": "f", "$feature_flag_response": variant}))
}

fn impact(more: Value) -> Value {
    let mut impact = json!({
        "flag": {"key": "f", "variants": [{"key": "control", "share": 50}, {"key": "test", "share": 50}]},
        "query": {"kind": "FunnelsQuery", "series": [{"kind": "EventsNode", "event": "buy"}]},
        "dateRange": {"date_from": "2024-03-01", "date_to": "2024-03-01"},
    });
    for (key, value) in more.as_object().unwrap() {
        impact[key] = value.clone();
    }
    impact
}

fn parse(impact: &Value) -> Result<Query, pennon_filters::CalcError> {
    let request = json!({"impact": impact});
    match InsightKind::FlagImpact.parse_request(request.as_object().unwrap())? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

/// Name and detail of the error.
fn refusal(more: Value) -> (String, String) {
    let error = parse(&impact(more)).unwrap_err();
    (error.attr.unwrap_or_default(), error.detail)
}

#[test]
fn every_wrong_field_is_refused_by_its_name() {
    let steps = json!([{"kind": "EventsNode", "event": "buy"}]);
    let funnel = |key: &str, value: Value| {
        let mut query = json!({"kind": "FunnelsQuery", "series": steps});
        query[key] = value;
        json!({"query": query})
    };
    let trend = |math: Value, key: &str, value: Value| {
        let mut series = json!({"kind": "EventsNode", "event": "buy"});
        for (name, value) in math.as_object().unwrap() {
            series[name] = value.clone();
        }
        let mut query = json!({"kind": "TrendsQuery", "series": [series]});
        query[key] = value;
        json!({"query": query})
    };
    for (more, attr) in [
        (json!({"query": null}), "query"),
        (
            json!({"query": {"kind": "RetentionQuery", "retentionFilter": {"targetEntity": {"id": "a"},
            "returningEntity": {"id": "a"}}}}),
            "query",
        ),
        (json!({"query": {"kind": "HogQLQuery"}}), "query"),
        (json!({"exposure": "other"}), "exposure"),
        (json!({"exposure": 7}), "exposure"),
        (json!({"exposure_event": "a"}), "exposure_event"),
        (json!({"method": "other"}), "method"),
        (json!({"confidence_level": 0.49}), "confidence_level"),
        (json!({"confidence_level": 0.99991}), "confidence_level"),
        (json!({"confidence_level": "high"}), "confidence_level"),
        (json!({"minimum_sample": 1}), "minimum_sample"),
        (json!({"minimum_sample": 1_000_000_001_u64}), "minimum_sample"),
        (json!({"minimum_sample": 2.5}), "minimum_sample"),
        (json!({"control": 7}), "control"),
        (json!({"control": "x".repeat(1_601)}), "control"),
        (json!({"dateRange": 7}), "dateRange"),
        (json!({"dateRange": {"date_from": "soon"}}), "date_from"),
        (funnel("breakdownFilter", json!({"breakdown": "v"})), "breakdownFilter"),
        (funnel("funnelsFilter", json!({"funnelVizType": "trends"})), "funnelsFilter__funnelVizType"),
        (funnel("aggregation_group_type_index", json!(0)), "aggregation_group_type_index"),
        (trend(json!({}), "breakdownFilter", json!({"breakdown": "v"})), "breakdownFilter"),
        (trend(json!({}), "compareFilter", json!({"compare": true})), "compareFilter"),
        (trend(json!({}), "trendsFilter", json!({"formula": "a"})), "trendsFilter__formulas"),
        (trend(json!({"math": "avg", "math_property": "n"}), "interval", json!("day")), "series"),
        (trend(json!({"math": "weekly_active"}), "interval", json!("day")), "series"),
        (
            trend(json!({"math": "unique_group", "math_group_type_index": 0}), "interval", json!("day")),
            "series",
        ),
        (
            trend(json!({"math": "sum", "math_property": "$session_duration"}), "interval", json!("day")),
            "series",
        ),
    ] {
        let (got, detail) = refusal(more.clone());
        assert_eq!(got, attr, "{more}: {detail}");
    }
    for more in [
        json!({"confidence_level": 0.5}),
        json!({"confidence_level": 0.9999}),
        json!({"minimum_sample": 2}),
        json!({"minimum_sample": 1_000_000_000}),
        json!({"control": "x".repeat(1_600)}),
        json!({"exposure": "property", "exposure_event": "a"}),
        json!({"method": "", "exposure": null}),
    ] {
        assert!(parse(&impact(more.clone())).is_ok(), "{more}");
    }
}

#[test]
fn a_metric_of_other_actors_than_the_flags_is_refused() {
    let flag = json!({"key": "f", "group_type_index": 1, "variants": []});
    let of = |query: Value| parse(&impact(json!({"flag": flag, "query": query})));
    let series = |math: Value| json!({"kind": "TrendsQuery", "series": [math]});
    assert!(of(series(json!({"kind": "EventsNode", "event": "a", "math": "dau"}))).is_err());
    assert!(
        of(series(
            json!({"kind": "EventsNode", "event": "a", "math": "unique_group", "math_group_type_index": 0})
        ))
        .is_err()
    );
    assert!(
        of(series(
            json!({"kind": "EventsNode", "event": "a", "math": "unique_group", "math_group_type_index": 1})
        ))
        .is_ok()
    );
    let funnel = |index: Value| json!({"kind": "FunnelsQuery", "series": [{"kind": "EventsNode", "event": "a"}], "aggregation_group_type_index": index});
    let error = of(funnel(json!(0))).unwrap_err();
    assert!(error.detail.contains("groups of type 1"), "{}", error.detail);
    assert!(of(funnel(json!(1))).is_ok() && of(funnel(Value::Null)).is_ok());
}

#[test]
fn a_query_survives_its_own_form_and_has_a_key_of_its_flag() {
    for more in [
        json!({}),
        json!({"exposure": "property", "exposure_event": "a", "method": "frequentist", "control": "test", "minimum_sample": 7}),
        json!({"query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a", "math": "sum",
            "math_property": "n", "math_multiplier": 0.5}]}}),
    ] {
        let query = parse(&impact(more)).unwrap();
        let filters = query.to_insight_filters();
        let again = InsightKind::FlagImpact.parse_request(&filters).unwrap();
        assert_eq!(again, ParsedQuery::Query(query.clone()));
        assert!(query.describe().contains("'f'"), "{}", query.describe());
    }
    let key = |more: Value| parse(&impact(more)).unwrap().normalised();
    let split =
        json!({"key": "f", "variants": [{"key": "control", "share": 40}, {"key": "test", "share": 60}]});
    let others = [json!({"flag": split}), json!({"minimum_sample": 9}), json!({"method": "frequentist"})];
    for other in others {
        assert_ne!(key(json!({})), key(other));
    }
}

/// `count` persons of a variant, of whom `converted` buy.
fn persons(variant: &str, count: usize, converted: usize) -> Vec<(i64, String, &'static str, Value)> {
    let mut events = Vec::new();
    for person in 0..count {
        let id = format!("{variant} {person}");
        let properties = json!({"$feature_flag": "f", "$feature_flag_response": variant});
        events.push((60, id.clone(), "$feature_flag_called", properties));
        if person < converted {
            events.push((120, id, "buy", json!({"n": person})));
        }
    }
    events
}

fn calculate(events: &[(i64, String, &'static str, Value)], more: Value) -> Value {
    let events: Vec<(i64, &str, &str, Value)> = events
        .iter()
        .map(|(second, id, name, properties)| (*second, id.as_str(), *name, properties.clone()))
        .collect();
    world(&events).calculate_parsed(parse(&impact(more)).map(ParsedQuery::Query)).unwrap()
}

#[test]
fn verdicts_need_a_sample_a_split_and_an_interval_beside_zero() {
    let verdict = |control: (usize, usize), test: (usize, usize), method: &str| {
        let events = [persons("control", control.0, control.1), persons("test", test.0, test.1)].concat();
        let result = calculate(&events, json!({"method": method}));
        let row = &result["variants"][1];
        assert_eq!((&row["variant"], &result["control"]), (&json!("test"), &json!("control")));
        assert!(row["sentence"].as_str().unwrap().contains("erdict") || row["verdict"] != "too_few_exposed");
        row["verdict"].as_str().unwrap().to_owned()
    };
    for method in ["bayesian", "frequentist"] {
        assert_eq!(verdict((99, 10), (120, 80), method), "too_few_exposed");
        assert_eq!(verdict((100, 10), (100, 80), method), "higher");
        assert_eq!(verdict((100, 80), (100, 10), method), "lower");
        assert_eq!(verdict((100, 50), (100, 51), method), "no_difference_shown");
        assert_eq!(verdict((100, 10), (200, 180), method), "sample_ratio_mismatch");
    }
}

#[test]
fn a_result_without_exposures_explains_it() {
    let result = calculate(&[], json!({}));
    assert_eq!(result["exposed"], 0);
    let rows = result["variants"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["variant"], &rows[0]["rate"], &rows[0]["verdict"]),
        (&json!("control"), &Value::Null, &Value::Null)
    );
    assert_eq!(result["sample_ratio"]["is_checked"], false);
}

#[test]
fn the_number_of_variants_is_limited() {
    let seen = |count: usize| {
        let events: Vec<_> = (0..count).flat_map(|variant| persons(&format!("v{variant}"), 1, 0)).collect();
        let events: Vec<(i64, &str, &str, Value)> = events
            .iter()
            .map(|(second, id, name, properties)| (*second, id.as_str(), *name, properties.clone()))
            .collect();
        world(&events).calculate_parsed(parse(&impact(json!({"control": "v0"}))).map(ParsedQuery::Query))
    };
    assert_eq!(seen(20).unwrap()["variants"].as_array().unwrap().len(), 20);
    let error = seen(21).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("exposure"));
    assert!(error.detail.contains("more than 20"), "{}", error.detail);
}

#[test]
fn links_list_as_many_actors_as_the_numbers_count() {
    let world = world(&[
        call(60, "ann", json!("control")),
        call(60, "bob", json!("test")),
        call(70, "cat", json!("test")),
        call(80, "dan", json!("control")),
        call(90, "dan", json!("test")),
        (50, "ann", "buy", json!({})),
        (60, "bob", "buy", json!({})),
        (75, "cat", "sell", json!({})),
    ]);
    let result =
        world.calculate_parsed(parse(&impact(json!({"minimum_sample": 2}))).map(ParsedQuery::Query)).unwrap();
    let list = |url: &Value| -> Vec<MatchedActor> {
        let parameters = link_parameters(url.as_str().unwrap());
        let parsed = InsightKind::FlagImpact.parse_people_request(&parameters).unwrap();
        let ParsedQuery::Query(query) = parsed else { panic!("no query") };
        world.people(&query, &parameters, 3).unwrap()
    };
    let (control, test) = (&result["variants"][0], &result["variants"][1]);
    for row in [control, test] {
        assert_eq!(json!(list(&row["exposed_persons_url"]).len()), row["exposed"]);
        assert_eq!(json!(list(&row["converted_persons_url"]).len()), row["converted"]);
    }
    assert_eq!((&control["exposed"], &control["converted"]), (&json!(1), &json!(0)));
    assert_eq!((&test["exposed"], &test["converted"]), (&json!(2), &json!(1)));
    assert_eq!(result["several_variants"]["exposed"], 1);
    assert_eq!(list(&result["several_variants"]["persons_url"]).len(), 1);
}

#[test]
fn filters_and_test_accounts_are_left_out_of_exposures_and_metric_alike() {
    let mut world = world(&[
        (
            60,
            "ann",
            "$feature_flag_called",
            json!({"$feature_flag": "f", "$feature_flag_response": "test", "host": "local"}),
        ),
        (61, "ann", "buy", json!({"host": "web"})),
        (
            60,
            "bob",
            "$feature_flag_called",
            json!({"$feature_flag": "f", "$feature_flag_response": "test", "host": "web"}),
        ),
        (61, "bob", "buy", json!({"host": "local"})),
        (
            62,
            "cat",
            "$feature_flag_called",
            json!({"$feature_flag": "f", "$feature_flag_response": "test", "host": "web"}),
        ),
        (62, "cat", "buy", json!({"host": "web"})),
    ]);
    let filter = json!({"key": "host", "value": "local", "operator": "is_not", "type": "event"});
    let steps = json!([{"kind": "EventsNode", "event": "buy"}]);
    let all = |world: &World, more: Value| {
        let mut query = json!({"kind": "FunnelsQuery", "series": steps});
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let result = world.calculate_parsed(
            parse(&impact(json!({"query": query, "control": "test"}))).map(ParsedQuery::Query),
        );
        let row = result.unwrap()["variants"][0].clone();
        (row["exposed"].as_u64().unwrap(), row["converted"].as_u64().unwrap())
    };
    assert_eq!(all(&world, json!({})), (3, 3));
    assert_eq!(all(&world, json!({"properties": [filter]})), (2, 1));
    world.project.test_account_filters = vec![filter];
    assert_eq!(all(&world, json!({})), (3, 3));
    assert_eq!(all(&world, json!({"filterTestAccounts": true})), (2, 1));
}

#[test]
fn the_date_range_is_that_of_the_projects_time_zone() {
    let mut world = world(&[
        call(3 * 3600, "ann", json!("test")),
        call(5 * 3600 - 1, "bob", json!("test")),
        call(5 * 3600, "cat", json!("test")),
    ]);
    let exposed = |world: &World| {
        world.calculate_parsed(parse(&impact(json!({}))).map(ParsedQuery::Query)).unwrap()["exposed"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(exposed(&world), 3);
    // The first of March begins in New York at 5 o'clock UTC.
    world.project.timezone = "America/New_York".parse().unwrap();
    assert_eq!(exposed(&world), 1);
}
