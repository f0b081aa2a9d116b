//! The format of results, freshness, and counts compared with a slow count of the same events.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use pennon_analytics::refresh::{Freshness, cache_target_age, freshness, next_allowed_client_refresh};
use pennon_analytics::{InsightKind, ParsedQuery, ProjectContext, Query};
use pennon_filters::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Event, World, instant};

fn world(now: &str, events: &[(&str, &str, &str)]) -> World {
    let events: Vec<Value> = events
        .iter()
        .map(|(name, who, when)| json!({"event": name, "distinct_id": who, "timestamp": when, "properties": {}}))
        .collect();
    World::of_case(&json!({"now": now, "project": {"timezone": "UTC"}, "persons": [], "events": events}))
}

fn trend(body: &Value) -> Query {
    match InsightKind::Trends.parse_request(body.as_object().unwrap()).unwrap() {
        ParsedQuery::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

fn sign_ups() -> World {
    world(
        "2020-01-04T13:00:00Z",
        &[
            ("sign up", "a", "2020-01-01T00:00:00Z"),
            ("sign up", "a", "2020-01-01T10:00:00Z"),
            ("sign up", "b", "2020-01-01T23:59:59Z"),
            ("sign up", "b", "2020-01-02T00:00:00Z"),
            ("other", "a", "2020-01-02T00:00:00Z"),
        ],
    )
}

#[test]
fn a_series_has_the_format_of_the_contract() {
    let body = json!({"events": [{"id": "sign up"}], "date_from": "-7d", "display": "ActionsLineGraph"});
    let got = sign_ups().calculate(&trend(&body), 2).unwrap();
    let want = json!([{
        "label": "sign up", "count": 4.0, "data": [0, 0, 0, 0, 3, 1, 0, 0],
        "labels": ["28-Dec-2019", "29-Dec-2019", "30-Dec-2019", "31-Dec-2019", "1-Jan-2020", "2-Jan-2020", "3-Jan-2020", "4-Jan-2020"],
        "days": ["2019-12-28", "2019-12-29", "2019-12-30", "2019-12-31", "2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"],
        "order": 0,
        "action": {"id": "sign up", "type": "events", "order": 0, "name": "sign up", "custom_name": null, "math": null,
            "math_property": null, "math_hogql": null, "math_group_type_index": null, "properties": {}},
        "filter": {"insight": "TRENDS", "events": [{"id": "sign up", "math": "total", "properties": []}], "actions": [],
            "properties": [], "filter_test_accounts": false, "date_from": "-7d", "date_to": "2020-01-04T23:59:59.999999Z",
            "interval": "day", "display": "ActionsLineGraph"},
    }]);
    let mut wrong = Vec::new();
    crate::support::differences(&want, &got, "result", 0.0, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(got[0]["count"].is_f64());
    let action = got[0]["action"]["days"].as_array().unwrap();
    assert_eq!((action.len(), &action[4]), (8, &json!("2020-01-01T00:00:00Z")));
    let links = got[0]["persons_urls"].as_array().unwrap();
    assert_eq!(links.len(), 8);
    assert_eq!(links[4]["filter"]["date_from"], json!("2020-01-01T00:00:00Z"));
    assert_eq!(links[7]["filter"]["date_to"], json!("2020-01-04T23:59:59Z"));
    let url = links[4]["url"].as_str().unwrap();
    assert!(url.starts_with("/api/projects/7/persons/trends/?"), "{url}");
    assert!(url.contains("entity_id=sign%20up&"), "{url}");
    let keys: Vec<_> = got[0]["filter"].as_object().unwrap().keys().cloned().collect();
    let order = [
        "insight",
        "events",
        "actions",
        "properties",
        "filter_test_accounts",
        "date_from",
        "date_to",
        "interval",
        "display",
    ];
    assert_eq!(keys, order);
}

#[test]
fn persons_count_once_per_bucket_per_total_or_per_running_sum() {
    let numbers = |body: Value| sign_ups().calculate(&trend(&body), 1).unwrap()[0].clone();
    let dau = json!([{"id": null, "math": "dau"}]);
    let daily = numbers(json!({"events": dau, "date_from": "2020-01-01", "date_to": "2020-01-02"}));
    assert_eq!((&daily["data"], &daily["label"]), (&json!([2, 2]), &json!("All events")));
    let total = numbers(json!({"events": dau, "date_from": "2020-01-01", "display": "BoldNumber"}));
    assert_eq!(
        (&total["aggregated_value"], &total["data"], &total["count"]),
        (&json!(2), &json!([]), &json!(0))
    );
    assert!(total.get("labels").is_none() && total.get("persons_urls").is_none());
    let running = json!({"events": dau, "date_from": "2020-01-01", "display": "ActionsLineGraphCumulative"});
    assert_eq!(numbers(running.clone())["data"], json!([2, 2, 2, 2]));
    assert_eq!(numbers(running)["count"], json!(2.0));
}

#[test]
fn results_without_events_are_zero() {
    let empty = world("2020-01-04T13:00:00Z", &[]);
    let body = json!({"events": [{"id": "a"}, {"id": "b", "math": "dau"}], "date_from": "2020-01-03"});
    let query = trend(&body);
    let plan = query.plan(&empty.project, empty.now).unwrap();
    let finished = plan.finish(pennon_analytics::PartitionResult::default(), &|| false).unwrap();
    assert_eq!((&finished.result[1]["data"], finished.has_more), (&json!([0, 0]), Some(false)));
    let backwards =
        trend(&json!({"events": [{"id": "a"}], "date_from": "2020-01-03", "date_to": "2020-01-01"}));
    assert_eq!(sign_ups().calculate(&backwards, 1).unwrap()[0]["data"], json!([]));
}

#[test]
fn a_funnel_row_has_every_field() {
    let world = world(
        "2020-01-04T13:00:00Z",
        &[
            ("a", "p", "2020-01-01T00:00:00Z"),
            ("b", "p", "2020-01-01T00:00:01.500Z"),
            ("a", "q", "2020-01-01T00:00:00Z"),
            ("b", "q", "2020-01-01T00:00:00Z"),
            ("a", "r", "2020-01-01T00:00:00Z"),
        ],
    );
    let body = json!({"events": [{"id": "a", "order": 0, "custom_name": " Start "}, {"id": "b", "order": 1}, {"id": "c", "order": 2}], "date_from": "2020-01-01"});
    let got = world.calculate_parsed(InsightKind::Funnels.parse_request(body.as_object().unwrap())).unwrap();
    assert_eq!(got.as_array().unwrap().len(), 3);
    let mut second = got[1].clone();
    let converted = second["converted_people_url"].take();
    let dropped = second["dropped_people_url"].take();
    assert_eq!(
        second,
        json!({"action_id": "b", "name": "b", "custom_name": null, "order": 1, "people": [], "count": 2, "type": "events",
            "average_conversion_time": 1.5, "median_conversion_time": 1.5,
            "converted_people_url": null, "dropped_people_url": null})
    );
    assert!(converted.as_str().unwrap().starts_with("/api/projects/7/persons/funnel/?"));
    assert!(converted.as_str().unwrap().ends_with("&funnel_step=2"));
    assert!(dropped.as_str().unwrap().ends_with("&funnel_step=-2"));
    assert_eq!((&got[0]["custom_name"], &got[0]["dropped_people_url"]), (&json!("Start"), &Value::Null));
    assert_eq!((&got[2]["count"], &got[2]["median_conversion_time"]), (&json!(0), &Value::Null));
}

#[test]
fn a_cancelled_calculation_stops_with_a_timeout() {
    let world = sign_ups();
    let funnel = json!({"events": [{"id": "sign up"}], "date_from": "2020-01-01"});
    let funnel = InsightKind::Funnels.parse_request(funnel.as_object().unwrap()).unwrap();
    let ParsedQuery::Query(funnel) = funnel else { panic!("no query") };
    for query in [funnel, trend(&json!({"events": [{"id": "sign up"}]}))] {
        let plan = query.plan(&world.project, world.now).unwrap();
        let partition = &world.partitions(plan.scan(), 1)[0];
        assert_eq!(plan.partial(partition, &|| true).unwrap_err().kind, ErrorKind::Timeout);
    }
}

/// A person with two ids counts as two in a project that counts distinct ids; the person's properties apply to both.
#[test]
fn projects_may_count_distinct_ids() {
    let event = |name: &str, id: &str, hour: u8| json!({"event": name, "distinct_id": id, "timestamp": format!("2020-01-01T{hour:02}:00:00Z"), "properties": {}});
    let mut world = World::of_case(&json!({
        "now": "2020-01-04T13:00:00Z", "project": {"timezone": "UTC"},
        "persons": [{"distinct_ids": ["a", "b"], "properties": {"plan": "big"}},
            {"distinct_ids": ["c"], "properties": {}}],
        "events": [event("sign up", "a", 1), event("sign up", "b", 2), event("paid", "b", 3),
            event("sign up", "a", 4), event("sign up", "c", 5), event("paid", "c", 6)],
    }));
    let plan = json!([{"key": "plan", "type": "person", "value": "big"}]);
    let series = json!([{"id": "sign up", "math": "dau"}]);
    let numbers = |world: &World| {
        let all = world.calculate(&trend(&json!({"events": series})), 2).unwrap();
        let big = world.calculate(&trend(&json!({"events": series, "properties": plan})), 2).unwrap();
        let steps = json!({"events": [{"id": "sign up"}, {"id": "paid", "order": 1}], "date_from": "-7d"});
        let Ok(ParsedQuery::Query(funnel)) = InsightKind::Funnels.parse_request(steps.as_object().unwrap())
        else {
            panic!()
        };
        let steps = world.calculate(&funnel, 2).unwrap();
        [&all[0]["count"], &big[0]["count"], &steps[0]["count"], &steps[1]["count"]]
            .map(|count| count.as_f64().unwrap())
    };
    assert_eq!(numbers(&world), [2.0, 1.0, 2.0, 2.0]);
    world.project.aggregate_by_distinct_id = true;
    assert_eq!(numbers(&world), [3.0, 2.0, 3.0, 2.0]);
}

fn project() -> ProjectContext {
    sign_ups().project
}

fn plus(when: &str, minutes: i64) -> DateTime<Utc> {
    instant(when) + chrono::Duration::minutes(minutes)
}

#[test]
fn results_age_by_their_interval() {
    let at = "2020-01-04T10:00:00Z";
    let class =
        |body: Value, minutes| freshness(&trend(&body), &project(), instant(at), plus(at, minutes)).unwrap();
    for (interval, first, second) in
        [("minute", 5, 15), ("hour", 60, 120), ("day", 360, 720), ("week", 1440, 1440), ("month", 2880, 2880)]
    {
        let body = json!({"events": [{"id": "a"}], "interval": interval, "date_from": "-1d"});
        assert_eq!(class(body.clone(), first), Freshness::Fresh, "{interval}");
        let between = if first == second { Freshness::Stale } else { Freshness::SomewhatStale };
        assert_eq!(class(body.clone(), first + 1), between, "{interval}");
        assert_eq!(class(body.clone(), second + 1), Freshness::Stale, "{interval}");
        assert_eq!(cache_target_age(&trend(&body), instant(at)), plus(at, first));
    }
    let past = json!({"events": [{"id": "a"}], "date_from": "2020-01-01", "date_to": "2020-01-03"});
    assert_eq!(class(past, 1_000_000), Freshness::Fresh);
    let moving = json!({"events": [{"id": "a"}], "date_from": "-20d", "date_to": "-10d"});
    assert_eq!(class(moving.clone(), 300), Freshness::Fresh);
    assert_eq!(class(moving, 5 * 1440), Freshness::Stale, "the relative dates have moved");
    let next = |from: &str, interval: &str| {
        let body = json!({"events": [{"id": "a"}], "date_from": from, "interval": interval});
        next_allowed_client_refresh(&trend(&body), &project(), instant(at), instant(at)).unwrap()
            - instant(at)
    };
    assert_eq!(next("-7d", "day").num_minutes(), 15);
    assert_eq!(next("-6d", "day").num_minutes(), 3);
    assert_eq!(next("-30d", "hour").num_minutes(), 3);
}

#[test]
fn a_date_of_a_million_digits_is_parsed_in_linear_time() {
    let filter = json!([{"key": "d", "operator": "is_date_before", "value": "1".repeat(1_000_000)}]);
    let query = trend(&json!({"events": [{"id": "a"}], "properties": filter}));
    // Quadratic work would take hours here.
    assert!(query.plan(&project(), instant("2020-01-04T10:00:00Z")).is_ok());
}

/// Events of three names by at most five persons over a few days.
fn histories() -> impl Strategy<Value = Vec<(u8, u8, i64, Option<u8>)>> {
    prop::collection::vec((0..3_u8, 0..5_u8, 0..300_000_i64, prop::option::of(0..3_u8)), 0..40)
}

proptest! {
    #[test]
    fn counts_are_those_of_a_slow_count(history in histories(), named in any::<bool>(), parts in 1..4_usize) {
        let start = instant("2024-03-09T00:00:00Z").timestamp();
        let events: Vec<Event> = history.iter().map(|(name, who, second, value)| Event {
            person: uuid::Uuid::from_u128(u128::from(*who)),
            distinct_id: who.to_string(),
            name: name.to_string(),
            time: (start + second) * 1_000_000,
            properties: value.map_or_else(|| json!({}), |value| json!({"v": value})),
        }).collect();
        let mut world = World { now: instant("2024-03-14T00:00:00Z"), events, ..sign_ups() };
        world.project.timezone = chrono_tz::America::New_York;
        let id = if named { json!("1") } else { Value::Null };
        let filter = json!([{"key": "v", "operator": "is_not", "value": "2"}]);
        let body = json!({"events": [{"id": id}, {"id": id, "math": "dau"}], "properties": filter,
            "date_from": "2024-03-09", "date_to": "2024-03-12"});
        let got = world.calculate(&trend(&body), parts).unwrap();

        let mut totals = [0_u64; 4];
        let mut people: [HashSet<u8>; 4] = Default::default();
        for (name, who, second, value) in &history {
            let local = DateTime::from_timestamp(start + second, 0).unwrap().with_timezone(&world.project.timezone);
            let day = (local.date_naive() - instant("2024-03-09T00:00:00Z").date_naive()).num_days();
            if (!named || *name == 1) && *value != Some(2) && (0..4).contains(&day) {
                let day = usize::try_from(day).unwrap();
                totals[day] += 1;
                people[day].insert(*who);
            }
        }
        prop_assert_eq!(&got[0]["data"], &json!(totals));
        prop_assert_eq!(&got[1]["data"], &json!(people.each_ref().map(HashSet::len)));
    }
}
