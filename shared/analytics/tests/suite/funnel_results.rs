//! Results of funnels by the contract: missing values, breakdowns without a limit, and timeouts.

use std::cell::Cell;

use pennon_analytics::{InsightKind, ParsedQuery};
use serde_json::{Value, json};

use crate::support::World;

/// Events as (person, name, seconds, properties).
fn world(events: impl IntoIterator<Item = (String, &'static str, usize, Value)>) -> World {
    let event = |(id, name, second, properties): (String, &str, usize, Value)| {
        let time =
            chrono::DateTime::from_timestamp(1_704_067_200 + i64::try_from(second).unwrap(), 0).unwrap();
        json!({"event": name, "distinct_id": id, "timestamp": time.to_rfc3339(), "properties": properties})
    };
    let events: Vec<Value> = events.into_iter().map(event).collect();
    World::of_case(&json!({
        "now": "2024-01-05T00:00:00Z", "project": {"timezone": "UTC"}, "persons": [], "groups": [], "cohorts": [],
        "actions": [], "events": events,
    }))
}

fn body(extra: &Value) -> Value {
    let mut body = json!({
        "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}],
        "date_from": "2024-01-01", "date_to": "2024-01-04",
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Values and counts of the rows of a result.
fn rows(world: &World, extra: &Value) -> Vec<Value> {
    let result =
        world.calculate_parsed(InsightKind::Funnels.parse_request(body(extra).as_object().unwrap())).unwrap();
    let row = |row: &Value| json!([row[0]["breakdown_value"], row[0]["count"], row[1]["count"]]);
    let mut rows: Vec<Value> = result.as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(Value::to_string);
    rows
}

#[test]
fn a_missing_url_equals_the_empty_url_if_urls_are_normalized() {
    let one = |id: &str, first: Value, second: Value| {
        [(id.to_owned(), "a", 0, first), (id.to_owned(), "b", 1, second)]
    };
    let url = |url: &str| json!({"$current_url": url});
    let world = world(
        [
            one("1", json!({}), json!({})),
            one("2", url(""), url("http://a/")),
            one("3", url("http://a/?"), json!({"$current_url": null})),
        ]
        .concat(),
    );
    let request =
        json!({"breakdown": "$current_url", "breakdown_type": "event", "breakdown_normalize_url": true});
    assert_eq!(rows(&world, &request), [json!([["/"], 2, 2]), json!([["http://a"], 1, 1])]);
    // The same for an entry of `breakdowns`, which takes `breakdown_normalize_url` from the request.
    let listed = json!({"breakdowns": [{"property": "$current_url", "type": "event"}], "breakdown_normalize_url": true});
    assert_eq!(rows(&world, &listed), [json!([["/"], 2, 2]), json!([["http://a"], 1, 1])]);
    // Otherwise the first value that is not empty is used.
    let plain = json!({"breakdown": "$current_url", "breakdown_type": "event"});
    assert_eq!(
        rows(&world, &plain),
        [json!([[""], 1, 1]), json!([["http://a/"], 1, 1]), json!([["http://a/?"], 1, 1])]
    );
}

#[test]
fn breakdowns_by_expression_have_a_row_per_value_up_to_their_limit() {
    let request = json!({"breakdown": "properties.id", "breakdown_type": "hogql"});
    let of =
        |count: usize| world((0..count).map(|id| (id.to_string(), "a", 0, json!({"id": id.to_string()}))));
    let rows = rows(&of(1_500), &request);
    assert_eq!(rows.len(), 1_500);
    assert!(!rows.iter().any(|row| row[0] == json!(["Other"])));
    // 32,000 steps in total, 20 per row.
    let steps: Vec<Value> = (0..20).map(|order| json!({"id": "a", "order": order})).collect();
    let mut request = body(&request);
    request["events"] = json!(steps);
    let calculate = |count: usize| {
        of(count).calculate_parsed(InsightKind::Funnels.parse_request(request.as_object().unwrap()))
    };
    assert_eq!(calculate(1_600).unwrap().as_array().unwrap().len(), 1_600);
    let error = calculate(1_601).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("breakdown"));
    assert!(error.detail.contains("at most 1600"), "{error}");
}

#[test]
fn the_events_of_one_actor_are_checked_for_cancellation() {
    let world = world((0..70_000).map(|second| ("1".to_owned(), "a", second, json!({}))));
    for extra in [
        json!({}),
        json!({"funnel_order_type": "unordered"}),
        json!({"breakdown": "k"}),
        json!({"funnel_viz_type": "trends"}),
    ] {
        let ParsedQuery::Query(query) =
            InsightKind::Funnels.parse_request(body(&extra).as_object().unwrap()).unwrap()
        else {
            panic!("no query")
        };
        let plan = query.plan(&world.project, world.now).unwrap();
        let facts = world.facts(&plan);
        let partition = &plan.join(world.partitions(plan.scan(), 1), facts, &|| false).unwrap()[0];
        let checks = Cell::new(0);
        let check = |last: usize| {
            checks.set(checks.get() + 1);
            checks.get() == last
        };
        plan.partial(partition, &|| check(usize::MAX)).unwrap();
        // One check for the run and one among the events; a third at the start if events are read instant by instant.
        let all = checks.replace(0);
        let by_instant = ["funnel_order_type", "funnel_viz_type"].iter().any(|key| extra.get(key).is_some());
        assert!(all >= if by_instant { 3 } else { 2 }, "{extra}: {all}");
        assert!(plan.partial(partition, &|| check(all)).is_err(), "{extra}");
    }
}
