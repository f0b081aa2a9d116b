//! Correlations: which persons and events count, and that the links list as many persons as the numbers beside them.

use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::support::{World, cases, link_parameters};

fn query(request: &Value) -> Result<Query, CalcError> {
    match InsightKind::Correlation.parse_request(request.as_object().unwrap())? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

fn calculate(world: &World, request: &Value) -> Value {
    let query = query(request).unwrap();
    let whole = world.calculate(&query, 1).unwrap();
    assert_eq!(world.calculate(&query, 4).unwrap(), whole, "the result depends on how actors are divided");
    assert!(query.describe().contains("oddsRatio"));
    whole
}

/// Name, successes and failures of each row.
fn rows(result: &Value) -> Vec<(String, u64, u64)> {
    let count = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let row = |row: &Value| {
        let name = row["event"]["event"].as_str().unwrap().to_owned();
        (name, count(row, "success_count"), count(row, "failure_count"))
    };
    let mut rows: Vec<_> = result["events"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

fn row(name: &str, success: u64, failure: u64) -> (String, u64, u64) {
    (name.to_owned(), success, failure)
}

/// A world of these events: person, event, minute and properties.
fn world(events: &[(&str, &str, u32, Value)]) -> World {
    let event = |(person, event, minute, properties): &(&str, &str, u32, Value)| {
        let timestamp = format!("2024-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
        json!({"event": event, "distinct_id": person, "timestamp": timestamp, "properties": properties})
    };
    let events: Vec<Value> = events.iter().map(event).collect();
    let action = json!({"id": 3, "name": "gone", "steps": [{"event": "out"}, {"event": "away"}]});
    World::of_case(&json!({
        "project": {}, "persons": [], "groups": [], "actions": [action], "cohorts": [], "events": events,
        "now": "2024-01-02T00:00:00Z",
    }))
}

fn request(more: Value) -> Value {
    let mut request = json!({
        "events": [{"id": "in", "order": 0}, {"id": "out", "order": 1}], "date_from": "2024-01-01",
        "funnel_window_interval": 1, "funnel_window_interval_unit": "hour",
    });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

/// `s` converts within ten minutes, `f` does not, `n` never enters.
fn walks(more: &[(&'static str, &'static str, u32, Value)]) -> World {
    let mut events =
        vec![("s", "in", 10, json!({})), ("s", "out", 20, json!({})), ("f", "in", 10, json!({}))];
    events.extend_from_slice(more);
    world(&events)
}

#[test]
fn events_count_between_entrance_and_completion_or_the_end_of_the_window() {
    let at = |person, event, minute| (person, event, minute, json!({}));
    let world = walks(&[
        at("s", "before", 9),
        at("s", "at the start", 10),
        at("s", "between", 11),
        at("s", "between", 12),
        at("s", "at the end", 20),
        at("s", "after", 21),
        at("f", "late", 69),
        at("f", "too late", 70),
        at("f", "between", 30),
        at("n", "between", 15),
    ]);
    let result = calculate(&world, &request(json!({})));
    assert_eq!(rows(&result), [row("between", 1, 1), row("late", 0, 1)]);
    assert_eq!(result["skewed"], false);
}

#[test]
fn steps_excluded_names_and_events_of_a_step_action_are_not_correlated() {
    let at = |person, event, minute| (person, event, minute, json!({}));
    let world = walks(&[at("f", "away", 15), at("f", "x", 15), at("f", "y", 15), at("f", "in", 16)]);
    let by_action = json!({
        "events": [{"id": "in", "order": 0}], "actions": [{"id": 3, "order": 1}],
        "funnel_correlation_exclude_event_names": "[\"y\"]",
    });
    // Now `f` converts by `away`: no person fails.
    assert_eq!(calculate(&world, &request(by_action))["skewed"], true);
    let away = json!({"funnel_correlation_exclude_event_names": ["y"]});
    assert_eq!(rows(&calculate(&world, &request(away))), [row("away", 0, 1), row("x", 0, 1)]);
    let world = walks(&[at("s", "away", 9), at("f", "x", 15), at("f", "out", 9), at("s", "away", 15)]);
    let by_action = json!({"events": [{"id": "in", "order": 0}], "actions": [{"id": 3, "order": 1}]});
    assert_eq!(rows(&calculate(&world, &request(by_action))), [row("x", 0, 1)]);
}

#[test]
fn properties_of_the_step_events_are_not_correlated() {
    let at = |person: &'static str, event: &'static str, minute| (person, event, minute, json!({"k": 1}));
    // A value counts if more than two persons had it: s, g and h had x, and each of them a second "in".
    let mut events = vec![at("s", "in", 10), at("s", "out", 20), at("s", "in", 11), at("s", "x", 15)];
    for person in ["g", "h"] {
        events.extend([at(person, "in", 10), at(person, "in", 11), at(person, "x", 12)]);
    }
    let fields = json!({
        "funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["in", "x", "out"],
    });
    assert_eq!(rows(&calculate(&world(&events), &request(fields))), [row("x::k::1", 1, 2)]);
}

#[test]
fn the_end_of_the_range_is_exclusive() {
    let world = walks(&[("f", "x", 29, json!({})), ("f", "y", 30, json!({}))]);
    let until = json!({"date_to": "2024-01-01T00:30:00Z", "explicit_date": true});
    assert_eq!(rows(&calculate(&world, &request(until))), [row("x", 0, 1)]);
}

#[test]
fn a_funnel_step_selects_the_persons() {
    let at = |person, event, minute| (person, event, minute, json!({}));
    let world = walks(&[
        at("s", "middle", 15),
        at("f", "middle", 15),
        at("g", "in", 10),
        at("f", "x", 16),
        at("g", "x", 16),
        at("s", "x", 16),
    ]);
    let steps = json!([{"id": "in", "order": 0}, {"id": "middle", "order": 1}, {"id": "out", "order": 2}]);
    let of = |more: Value| {
        let mut body = request(json!({"events": steps}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        calculate(&world, &body)
    };
    assert_eq!(rows(&of(json!({}))), [row("x", 1, 2)]);
    assert_eq!(rows(&of(json!({"funnel_step": "2"}))), [row("x", 1, 1)]);
    // A person who dropped off is not a success.
    assert_eq!(of(json!({"funnel_step": -2})), json!({"events": [], "skewed": true}));
}

#[test]
fn elements_are_the_only_property_of_autocaptured_events() {
    let chain = "button.big.blue:nth-child=\"2\"text=\"Buy \\\"now\\\"\";a:href=\"/x\"";
    let click = json!({"$event_type": "click", "$elements_chain": chain, "other": 1});
    let mut events = Vec::new();
    for person in ["a", "b", "c", "d"] {
        events.extend([(person, "in", 10, json!({})), (person, "$autocapture", 11, click.clone())]);
    }
    events.push(("d", "out", 20, json!({})));
    let more = json!({
        "funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["$autocapture"],
    });
    let result = calculate(&world(&events), &request(more));
    let found = &result["events"][0]["event"];
    assert_eq!(result["events"].as_array().unwrap().len(), 1);
    assert_eq!(found["event"], format!("$autocapture::elements_chain::click__~~__{chain}"));
    assert_eq!(found["properties"], json!({"$event_type": "click"}));
    let element = &found["elements"][0];
    assert_eq!((&element["tag_name"], &element["text"]), (&json!("button"), &json!("Buy \"now\"")));
    assert_eq!((&element["nth_child"], &found["elements"][1]["href"]), (&json!(2), &json!("/x")));
}

#[test]
fn missing_fields_of_a_correlation_are_rejected() {
    for (more, attr, detail) in [
        (
            json!({"funnel_correlation_type": "properties"}),
            None,
            "Property Correlation expects atleast one Property",
        ),
        (
            json!({"funnel_correlation_type": "event_with_properties"}),
            None,
            "Event Property Correlation expects atleast",
        ),
        (
            json!({"funnel_correlation_exclude_event_names": 5}),
            Some("funnel_correlation_exclude_event_names"),
            "list",
        ),
        (
            json!({"funnel_correlation_exclude_event_names": [[]]}),
            Some("funnel_correlation_exclude_event_names"),
            "list",
        ),
        (json!({"funnel_step": 3}), Some("funnel_step"), "1 to 2"),
        (json!({"funnel_step": -1}), Some("funnel_step"), "1 to 2"),
    ] {
        let error = query(&request(more.clone())).unwrap_err();
        assert!(error.detail.contains(detail) && error.attr.as_deref() == attr, "{more}: {error:?}");
    }
    let most = |count: usize| json!({"funnel_correlation_exclude_event_names": vec!["x"; count]});
    assert!(query(&request(most(1_000))).is_ok());
    assert!(query(&request(most(1_001))).unwrap_err().detail.starts_with("Too many names"));
    let none = InsightKind::Correlation
        .parse_request(json!({"funnel_correlation_type": "properties"}).as_object().unwrap());
    assert_eq!(none.unwrap(), ParsedQuery::Empty);
}

#[test]
fn equal_queries_have_one_cache_text_and_different_queries_have_others() {
    let text = |more: Value| query(&request(more)).unwrap().normalised();
    let names =
        |names: Value| json!({"funnel_correlation_type": "properties", "funnel_correlation_names": names});
    assert_eq!(text(names(json!(["b", "a"]))), text(names(json!("[\"a\", \"b\", \"a\"]"))));
    let different = [
        text(json!({})),
        text(json!({"funnel_step": 2})),
        text(json!({"funnel_correlation_exclude_event_names": ["a"]})),
        text(names(json!(["a"]))),
        text(names(json!(["$all"]))),
        text(json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["$all"],
            "funnel_correlation_exclude_names": ["a"]})),
        text(
            json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["a"]}),
        ),
    ];
    for (index, text) in different.iter().enumerate() {
        assert!(!different[..index].contains(text), "{text}");
    }
}

/// The parameters of a link to the persons of a correlation.
fn parameters(url: &str) -> Map<String, Value> {
    assert!(url.starts_with("/api/projects/7/persons/funnel/correlation/?"), "{url}");
    link_parameters(url)
}

fn people(world: &World, request: &Map<String, Value>) -> usize {
    let query = query(&Value::Object(request.clone())).unwrap();
    let selector = query.data_point(request).unwrap();
    let plan = query.plan(&world.project, world.now).unwrap();
    let facts = world.facts(&plan);
    let parts = plan.join(world.partitions(plan.scan(), 3), facts, &|| false).unwrap();
    parts.iter().map(|part| plan.people(part, &selector, &|| false).unwrap().len()).sum()
}

#[test]
fn links_list_as_many_persons_as_their_numbers() {
    let mut links = 0;
    for case in cases("funnels.json") {
        if case["request"]["endpoint"] != json!("correlation") || case["expect"]["status"] != json!(200) {
            continue;
        }
        let world = World::of_case(&case);
        let result = calculate(&world, &case["request"]["body"]);
        for row in result["events"].as_array().unwrap() {
            for kind in ["success", "failure"] {
                let url = row[format!("{kind}_people_url")].as_str().unwrap();
                let found = people(&world, &parameters(url)) as u64;
                assert_eq!(json!(found), row[format!("{kind}_count")], "{}: {url}", case["name"]);
                links += 1;
            }
        }
    }
    assert!(links >= 50, "only {links} links");
}
