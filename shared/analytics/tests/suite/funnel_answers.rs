//! Answers of funnels by the contract's words: values that are missing, breakdowns without a limit, and time that is over.

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

/// Values and counts of the rows of an answer.
fn rows(world: &World, extra: &Value) -> Vec<Value> {
    let result = world.ask(InsightKind::Funnels.parse_request(body(extra).as_object().unwrap())).unwrap();
    let row = |row: &Value| json!([row[0]["breakdown_value"], row[0]["count"], row[1]["count"]]);
    let mut rows: Vec<Value> = result.as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(Value::to_string);
    rows
}

#[test]
fn a_missing_url_is_the_empty_one_when_urls_are_cut() {
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
    let asked =
        json!({"breakdown": "$current_url", "breakdown_type": "event", "breakdown_normalize_url": true});
    assert_eq!(rows(&world, &asked), [json!([["/"], 2, 2]), json!([["http://a"], 1, 1])]);
    // The same from an entry of a list, which the request's own switch speaks for.
    let listed = json!({"breakdowns": [{"property": "$current_url", "type": "event"}], "breakdown_normalize_url": true});
    assert_eq!(rows(&world, &listed), [json!([["/"], 2, 2]), json!([["http://a"], 1, 1])]);
    // Otherwise an empty value is passed over for one that is not.
    let plain = json!({"breakdown": "$current_url", "breakdown_type": "event"});
    assert_eq!(
        rows(&world, &plain),
        [json!([[""], 1, 1]), json!([["http://a/"], 1, 1]), json!([["http://a/?"], 1, 1])]
    );
}

#[test]
fn every_value_of_an_expression_has_its_row() {
    let asked = json!({"breakdown": "properties.id", "breakdown_type": "hogql"});
    let of =
        |count: usize| world((0..count).map(|id| (id.to_string(), "a", 0, json!({"id": id.to_string()}))));
    let rows = rows(&of(1_500), &asked);
    assert_eq!(rows.len(), 1_500);
    assert!(!rows.iter().any(|row| row[0] == json!(["Other"])));
    // 32,000 steps in all, of twenty each.
    let steps: Vec<Value> = (0..20).map(|order| json!({"id": "a", "order": order})).collect();
    let mut asked = body(&asked);
    asked["events"] = json!(steps);
    let ask = |count: usize| of(count).ask(InsightKind::Funnels.parse_request(asked.as_object().unwrap()));
    assert_eq!(ask(1_600).unwrap().as_array().unwrap().len(), 1_600);
    let error = ask(1_601).unwrap_err();
    assert_eq!(error.attr.as_deref(), Some("breakdown"));
    assert!(error.detail.contains("at most 1600"), "{error}");
}

#[test]
fn one_actor_does_not_keep_counting_when_the_time_is_over() {
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
            panic!("no question")
        };
        let plan = query.plan(&world.project, world.now).unwrap();
        let facts = world.facts(&plan);
        let partition = &plan.join(world.partitions(plan.scan(), 1), facts, &|| false).unwrap()[0];
        let looks = Cell::new(0);
        let look = |last: usize| {
            looks.set(looks.get() + 1);
            looks.get() == last
        };
        plan.partial(partition, &|| look(usize::MAX)).unwrap();
        // Once for the one run and among the events; where events are taken instant by instant, at the start too.
        let all = looks.replace(0);
        let by_instant = ["funnel_order_type", "funnel_viz_type"].iter().any(|key| extra.get(key).is_some());
        assert!(all >= if by_instant { 3 } else { 2 }, "{extra}: {all}");
        assert!(plan.partial(partition, &|| look(all)).is_err(), "{extra}");
    }
}
