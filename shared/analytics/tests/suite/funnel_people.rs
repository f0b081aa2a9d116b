//! The links of funnels list as many persons as the numbers beside them.

use std::collections::BTreeSet;

use pennon_analytics::people::MatchedActor;
use pennon_analytics::{InsightKind, ParsedQuery, Query};
use pennon_filters::CalcError;
use serde_json::{Map, Value, json};

use crate::support::{World, cases, link_parameters};

fn query(request: &Map<String, Value>) -> Result<Query, CalcError> {
    match InsightKind::Funnels.parse_request(request)? {
        ParsedQuery::Query(query) => Ok(query),
        other => panic!("{other:?}"),
    }
}

/// The persons that a request of the persons endpoint lists.
fn people(world: &World, request: &Map<String, Value>) -> Result<Vec<MatchedActor>, CalcError> {
    let query = query(request)?;
    let selector = query.data_point(request)?;
    let plan = query.plan(&world.project, world.now)?;
    let facts = world.facts(&plan);
    let mut people = Vec::new();
    for partition in plan.join(world.partitions(plan.scan(), 3), facts, &|| false).unwrap() {
        people.extend(plan.people(&partition, &selector, &|| false)?);
    }
    let distinct: BTreeSet<_> = people.iter().map(|one| one.actor).collect();
    assert_eq!(distinct.len(), people.len(), "a person is listed twice");
    Ok(people)
}

/// Follows the links of the steps of one row and returns their number.
fn follow(name: &str, world: &World, steps: &[Value], optional: &[bool]) -> usize {
    let count = |step: &Value| usize::try_from(step["count"].as_u64().unwrap()).unwrap();
    let mut links = 0;
    for (index, step) in steps.iter().enumerate() {
        let mut check = |key: &str, want: usize| {
            let request = link_parameters(step[key].as_str().unwrap());
            let found = people(world, &request).unwrap();
            assert_eq!(found.len(), want, "{name}: {key} of step {index}");
            for one in &found {
                assert!(one.times.is_sorted() && !one.times.is_empty(), "{name}: {one:?}");
            }
            links += 1;
        };
        check("converted_people_url", count(step));
        if index == 0 {
            assert_eq!(step["dropped_people_url"], Value::Null);
        } else {
            let before = (0..index).rev().find(|before| !optional[*before]).unwrap();
            check("dropped_people_url", count(&steps[before]) - count(step));
        }
    }
    links
}

#[test]
fn every_link_lists_as_many_persons_as_its_number() {
    let mut links = 0;
    for case in cases("funnels.json") {
        let body = case["request"]["body"].as_object().unwrap();
        if case["request"]["endpoint"] != json!("funnel") || case["expect"]["status"] != json!(200) {
            continue;
        }
        let world = World::of_case(&case);
        let Ok(result) = world.calculate_parsed(InsightKind::Funnels.parse_request(body)) else { continue };
        let Query::Funnels(funnel) = query(body).unwrap() else { panic!() };
        let optional: Vec<bool> = funnel.steps.iter().map(|step| step.optional).collect();
        let name = case["name"].as_str().unwrap();
        let Some(rows) = result.as_array() else { continue };
        for row in rows.iter().filter_map(Value::as_array) {
            links += follow(name, &world, row, &optional);
        }
        if rows.first().is_some_and(|step| step["converted_people_url"].is_string()) {
            links += follow(name, &world, rows, &optional);
        }
    }
    assert!(links >= 500, "only {links} links");
}

fn world(events: Value) -> World {
    World::of_case(&json!({
        "now": "2020-01-10T00:00:00Z", "project": {"timezone": "UTC"}, "persons": [], "groups": [], "actions": [],
        "cohorts": [], "events": events,
    }))
}

fn event(name: &str, person: &str, minute: u32, value: &str) -> Value {
    let timestamp = format!("2020-01-05T00:{minute:02}:00Z");
    json!({"event": name, "distinct_id": person, "timestamp": timestamp, "properties": {"v": value}})
}

#[test]
fn the_row_of_other_values_and_a_value_named_other_are_merged() {
    let mut events = Vec::new();
    for (person, value) in [("1", "x"), ("2", "x"), ("3", "Other"), ("4", "Other"), ("5", "y"), ("6", "z")] {
        events.push(event("a", person, 1, value));
        if person != "2" {
            events.push(event("b", person, 2, value));
        }
    }
    let world = world(Value::Array(events));
    let body = json!({
        "insight": "FUNNELS", "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}], "date_from": "2020-01-05",
        "breakdown": "v", "breakdown_limit": 2,
    });
    let result =
        world.calculate_parsed(InsightKind::Funnels.parse_request(body.as_object().unwrap())).unwrap();
    let rows: Vec<_> = result
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row[0]["breakdown_value"].clone(), row[0]["count"].clone(), row[1]["count"].clone()))
        .collect();
    assert_eq!(rows, [(json!(["Other"]), json!(4), json!(4)), (json!(["x"]), json!(2), json!(1))]);
    for row in result.as_array().unwrap() {
        assert_eq!(follow("rest", &world, row.as_array().unwrap(), &[false, false]), 3);
    }
}

#[test]
fn persons_of_a_period_entered_in_it_and_converted_or_dropped_off() {
    let mut events = vec![event("a", "1", 1, ""), event("b", "1", 2, ""), event("a", "2", 1, "")];
    events.push(
        json!({"event": "a", "distinct_id": "1", "timestamp": "2020-01-06T10:00:00Z", "properties": {}}),
    );
    let world = world(Value::Array(events));
    let count_people = |start: &str, drop_off: bool| {
        let body = json!({
            "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}], "date_from": "2020-01-05",
            "funnel_viz_type": "trends", "funnel_window_interval": 1, "entrance_period_start": start, "drop_off": drop_off,
        });
        people(&world, body.as_object().unwrap()).map(|people| people.len())
    };
    assert_eq!(count_people("2020-01-05", false), Ok(1));
    assert_eq!(count_people("2020-01-05 00:00:00", true), Ok(1));
    assert_eq!(count_people("2020-01-06T00:00:00Z", false), Ok(0));
    assert_eq!(count_people("2020-01-06", true), Ok(1));
    for wrong in ["2020-01-06 01:00:00", "2021-01-01", "-1d", "soon"] {
        assert_eq!(
            count_people(wrong, true).unwrap_err().attr.as_deref(),
            Some("entrance_period_start"),
            "{wrong}"
        );
    }
}

#[test]
fn a_link_to_no_number_of_the_funnel_is_rejected() {
    let world = world(json!([]));
    let refused = |extra: Value, attr: &str| {
        let mut body = json!({"events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let error = people(&world, body.as_object().unwrap()).unwrap_err();
        assert_eq!(error.attr.as_deref(), Some(attr), "{error}");
    };
    for step in [json!(0), json!(3), json!(-1), json!(-3), json!("x"), json!(1.5), json!([])] {
        refused(json!({"funnel_step": step}), "funnel_step");
    }
    refused(json!({}), "funnel_step");
    refused(json!({"funnel_step": 1, "funnel_step_breakdown": "x"}), "funnel_step_breakdown");
    refused(
        json!({"funnel_step": 1, "breakdown": "v", "funnel_step_breakdown": "x", "funnel_breakdown_kept": "x"}),
        "funnel_step_breakdown",
    );
    refused(json!({"funnel_viz_type": "trends", "drop_off": true}), "entrance_period_start");
    refused(json!({"funnel_viz_type": "trends", "entrance_period_start": "2020-01-01"}), "drop_off");
}
