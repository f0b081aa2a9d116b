//! Lifecycles: the cases of the corpus, and rules of the contract that they do not cover.

use pennon_analytics::kinds::validate_node;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::support::{World, cases, decode_query, differences};

const STATUSES: [&str; 4] = ["new", "returning", "resurrecting", "dormant"];

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
        ("trend", _) => InsightKind::Trends.parse_request(object(body)),
        ("lifecycle_people", _) => InsightKind::Lifecycle.parse_people_request(object(body)),
        (other, _) => panic!("{other}"),
    }
}

/// Differences of a result from the expected one.
fn problems(expect: &Value, result: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = result.as_array().unwrap();
    let order: Vec<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(order, STATUSES);
    if let Some(want) = expect.get("result") {
        differences(want, result, "result", 1e-9, &mut wrong);
    }
    for row in rows {
        let status = row["status"].as_str().unwrap();
        if let Some(data) = expect["statuses"].get(status) {
            differences(data, &row["data"], status, 1e-9, &mut wrong);
            let sum: f64 =
                row["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).sum();
            assert_eq!(row["count"].as_f64(), Some(sum));
        }
        for key in ["days", "labels"] {
            if let Some(texts) = expect.get(key) {
                differences(texts, &row[key], &format!("{status}.{key}"), 0.0, &mut wrong);
            }
        }
        if let Some(name) = expect["name"].as_str() {
            assert_eq!(row["label"], json!(format!("{name} - {status}")));
        }
    }
    wrong
}

#[test]
fn cases_give_the_expected_statuses_and_people() {
    let (mut calculated, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in cases("lifecycle.json") {
        let name = case["name"].as_str().unwrap();
        let (world, expect) = (World::of_case(&case), &case["expect"]);
        let (endpoint, body) = (case["request"]["endpoint"].as_str().unwrap(), &case["request"]["body"]);
        let parsed = parse(endpoint, body);
        if let Some(want) = expect["people"].as_array() {
            let people = world.people(&query(parsed), object(body), 2).unwrap();
            let mut want: Vec<Vec<String>> =
                want.iter().map(|ids| serde_json::from_value(ids.clone()).unwrap()).collect();
            want.iter_mut().for_each(|ids| ids.sort());
            want.sort();
            assert_eq!(world.ids_of(&people), want, "{name}");
            calculated += 1;
            continue;
        }
        match world.calculate_parsed(parsed) {
            Ok(result) if expect["status"] == json!(200) => {
                calculated += 1;
                wrong.extend(problems(expect, &result).into_iter().map(|line| format!("{name}: {line}")));
            }
            Err(error) if expect["status"] == json!(400) => {
                refused += 1;
                let pattern = expect["error"]["detail"].as_str().unwrap();
                let text =
                    pattern.trim_start_matches("$re:").trim_start_matches("(?i)").trim_matches(['^', '$']);
                assert!(error.detail.to_lowercase().contains(&text.to_lowercase()), "{name}: {error}");
            }
            other => wrong.push(format!("{name}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(calculated >= 42 && refused >= 2, "{calculated} calculated, {refused} refused");
}

/// Events of one name by some distinct ids on these days of May 2023; the persons were created on days that imports recorded.
fn world(events: &[(&str, &str, u32)], created: &[(&str, u32)]) -> World {
    let event = |(name, who, day): &(&str, &str, u32)| {
        json!({"event": name, "distinct_id": who, "timestamp": format!("2023-05-{day:02}T12:00:00Z"),
            "properties": {"$group_1": "g", "who": who}})
    };
    let person = |(who, day): &(&str, u32)| json!({"distinct_ids": [who], "properties": {}, "created_at": format!("2023-05-{day:02}T10:00:00Z")});
    World::of_case(&json!({
        "now": "2023-05-20T12:00:00Z", "project": {"timezone": "UTC"}, "groups": [],
        "persons": created.iter().map(person).collect::<Vec<_>>(),
        "events": events.iter().map(event).collect::<Vec<_>>(),
    }))
}

fn node(more: Value) -> Value {
    let mut node = json!({"kind": "LifecycleQuery", "series": [{"kind": "EventsNode", "event": "x"}],
        "dateRange": {"date_from": "2023-05-03", "date_to": "2023-05-06"}});
    node.as_object_mut().unwrap().extend(object(&more).clone());
    node
}

/// The numbers of the four statuses.
fn data(world: &World, node: &Value) -> [Value; 4] {
    let result = world.calculate_parsed(Query::from_query_node(node)).unwrap();
    [0, 1, 2, 3].map(|status| result[status]["data"].clone())
}

#[test]
fn an_event_has_to_match_all_series() {
    let world = world(&[("x", "a", 3), ("x", "b", 3), ("y", "a", 4)], &[]);
    let both =
        json!({"series": [{"event": "x"}, {"event": null, "properties": [{"key": "who", "value": "a"}]}]});
    assert_eq!(data(&world, &node(both))[0], json!([1.0, 0.0, 0.0, 0.0]));
    let none = json!({"series": [{"event": "x"}, {"event": "y"}]});
    assert_eq!(data(&world, &node(none))[0], json!([0.0, 0.0, 0.0, 0.0]));
}

#[test]
fn a_lifecycle_has_at_most_so_many_series() {
    let world = world(&[("x", "a", 3)], &[]);
    let series = |count: usize| {
        let node = node(json!({"series": vec![json!({"event": "x"}); count]}));
        world.calculate_parsed(Query::from_query_node(&node))
    };
    assert!(series(26).is_ok());
    assert_eq!(series(27).unwrap_err().attr.as_deref(), Some("series"));
}

#[test]
fn creation_is_the_imported_time_or_else_the_earliest_event_of_any_name() {
    let events =
        [("x", "dated", 5), ("y", "seen", 1), ("x", "seen", 4), ("x", "fresh", 4), ("x", "early", 5)];
    let world = world(&events, &[("dated", 5), ("early", 4)]);
    let [new, _, resurrecting, dormant] = data(&world, &node(json!({})));
    assert_eq!(new, json!([0.0, 1.0, 1.0, 0.0]));
    assert_eq!(resurrecting, json!([0.0, 1.0, 1.0, 0.0]));
    assert_eq!(dormant, json!([0.0, 0.0, -2.0, -2.0]));
    // Filters do not apply to the earliest event.
    let [new, ..] = data(&world, &node(json!({"properties": [{"key": "who", "value": ["seen", "fresh"]}]})));
    assert_eq!(new, json!([0.0, 1.0, 0.0, 0.0]));
}

#[test]
fn groups_are_created_by_their_earliest_event() {
    let world = world(&[("y", "a", 3), ("x", "a", 4), ("x", "b", 5)], &[("a", 4)]);
    let group = |index: Value| node(json!({"aggregation_group_type_index": index}));
    let [new, returning, resurrecting, dormant] = data(&world, &group(json!(1)));
    assert_eq!((new, returning), (json!([0.0, 0.0, 0.0, 0.0]), json!([0.0, 0.0, 1.0, 0.0])));
    assert_eq!((resurrecting, dormant), (json!([0.0, 1.0, 0.0, 0.0]), json!([0.0, 0.0, 0.0, -1.0])));
    assert_eq!(data(&world, &group(json!(0)))[0], json!([0.0, 0.0, 0.0, 0.0]));
    assert_eq!(data(&world, &group(json!(4)))[0], json!([0.0, 0.0, 0.0, 0.0]));
    for index in [5, -1] {
        let error = Query::from_query_node(&group(json!(index))).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some("aggregation_group_type_index"));
    }
    // In legacy filters, it has no effect.
    let filters = json!({"insight": "LIFECYCLE", "events": [{"id": "x"}], "aggregation_group_type_index": 1});
    let plain = json!({"insight": "LIFECYCLE", "events": [{"id": "x"}]});
    let parse = |filters: &Value| query(Query::from_insight_filters(object(filters)));
    assert_eq!(parse(&filters), parse(&plain));
}

/// The parameters of a link to `persons/lifecycle/`.
fn parameters(url: &str) -> Map<String, Value> {
    let (path, text) = url.split_once('?').unwrap();
    assert_eq!(path, "/api/projects/7/persons/lifecycle/");
    decode_query(text)
}

#[test]
fn links_list_as_many_persons_as_their_numbers() {
    let events = [
        ("x", "a", 2),
        ("x", "a", 3),
        ("x", "b", 4),
        ("x", "c", 4),
        ("x", "c", 5),
        ("y", "b", 1),
        ("x", "d", 6),
    ];
    let world = world(&events, &[]);
    for interval in ["day", "week", "month"] {
        let result =
            world.calculate_parsed(Query::from_query_node(&node(json!({"interval": interval})))).unwrap();
        let mut people_found = 0;
        for row in result.as_array().unwrap() {
            let (data, urls) = (row["data"].as_array().unwrap(), row["persons_urls"].as_array().unwrap());
            assert_eq!(data.len(), urls.len());
            for (number, link) in data.iter().zip(urls) {
                let request = parameters(link["url"].as_str().unwrap());
                let query = query(InsightKind::Lifecycle.parse_people_request(&request));
                let people = world.people(&query, &request, 2).unwrap();
                assert_eq!(json!(people.len()).as_f64(), number.as_f64().map(f64::abs), "{link}");
                people_found += people.len();
            }
        }
        assert!(people_found > 2, "{interval}");
    }
}

#[test]
fn people_need_a_date_and_a_status() {
    let world = world(&[("x", "a", 3), ("x", "a", 4)], &[]);
    let people = |more: Value| {
        let mut request = json!({"query": node(json!({})).to_string()});
        request.as_object_mut().unwrap().extend(object(&more).clone());
        let query = query(InsightKind::Lifecycle.parse_people_request(object(&request)));
        world.people(&query, object(&request), 2)
    };
    let found =
        people(json!({"target_date": "2023-05-04T23:59:59Z", "lifecycle_type": "returning"})).unwrap();
    assert_eq!(found[0].times, [crate::support::instant("2023-05-04T12:00:00Z").timestamp_micros()]);
    let dormant = people(json!({"target_date": "2023-05-05", "lifecycle_type": "dormant"})).unwrap();
    assert!(dormant.len() == 1 && dormant[0].times.is_empty());
    // Periods that are not shown.
    for date in ["2023-05-02", "2023-05-07", "1999-01-01"] {
        assert!(people(json!({"target_date": date, "lifecycle_type": "dormant"})).unwrap().is_empty());
    }
    for (more, attr) in [
        (json!({"lifecycle_type": "new"}), "target_date"),
        (json!({"target_date": "2023-05-04"}), "lifecycle_type"),
        (json!({"target_date": "2023-05-04", "lifecycle_type": "old"}), "lifecycle_type"),
        (json!({"target_date": "-1d", "lifecycle_type": "new"}), "target_date"),
        (json!({"target_date": "2023-13-04", "lifecycle_type": "new"}), "target_date"),
    ] {
        assert_eq!(people(more).unwrap_err().attr.as_deref(), Some(attr));
    }
}

#[test]
fn a_query_is_the_same_after_it_was_written_and_parsed() {
    let nodes = [
        node(json!({})),
        node(json!({"interval": "week", "filterTestAccounts": true, "aggregation_group_type_index": 0,
            "properties": [{"key": "a", "value": 1}], "breakdownFilter": {"breakdown": "p"},
            "series": [{"kind": "ActionsNode", "id": 3, "custom_name": "did"}, {"event": null}]})),
    ];
    for node in nodes {
        let first = query(Query::from_query_node(&node));
        assert!(first.common().breakdown.is_none());
        let again = query(Query::from_insight_filters(&first.to_insight_filters()));
        assert_eq!(again, first);
        assert_eq!(again.normalised(), first.normalised());
        assert!(first.describe().starts_with("SELECT period, status, count()"));
    }
    let plain = query(Query::from_query_node(&node(json!({})))).normalised();
    let shown = node(
        json!({"lifecycleFilter": {"toggledLifecycles": ["new"]}, "samplingFactor": 0.1, "compareFilter": {"compare": true}}),
    );
    assert_eq!(query(Query::from_query_node(&shown)).normalised(), plain);
}

#[test]
fn legacy_fields_select_the_kind() {
    let is_lifecycle = |query: &Query| matches!(query, Query::Lifecycle(_));
    let request = |more: Value| {
        let mut request = json!({"events": [{"id": "x"}]});
        request.as_object_mut().unwrap().extend(object(&more).clone());
        request
    };
    for marks in [
        json!({"insight": "LIFECYCLE"}),
        json!({"insight": "LIFECYCLE", "shown_as": "Lifecycle"}),
        json!({"insight": "TRENDS", "shown_as": "Lifecycle"}),
        json!({"shown_as": "Lifecycle"}),
    ] {
        let request = request(marks);
        assert!(is_lifecycle(&query(Query::from_insight_filters(object(&request)))), "{request}");
        assert!(is_lifecycle(&query(InsightKind::Trends.parse_request(object(&request)))), "{request}");
    }
    for marks in
        [json!({}), json!({"insight": "FUNNELS", "shown_as": "Lifecycle"}), json!({"shown_as": "Volume"})]
    {
        assert!(!is_lifecycle(&query(Query::from_insight_filters(object(&request(marks))))));
    }
}

#[test]
fn stored_nodes_are_validated_by_the_rules_of_the_kind() {
    assert_eq!(
        validate_node(&node(json!({"lifecycleFilter": {"toggledLifecycles": []}, "trendsFilter": 7}))),
        Ok(())
    );
    for (field, fields) in [
        ("lifecycleFilter", json!({"lifecycleFilter": []})),
        ("lifecycleFilter.toggledLifecycles", json!({"lifecycleFilter": {"toggledLifecycles": "new"}})),
    ] {
        let error = validate_node(&node(fields)).unwrap_err();
        assert!(error.detail.starts_with(&format!("\"{field}\" must be")), "{error}");
    }
    let error = validate_node(&json!({"kind": "LifecycleQuery"})).unwrap_err();
    assert!(error.detail.contains("\"series\""), "{error}");
}

#[test]
fn a_table_has_a_row_for_each_period() {
    let world = world(&[("x", "a", 3), ("x", "a", 4)], &[]);
    let range = json!({"dateRange": {"date_from": "2023-05-03", "date_to": "2023-05-05"}});
    let query = query(Query::from_query_node(&node(range)));
    let table = query.table(&world.calculate(&query, 1).unwrap());
    let want = [
        ["day", "new", "returning", "resurrecting", "dormant"],
        ["2023-05-03", "1", "0", "0", "0"],
        ["2023-05-04", "0", "1", "0", "0"],
        ["2023-05-05", "0", "0", "0", "-1"],
    ];
    assert_eq!(table, want);
}
