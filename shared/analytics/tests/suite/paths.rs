//! Paths: the cases of the corpus, and rules that they do not cover.

use std::collections::BTreeSet;

use pennon_analytics::kinds::paths::PathsQuery;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::support::{CaseOutcomes, World, cases};

/// Parses a request for people, which has a node in `query`, or the fields of a request for edges.
fn request(fields: &Value) -> CalcResult<ParsedQuery> {
    InsightKind::Paths.parse_people_request(fields.as_object().unwrap())
}

fn query(fields: &Value) -> CalcResult<Query> {
    match request(fields)? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn paths(fields: &Value) -> PathsQuery {
    match query(fields).unwrap() {
        Query::Paths(paths) => paths,
        other => panic!("{other:?}"),
    }
}

/// The persons that a request lists, by id.
pub fn people(world: &World, query: &Query, request: &Map<String, Value>) -> CalcResult<BTreeSet<Uuid>> {
    let point = query.data_point(request)?;
    let plan = query.plan(&world.project, world.now)?;
    let mut ids = BTreeSet::new();
    for partition in plan.join(world.partitions(plan.scan(), 3), world.facts(&plan), &|| false)? {
        for person in plan.people(&partition, &point, &|| false)? {
            assert!(person.times.is_sorted() && !person.times.is_empty(), "{person:?}");
            assert!(ids.insert(person.actor), "listed twice: {person:?}");
        }
    }
    Ok(ids)
}

#[test]
fn paths_give_the_expected_edges_and_people() {
    let mut outcomes = CaseOutcomes::default();
    let mut lists = 0;
    for case in cases("paths.json") {
        let world = World::of_case(&case);
        let body = &case["request"]["body"];
        let parsed = match case["request"]["endpoint"].as_str().unwrap() {
            "query" => Query::from_query_node(body),
            "insight" if body["query"].is_object() => Query::from_query_node(&body["query"]),
            "insight" => Query::from_insight_filters(body["filters"].as_object().unwrap()),
            _ => request(body),
        };
        if case["expect"]["people"].is_null() {
            outcomes.record(&case, world.calculate_parsed(parsed), 1e-9);
            continue;
        }
        let ParsedQuery::Query(query) = parsed.unwrap() else { panic!("{}", case["name"]) };
        let ids = case["expect"]["people"].as_array().unwrap().iter();
        let expected: BTreeSet<Uuid> = ids.map(|ids| world.named[ids[0].as_str().unwrap()]).collect();
        let got = people(&world, &query, body.as_object().unwrap()).unwrap();
        assert_eq!(got, expected, "{}", case["name"]);
        lists += 1;
    }
    outcomes.check(39, 3);
    assert_eq!(lists, 5);
}

/// A world of events: person, event or URL, minute.
fn world(events: &[(&str, &str, u32)]) -> World {
    let event = |(person, name, minute): &(&str, &str, u32)| {
        let timestamp = format!("2024-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
        let (event, properties) = match name.starts_with('/') {
            true => ("$pageview", json!({"$current_url": name})),
            false => (*name, json!({"kind": name.len()})),
        };
        json!({"event": event, "distinct_id": person, "timestamp": timestamp, "properties": properties})
    };
    let events: Vec<Value> = events.iter().map(event).collect();
    World::of_case(&json!({
        "project": {"path_cleaning_filters": [{"regex": "[0-9]+", "alias": "<\\0>"}, {"alias": "no regex"}]},
        "persons": [], "groups": [], "actions": [], "cohorts": [], "events": events,
        "now": "2024-01-02T00:00:00Z",
    }))
}

fn edges(world: &World, fields: &Value) -> Vec<String> {
    let query = query(fields).unwrap();
    let whole = world.calculate(&query, 1).unwrap();
    assert_eq!(world.calculate(&query, 4).unwrap(), whole, "the result depends on how actors are divided");
    let edge = |edge: &Value| {
        let text = |key: &str| edge[key].as_str().unwrap().to_owned();
        format!("{} {} {}", text("source"), text("target"), edge["value"])
    };
    whole.as_array().unwrap().iter().map(edge).collect()
}

#[test]
fn names_are_cleaned_by_the_project_then_by_the_query_then_grouped_then_excluded() {
    let world =
        world(&[("p", "/1", 1), ("p", "/2/x", 2), ("p", "buy 3", 3), ("p", "sell", 4), ("p", "gone", 5)]);
    let all = json!({
        "path_replacements": "true", "local_path_cleaning_filters": "[{\"regex\": \"<1>\", \"alias\": \"one\"}]",
        "path_groupings": ["buy*"], "exclude_events": ["sell"],
    });
    let want = ["1_/one 2_/<2>/x 1", "2_/<2>/x 3_buy* 1", "3_buy* 4_gone 1"];
    assert_eq!(edges(&world, &all), want);
    let own = json!({"local_path_cleaning_filters": [{"regex": ".*", "alias": "x"}]});
    assert_eq!(edges(&world, &own), [] as [&str; 0], "one step");
}

#[test]
fn types_and_exclusions_decide_the_item_of_an_event() {
    let world = world(&[("p", "/1", 1), ("p", "buy", 2), ("p", "$other", 3)]);
    for (fields, want) in [
        (json!({}), &["1_/1 2_buy 1", "2_buy 3_$other 1"][..]),
        (json!({"exclude_events": ["$pageview"]}), &["1_buy 2_$other 1"]),
        (
            json!({"include_event_types": ["$pageview", "custom_event"], "exclude_events": ["$pageview"]}),
            &["1_/1 2_buy 1"],
        ),
        (json!({"paths_hogql_expression": "properties.kind"}), &["1_/1 2_3 1", "2_3 3_6 1"]),
        (
            json!({"paths_hogql_expression": "event", "include_event_types": ["hogql"]}),
            &["1_$pageview 2_buy 1", "2_buy 3_$other 1"],
        ),
        (json!({"paths_hogql_expression": "'x'", "include_event_types": ["hogql", "custom_event"]}), &[]),
        (
            json!({"paths_hogql_expression": "'x'", "exclude_events": ["hogql"]}),
            &["1_/1 2_buy 1", "2_buy 3_$other 1"],
        ),
    ] {
        assert_eq!(edges(&world, &fields), want, "{fields}");
    }
}

#[test]
fn excluded_events_do_not_extend_a_session() {
    let world = world(&[("p", "/1", 0), ("p", "/2", 20), ("p", "/3", 40)]);
    assert_eq!(edges(&world, &json!({})), ["1_/1 2_/2 1", "2_/2 3_/3 1"]);
    assert_eq!(edges(&world, &json!({"exclude_events": ["/2"]})), [] as [&str; 0]);
}

#[test]
fn the_range_begins_with_its_first_day_and_ends_with_a_whole_second() {
    let world = world(&[("p", "/1", 1), ("p", "/2", 2), ("p", "/3", 3)]);
    let fields = |more: Value| {
        let mut fields = json!({"date_from": "2024-01-01T00:02:00Z", "date_to": "2024-01-01T00:02:00Z"});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    assert_eq!(edges(&world, &fields(json!({"explicit_date": true}))), ["1_/1 2_/2 1"]);
    assert_eq!(edges(&world, &fields(json!({}))).len(), 2);
    assert_eq!(edges(&world, &json!({"date_from": "-1h"})).len(), 2, "all of the first day");
}

#[test]
fn a_funnel_bounds_the_events_and_its_window_splits_sessions() {
    let world = world(&[
        ("p", "/0", 0),
        ("p", "in", 10),
        ("p", "/1", 50),
        ("p", "out", 100),
        ("p", "/2", 101),
        ("q", "in", 0),
        ("q", "/1", 130),
    ]);
    let around = |path_type: &str, step: i64, hours: u32| {
        json!({"funnel_paths": path_type, "funnel_filter": {"funnel_step": step, "funnel_window_interval": hours,
            "funnel_window_interval_unit": "hour", "date_from": "2024-01-01",
            "events": [{"id": "in", "order": 0}, {"id": "out", "order": 1}]}})
    };
    for (fields, want) in [
        (around("funnel_path_between_steps", 2, 2), &["1_in 2_/1 1", "2_/1 3_out 1"][..]),
        (around("funnel_path_after_step", 2, 2), &["1_out 2_/2 1"]),
        (around("funnel_path_before_step", 1, 2), &["1_/0 2_in 1"]),
        // q dropped off: /1 is later than its window, and far enough from its entry to begin a session.
        (around("funnel_path_before_step", -2, 2), &[]),
        (around("funnel_path_before_step", -2, 3), &["1_in 2_/1 1"]),
        (around("funnel_path_after_step", -2, 3), &["1_in 2_/1 1"]),
        (around("funnel_path_after_step", -2, 2), &[]),
    ] {
        assert_eq!(edges(&world, &fields), want, "{fields}");
    }
    let mut other = around("funnel_path_after_step", 2, 2);
    other["funnel_filter"]["breakdown"] = json!("kind");
    other["funnel_filter"]["funnel_viz_type"] = json!("trends");
    assert_eq!(edges(&world, &other), ["1_out 2_/2 1"]);
    let half = json!({"funnel_paths": "funnel_path_after_step"});
    assert_eq!(edges(&world, &half), edges(&world, &json!({})));
}

/// The error of a request, in both dialects.
fn errors(field: &str, node_field: &str, value: &Value) -> [CalcError; 2] {
    let node = json!({"kind": "PathsQuery", "pathsFilter": {node_field: value}});
    [query(&json!({field: value})).unwrap_err(), Query::from_query_node(&node).unwrap_err()]
}

#[test]
fn invalid_fields_are_named() {
    for (field, node_field, value) in [
        ("include_event_types", "includeEventTypes", json!(["screen"])),
        ("include_event_types", "includeEventTypes", json!("$screen")),
        ("paths_hogql_expression", "pathsHogQLExpression", json!("properties.")),
        ("exclude_events", "excludeEvents", json!([{}])),
        ("exclude_events", "excludeEvents", json!(vec!["x"; 1_001])),
        ("path_groupings", "pathGroupings", json!(vec!["x"; 201])),
        ("local_path_cleaning_filters", "localPathCleaningFilters", json!(["x"])),
        ("local_path_cleaning_filters", "localPathCleaningFilters", json!([{"regex": 5, "alias": ""}])),
        ("step_limit", "stepLimit", json!(-1)),
        ("edge_limit", "edgeLimit", json!(1.5)),
        ("min_edge_weight", "minEdgeWeight", json!(-2)),
        ("max_edge_weight", "maxEdgeWeight", json!("x")),
        ("path_end_key", "pathEndKey", json!("/a")),
        ("path_start_key", "pathStartKey", json!("0_/a")),
        ("path_dropoff_key", "pathDropoffKey", json!("+1_/a")),
    ] {
        let [legacy, node] = errors(field, node_field, &value);
        assert_eq!(legacy.attr.as_deref(), Some(field), "{legacy}");
        assert_eq!(node.attr, Some(format!("pathsFilter__{node_field}")), "{node}");
    }
    let most = json!({"exclude_events": vec!["x"; 1_000], "path_groupings": vec!["x"; 200]});
    assert!(query(&most).is_ok());
    let zero =
        json!({"step_limit": 0, "edge_limit": null, "min_edge_weight": "0", "include_event_types": []});
    assert_eq!(paths(&zero), paths(&json!({})));
}

#[test]
fn invalid_regexes_are_rejected_if_they_are_applied() {
    let mut world = world(&[]);
    world.project.path_cleaning_filters = vec![json!({"regex": "(?<=a)b", "alias": "x"})];
    let calculate = |fields: Value| world.calculate(&query(&fields).unwrap(), 1);
    assert!(calculate(json!({})).is_ok());
    assert!(
        calculate(json!({"path_replacements": true})).unwrap_err().detail.contains("path_cleaning_filters")
    );
    let own = json!({"local_path_cleaning_filters": [{"regex": "(", "alias": ""}]});
    assert!(calculate(own).unwrap_err().detail.contains("localPathCleaningFilters"));
    let regexes = |count: usize| json!({"local_path_cleaning_filters": vec![json!({"regex": "a", "alias": "b"}); count]});
    assert!(calculate(regexes(64)).is_ok());
    assert!(calculate(regexes(65)).unwrap_err().detail.contains("at most 64"));
}

#[test]
fn invalid_funnels_are_named() {
    let steps = json!([{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b", "optionalInFunnel": true},
        {"kind": "EventsNode", "event": "c"}]);
    let funnel = json!({"kind": "FunnelsQuery", "series": steps});
    let error = |path_type: Value, step: Value, source: &Value| {
        let funnel = json!({"funnelPathType": path_type, "funnelStep": step, "funnelSource": source});
        let node = json!({"kind": "PathsQuery", "pathsFilter": {}, "funnelPathsFilter": funnel});
        Query::from_query_node(&node)
            .map(drop)
            .map_err(|error| (error.attr.unwrap_or_default(), error.detail))
    };
    let after = json!("funnel_path_after_step");
    for step in [json!(null), json!(0), json!(-1), json!(4), json!(-4), json!("x"), json!(2), json!(-3)] {
        let (attr, detail) = error(after.clone(), step, &funnel).unwrap_err();
        assert_eq!(attr, "funnelPathsFilter__funnelStep", "{detail}");
    }
    for step in [1, 3, -2] {
        assert_eq!(error(after.clone(), json!(step), &funnel), Ok(()));
    }
    for (path_type, step) in [("funnel_path_between_steps", 1), ("funnel_path_between_steps", 3)] {
        assert!(
            error(json!(path_type), json!(step), &funnel).is_err(),
            "the step before is missing or optional"
        );
    }
    let (attr, detail) = error(json!("after"), json!(1), &funnel).unwrap_err();
    assert_eq!(attr, "funnelPathsFilter__funnelPathType");
    assert!(detail.contains("funnel_path_before_step"));
    for source in [
        json!(null),
        json!({"kind": "TrendsQuery", "series": []}),
        json!({"kind": "FunnelsQuery", "series": []}),
    ] {
        let (attr, detail) = error(after.clone(), json!(1), &source).unwrap_err();
        assert_eq!(attr, "funnelPathsFilter__funnelSource", "{detail}");
    }
    let mut flow = funnel.clone();
    flow["funnelsFilter"] = json!({"funnelVizType": "flow"});
    assert!(error(after, json!(1), &flow).unwrap_err().1.contains("funnelSource"));
}

#[test]
fn written_filters_and_nodes_give_the_same_query_again() {
    let funnel = json!({"insight": "FUNNELS", "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}],
        "aggregation_group_type_index": 1, "funnel_step": -2, "date_from": "-3d", "breakdown": "x"});
    let every = json!({
        "include_event_types": ["custom_event", "hogql"], "paths_hogql_expression": "event", "exclude_events": ["a", "b"],
        "path_replacements": true, "local_path_cleaning_filters": [{"regex": "a", "alias": "b"}, {"regex": "c"}],
        "path_groupings": ["/x*", ""], "start_point": "/a/", "end_point": "/", "step_limit": "7", "edge_limit": 9,
        "min_edge_weight": 2, "max_edge_weight": 3, "path_start_key": "1_a_b", "path_end_key": "2_", "path_dropoff_key": "3_x",
        "funnel_paths": "funnel_path_before_step", "funnel_filter": funnel.to_string(), "date_from": "-5h",
        "filter_test_accounts": "true", "properties": [{"key": "k", "value": "v"}], "interval": "week", "breakdown": "ignored",
    });
    for fields in [every.clone(), json!({})] {
        let query = query(&fields).unwrap();
        let again = request(&Value::Object(query.to_insight_filters())).unwrap();
        assert_eq!(again, ParsedQuery::Query(query.clone()));
        assert!(query.describe().contains("FROM paths(steps = "), "{}", query.describe());
        let node: Value = serde_json::from_str(&query.normalised()).unwrap();
        assert_eq!(node["kind"], "PathsQuery");
    }
    let text = |more: Value| {
        let mut fields = every.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query(&fields).unwrap().normalised()
    };
    for same in [
        json!({"path_start_key": "2_x"}),
        json!({"include_event_types": ["hogql", "custom_event"]}),
        json!({"interval": "day"}),
    ] {
        assert_eq!(text(same.clone()), text(json!({})), "{same}");
    }
    for field in [
        "exclude_events",
        "path_groupings",
        "start_point",
        "end_point",
        "step_limit",
        "edge_limit",
        "min_edge_weight",
        "max_edge_weight",
        "path_replacements",
        "local_path_cleaning_filters",
        "funnel_paths",
        "include_event_types",
        "paths_hogql_expression",
    ] {
        assert_ne!(text(json!({field: null})), text(json!({})), "{field}");
    }
}

#[test]
fn a_request_may_contain_a_node() {
    let node = json!({"kind": "InsightVizNode", "source": {"kind": "PathsQuery", "pathsFilter": {"stepLimit": 2,
        "pathDropoffKey": "2_/2"}}});
    for given in [node.clone(), json!(node.to_string())] {
        assert_eq!(paths(&json!({"query": given, "step_limit": 9})).step_limit, 2);
    }
    for other in [
        json!("{"),
        json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode"}]}),
        json!({"kind": "PathsV2Query"}),
    ] {
        assert_eq!(request(&json!({"query": other})).unwrap_err().attr.as_deref(), Some("query"));
    }
    let world = world(&[("p", "/1", 1), ("p", "/2", 2), ("p", "/3", 3), ("q", "/1", 1), ("q", "/3", 2)]);
    let listed = |keys: Value| {
        let mut fields = json!({"query": node}).as_object().unwrap().clone();
        fields.extend(keys.as_object().unwrap().clone());
        people(&world, &query(&Value::Object(fields.clone())).unwrap(), &fields).unwrap().len()
    };
    assert_eq!(listed(json!({})), 1, "the key of the node");
    assert_eq!(listed(json!({"path_dropoff_key": "2_/3"})), 1);
    assert_eq!(listed(json!({"path_dropoff_key": "1_/1"})), 0);
}

#[test]
fn people_are_selected_by_step_edge_and_drop_off() {
    let world = world(&[
        ("p", "/1", 1),
        ("p", "/2", 2),
        ("q", "/1", 1),
        ("q", "/2", 2),
        ("q", "/3", 3),
        ("r", "/2", 1),
        ("r", "/1", 99),
    ]);
    for (keys, want) in [
        (json!({}), 3),
        (json!({"path_start_key": "1_/1"}), 2),
        (json!({"path_end_key": "1_/1"}), 3),
        (json!({"path_start_key": "1_/1", "path_end_key": "2_/2"}), 2),
        (json!({"path_start_key": "1_/1", "path_end_key": "3_/3"}), 0),
        (json!({"path_start_key": "1_/1", "path_end_key": "2_/2", "path_dropoff_key": "2_/2"}), 1),
        (json!({"path_dropoff_key": "1_/1"}), 1),
        (json!({"path_end_key": "1_nothing"}), 0),
        (json!({"path_end_key": "4294967295_/1"}), 0),
    ] {
        let mut fields = keys.clone();
        fields["edge_limit"] = json!(1);
        fields["min_edge_weight"] = json!(5);
        let query = query(&fields).unwrap();
        assert_eq!(people(&world, &query, fields.as_object().unwrap()).unwrap().len(), want, "{keys}");
    }
}

#[test]
fn equal_weights_are_ordered_by_bytes_and_cut_before_orphans_are_dropped() {
    let mut events: Vec<(&str, &str, u32)> =
        (0..11).map(|at| ("p", ["/a", "/b"][at as usize % 2], at)).collect();
    events.push(("q", "/c", 0));
    events.push(("q", "/d", 1));
    let world = world(&events);
    let cut = |limit: u32| edges(&world, &json!({"step_limit": 20, "edge_limit": limit}));
    assert_eq!(cut(50)[..3], ["10_/b 11_/a 1", "1_/a 2_/b 1", "1_/c 2_/d 1"]);
    assert_eq!(cut(1), [] as [&str; 0], "the first by bytes has no beginning");
    assert_eq!(cut(3), ["1_/a 2_/b 1", "1_/c 2_/d 1"]);
}
