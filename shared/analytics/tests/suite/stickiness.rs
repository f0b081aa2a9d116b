//! Stickiness: the cases of the corpus, and rules of the contract that they do not cover.

use std::collections::BTreeMap;

use pennon_analytics::kinds::validate_node;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::support::{CaseOutcomes, World, cases, decode_query};

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

/// The query of a request.
fn query(parsed: Result<ParsedQuery, CalcError>) -> Query {
    match parsed.unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

/// Parses a case's request as its endpoint does.
fn parse(endpoint: &str, body: &Value) -> Result<ParsedQuery, CalcError> {
    match (endpoint, &body["query"]) {
        ("query", _) => Query::from_query_node(body),
        ("insight", Value::Null) => Query::from_insight_filters(object(&body["filters"])),
        ("insight", node) => Query::from_query_node(node),
        ("insights/trend", _) => InsightKind::Trends.parse_request(object(body)),
        ("insights/stickiness" | "persons/stickiness", _) => {
            InsightKind::Stickiness.parse_people_request(object(body))
        }
        (other, _) => panic!("{other}"),
    }
}

/// The parameters of a link.
fn parameters(url: &str) -> Map<String, Value> {
    let (path, text) = url.split_once('?').unwrap();
    assert_eq!(path, "/api/projects/7/persons/stickiness/");
    decode_query(text)
}

/// Asserts that the links of each row list as many persons as its numbers. Returns the number of links.
fn follow(world: &World, result: &Value) -> usize {
    let mut links = 0;
    for row in result.as_array().unwrap() {
        let (data, urls) = (row["data"].as_array().unwrap(), row["persons_urls"].as_array().unwrap());
        assert_eq!(data.len(), urls.len());
        for (number, link) in data.iter().zip(urls) {
            let request = parameters(link["url"].as_str().unwrap());
            let query = query(InsightKind::Stickiness.parse_people_request(&request));
            let people = world.people(&query, &request, 2).unwrap();
            assert_eq!(json!(people.len()), *number, "{link}");
            links += 1;
        }
    }
    links
}

#[test]
fn cases_give_the_expected_bars_and_people() {
    let mut outcomes = CaseOutcomes::default();
    for case in cases("stickiness.json") {
        let world = World::of_case(&case);
        let (endpoint, body) = (case["request"]["endpoint"].as_str().unwrap(), &case["request"]["body"]);
        let parsed = parse(endpoint, body);
        if let Some(want) = case["expect"]["people"].as_array() {
            let people = world.people(&query(parsed), object(body), 2).unwrap();
            let mut want: Vec<Vec<String>> =
                want.iter().map(|ids| serde_json::from_value(ids.clone()).unwrap()).collect();
            want.iter_mut().for_each(|ids| ids.sort());
            want.sort();
            assert_eq!(world.ids_of(&people), want, "{}", case["name"]);
            outcomes.calculated += 1;
            continue;
        }
        let result = world.calculate_parsed(parsed);
        if let (Some(mentioned), Err(error)) = (case["expect"]["mentions"].as_str(), &result) {
            let text = format!("{} {}", error.detail, error.attr.as_deref().unwrap_or_default());
            assert!(text.to_lowercase().contains(&mentioned.to_lowercase()), "{}: {error}", case["name"]);
        }
        if case["request"]["follow"] == json!("persons_urls") {
            assert_eq!(follow(&world, result.as_ref().unwrap()), 10);
        }
        outcomes.record(&case, result, 1e-9);
    }
    assert!(outcomes.not_covered.is_empty(), "{:?}", outcomes.not_covered);
    outcomes.check(35, 7);
}

/// Persons a, b and c with an event `x` on these days and hours of January 2024.
fn world(events: &[(&str, u32, u32)]) -> World {
    let event = |(who, day, hour): &(&str, u32, u32)| {
        json!({"event": "x", "distinct_id": who, "timestamp": format!("2024-01-{day:02}T{hour:02}:00:00Z"),
            "properties": {"$group_0": if *who == "c" { Value::Null } else { json!("g") }, "who": who}})
    };
    World::of_case(&json!({
        "now": "2024-01-31T12:00:00Z", "project": {"timezone": "UTC"}, "persons": [], "groups": [],
        "events": events.iter().map(event).collect::<Vec<_>>(),
    }))
}

fn node(more: Value) -> Value {
    let mut node = json!({"kind": "StickinessQuery", "series": [{"kind": "EventsNode", "event": "x"}],
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-06"}});
    node.as_object_mut().unwrap().extend(object(&more).clone());
    node
}

fn data(world: &World, node: &Value) -> Value {
    world.calculate_parsed(Query::from_query_node(node)).unwrap()[0]["data"].clone()
}

#[test]
fn an_interval_count_of_one_cuts_weeks_back_from_the_end() {
    // 31 December 2023 is a Sunday: the calendar has the weeks of 31 December and 7 January.
    let world = world(&[("a", 2, 0), ("a", 5, 0), ("b", 2, 0), ("b", 9, 0)]);
    let range = json!({"date_from": "2024-01-01", "date_to": "2024-01-09"});
    let weeks = |count: Value| node(json!({"dateRange": range, "interval": "week", "intervalCount": count}));
    assert_eq!(data(&world, &weeks(Value::Null)), json!([1, 1]));
    // 3 to 9 January, and 1 and 2 January.
    assert_eq!(data(&world, &weeks(json!(1))), json!([0, 2]));
    assert_eq!(data(&world, &weeks(json!(2))), json!([2]));
}

#[test]
fn an_interval_count_is_within_its_limits() {
    let world = world(&[("a", 2, 0), ("a", 5, 0)]);
    let refused = |count: Value| {
        let error = world
            .calculate_parsed(Query::from_query_node(&node(json!({"intervalCount": count}))))
            .unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("intervalCount"));
        error.code
    };
    assert_eq!(refused(json!(0)), "stickiness_interval_count_non_positive");
    assert_eq!(refused(json!(-1)), "stickiness_interval_count_non_positive");
    assert_eq!(refused(json!(366)), "stickiness_interval_count_too_large");
    assert_eq!(refused(json!(1.5)), "invalid_input");
    assert_eq!(data(&world, &node(json!({"intervalCount": 365}))), json!([1]));
    assert_eq!(data(&world, &node(json!({"intervalCount": 1}))), json!([0, 1, 0, 0, 0, 0]));
}

#[test]
fn a_criterion_is_about_the_events_of_one_interval() {
    let world = world(&[("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("b", 1, 1), ("b", 2, 1), ("b", 3, 1)]);
    let criterion = |operator: &str, value: Value| {
        node(json!({"stickinessFilter": {"stickinessCriteria": {"operator": operator, "value": value}}}))
    };
    assert_eq!(data(&world, &criterion("gte", json!(2))), json!([1, 0, 0, 0, 0, 0]));
    assert_eq!(data(&world, &criterion("lte", json!(1))), json!([1, 0, 1, 0, 0, 0]));
    assert_eq!(data(&world, &criterion("exact", json!(2))), json!([1, 0, 0, 0, 0, 0]));
    assert_eq!(data(&world, &criterion("gte", json!(0))), json!([0, 1, 1, 0, 0, 0]));
    assert_eq!(data(&world, &criterion("gte", json!(3))), json!([0, 0, 0, 0, 0, 0]));
    for (operator, value, code) in [
        ("lte", json!(0), "stickiness_criteria_zero_incompatible"),
        ("exact", json!(0), "stickiness_criteria_zero_incompatible"),
        ("gte", json!(-1), "stickiness_criteria_negative"),
        ("gte", json!(1.5), "invalid_input"),
        ("gte", Value::Null, "invalid_input"),
        ("between", json!(1), "invalid_input"),
    ] {
        let error = world.calculate_parsed(Query::from_query_node(&criterion(operator, value))).unwrap_err();
        assert_eq!((error.code, error.attr.as_deref()), (code, Some("stickinessFilter__stickinessCriteria")));
    }
}

#[test]
fn groups_and_values_are_actors_of_their_own() {
    let world = world(&[("a", 1, 0), ("b", 2, 0), ("c", 1, 0), ("c", 3, 0)]);
    let series = |more: Value| {
        let mut series = json!({"kind": "EventsNode", "event": "x"});
        series.as_object_mut().unwrap().extend(object(&more).clone());
        node(json!({"series": [series]}))
    };
    let group = series(json!({"math": "unique_group", "math_group_type_index": 0}));
    assert_eq!(data(&world, &group), json!([0, 1, 0, 0, 0, 0]));
    // Group type without an index: persons.
    assert_eq!(data(&world, &series(json!({"math": "unique_group"}))), json!([2, 1, 0, 0, 0, 0]));
    let value = series(json!({"math": "hogql", "math_hogql": "properties.$group_0"}));
    assert_eq!(data(&world, &value), json!([0, 1, 0, 0, 0, 0]));
    let value = series(json!({"math": "hogql", "math_hogql": "if(properties.who = 'c', 'x', 'y')"}));
    assert_eq!(data(&world, &value), json!([0, 2, 0, 0, 0, 0]));
    let people = |node: &Value, bar: u32| {
        let request = json!({"query": node, "stickiness_days": bar});
        let query = query(InsightKind::Stickiness.parse_people_request(object(&request)));
        world.ids_of(&world.people(&query, object(&request), 2).unwrap())
    };
    assert_eq!(people(&group, 2), [["g"]]);
    // A value is not a person.
    assert!(people(&value, 2).is_empty());
    let aggregate = series(json!({"math": "hogql", "math_hogql": "count()"}));
    assert!(Query::from_query_node(&aggregate).is_err());
}

#[test]
fn the_people_of_a_bar_compare_as_requested() {
    let world =
        world(&[("a", 1, 0), ("b", 1, 0), ("b", 2, 0), ("c", 1, 0), ("c", 2, 0), ("c", 3, 0), ("c", 3, 1)]);
    let people = |more: Value, node_fields: Value| {
        let mut request = json!({"query": node(node_fields).to_string()});
        request.as_object_mut().unwrap().extend(object(&more).clone());
        let query = query(InsightKind::Stickiness.parse_people_request(object(&request)));
        world.people(&query, object(&request), 2).map(|people| world.ids_of(&people).concat())
    };
    let none = || json!({});
    assert_eq!(people(json!({"stickiness_days": "2"}), none()).unwrap(), ["b"]);
    assert_eq!(
        people(json!({"stickiness_days": 2, "stickiness_operator": "gte"}), none()).unwrap(),
        ["b", "c"]
    );
    assert_eq!(
        people(json!({"stickiness_days": 2, "stickiness_operator": "lte"}), none()).unwrap(),
        ["a", "b"]
    );
    assert_eq!(people(json!({"stickiness_days": 7}), none()).unwrap(), Vec::<String>::new());
    let cumulative = json!({"stickinessFilter": {"computedAs": "cumulative"}});
    let exact = json!({"stickiness_days": 2, "stickiness_operator": "exact"});
    assert_eq!(people(exact, cumulative).unwrap(), ["b", "c"]);
    for (more, attr) in [
        (json!({}), "stickiness_days"),
        (json!({"stickiness_days": 0}), "stickiness_days"),
        (json!({"stickiness_days": -1}), "stickiness_days"),
        (json!({"stickiness_days": "two"}), "stickiness_days"),
        (json!({"stickiness_days": 1, "entity_order": 1}), "entity_order"),
        (json!({"stickiness_days": 1, "stickiness_operator": "gt"}), "stickiness_operator"),
    ] {
        assert_eq!(people(more, none()).unwrap_err().attr.as_deref(), Some(attr));
    }
    let request = json!({"query": {"kind": "TrendsQuery", "series": []}, "stickiness_days": 1});
    let error = InsightKind::Stickiness.parse_people_request(object(&request)).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("query"));
}

#[test]
fn links_of_both_periods_list_as_many_persons_as_their_bars() {
    let world = world(&[("a", 9, 0), ("a", 10, 0), ("b", 5, 0), ("b", 6, 0), ("b", 8, 0), ("c", 10, 0)]);
    let compared = |more: Value| {
        let mut node = node(json!({"dateRange": {"date_from": "2024-01-07", "date_to": "2024-01-11"},
            "compareFilter": {"compare": true}}));
        node.as_object_mut().unwrap().extend(object(&more).clone());
        world.calculate_parsed(Query::from_query_node(&node)).unwrap()
    };
    let result = compared(json!({}));
    assert_eq!((&result[0]["data"], &result[1]["data"]), (&json!([2, 1, 0, 0, 0]), &json!([0, 1, 0, 0, 0])));
    assert_eq!(follow(&world, &result), 10);
    let result = compared(json!({"intervalCount": 2, "stickinessFilter": {"computedAs": "cumulative",
        "stickinessCriteria": {"operator": "gte", "value": 1}}, "properties": [{"key": "who", "value": ["a", "b"]}]}));
    assert_eq!(follow(&world, &result), 6);
}

#[test]
fn a_query_is_the_same_after_it_was_written_and_parsed() {
    let nodes = [
        node(json!({})),
        node(json!({"interval": "Week", "intervalCount": 2, "filterTestAccounts": true,
            "stickinessFilter": {"computedAs": "cumulative", "stickinessCriteria": {"operator": "lte", "value": 3}},
            "compareFilter": {"compare": true, "compare_to": "-1m"},
            "properties": {"type": "OR", "values": [{"key": "a", "value": 1}, {"key": "b", "value": 2}]}})),
        node(
            json!({"dateRange": {"date_from": "-7d", "explicitDate": true}, "breakdownFilter": {"breakdown": "p"},
            "series": [{"kind": "ActionsNode", "id": 3, "custom_name": "did", "properties": [{"key": "a", "value": 1}]},
                {"event": null, "math": "hogql", "math_hogql": "properties.plan"},
                {"event": "y", "math": "unique_group", "math_group_type_index": 1}]}),
        ),
    ];
    for node in nodes {
        let first = query(Query::from_query_node(&node));
        assert!(first.common().breakdown.is_none());
        let again = query(Query::from_insight_filters(&first.to_insight_filters()));
        assert_eq!(again, first);
        assert_eq!(again.normalised(), first.normalised());
        assert!(first.describe().starts_with("SELECT intervals, count()"));
    }
    // What is only displayed does not change the key of cached results.
    let plain = query(Query::from_query_node(&node(json!({})))).normalised();
    let shown = node(
        json!({"stickinessFilter": {"showLegend": true, "display": "ActionsBar"}, "samplingFactor": 0.1}),
    );
    assert_eq!(query(Query::from_query_node(&shown)).normalised(), plain);
}

#[test]
fn legacy_fields_select_the_kind() {
    let request = json!({"events": [{"id": "x"}], "insight": "FUNNELS", "shown_as": "Stickiness"});
    let is_stickiness = |query: &Query| matches!(query, Query::Stickiness(_));
    assert!(is_stickiness(&query(Query::from_insight_filters(object(&request)))));
    assert!(is_stickiness(&query(InsightKind::Trends.parse_request(object(&request)))));
    assert!(!is_stickiness(&query(InsightKind::Funnels.parse_request(object(&request)))));
    let request =
        json!({"events": [{"id": "x"}], "insight": "STICKINESS", "interval": "minute", "compare": true});
    let parsed = query(InsightKind::Trends.parse_request(object(&request)));
    assert!(is_stickiness(&parsed));
    assert_eq!(parsed.common().interval.name(), "minute");
    assert_eq!(
        Query::from_insight_filters(object(&json!({"insight": "STICKINESS"}))).unwrap(),
        ParsedQuery::Empty
    );
}

#[test]
fn stored_nodes_are_validated_by_the_rules_of_the_kind() {
    assert_eq!(
        validate_node(&node(json!({"trendsFilter": 7, "stickinessFilter": {"showLegend": true}}))),
        Ok(())
    );
    let errors: BTreeMap<&str, Value> = BTreeMap::from([
        ("intervalCount", json!({"intervalCount": "many"})),
        ("stickinessFilter", json!({"stickinessFilter": []})),
        ("stickinessFilter.computedAs", json!({"stickinessFilter": {"computedAs": "sideways"}})),
        (
            "stickinessFilter.stickinessCriteria.operator",
            json!({"stickinessFilter": {"stickinessCriteria": {"operator": "between", "value": 1}}}),
        ),
        (
            "stickinessFilter.stickinessCriteria.value",
            json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gte", "value": "much"}}}),
        ),
    ]);
    for (field, fields) in errors {
        let error = validate_node(&node(fields)).unwrap_err();
        assert!(error.detail.starts_with(&format!("\"{field}\" must be")), "{error}");
    }
}

#[test]
fn too_many_series_and_bars_are_refused() {
    let world = world(&[]);
    let series = |count: usize| vec![json!({"event": "x"}); count];
    let bars = |count: usize| {
        world.calculate_parsed(Query::from_query_node(&node(json!({"series": series(count)}))))
    };
    assert_eq!(bars(26).unwrap().as_array().unwrap().len(), 26);
    assert_eq!(bars(27).unwrap_err().attr.as_deref(), Some("series"));
    let minutes = |days: u32, count: usize| {
        let range =
            json!({"date_from": "2024-01-01T00:00:00", "date_to": format!("2024-01-{:02}T23:59:59", days)});
        world.calculate_parsed(Query::from_query_node(&node(
            json!({"interval": "minute", "dateRange": range, "series": series(count)}),
        )))
    };
    // 11,520 minutes of 8 days are below the limit of 12,000 intervals, and nine series above that of 100,000 bars.
    let eight = minutes(8, 8).unwrap();
    assert_eq!(eight[7]["data"].as_array().unwrap().len(), 11_520);
    assert!(eight[0]["persons_urls"].is_null() && eight[0]["persons_urls_omitted"].is_string());
    for error in [minutes(8, 9), minutes(9, 1)] {
        assert_eq!(error.unwrap_err().attr.as_deref(), Some("interval"));
    }
}

#[test]
fn a_table_has_a_row_for_each_bar() {
    let world = world(&[("a", 1, 0), ("a", 2, 0), ("b", 1, 0)]);
    let query = query(Query::from_query_node(&node(
        json!({"dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-02"}}),
    )));
    let table = query.table(&world.calculate(&query, 1).unwrap());
    assert_eq!(table, [["active in", "x"], ["1 day", "1"], ["2 days", "1"]]);
}
