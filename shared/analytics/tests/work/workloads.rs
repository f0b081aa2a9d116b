//! One query of each kind, and a project in which all values are distinct.

use std::collections::BTreeMap;

use pennon_analytics::kinds::DataPoint;
use pennon_analytics::scan::Partition;
use pennon_analytics::{InsightKind, JoinData, ParsedQuery, PartitionResult, Plan, Query};
use pennon_filters::CalcError;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::impacts;
use crate::support::{Event, World, instant};

/// A query, and the selected number if its persons are listed.
pub struct Workload {
    pub name: String,
    query: Query,
    people: Option<DataPoint>,
}

/// Everything that is read before a query is calculated.
pub struct Prepared {
    plan: Plan,
    partitions: Vec<Partition>,
    facts: JoinData,
}

impl Workload {
    pub fn new(name: &str, request: &Value, people: Option<&Value>) -> Self {
        let object = request.as_object().unwrap();
        let kinds = [
            ("trend", InsightKind::Trends),
            ("funnel", InsightKind::Funnels),
            ("retention", InsightKind::Retention),
            ("paths", InsightKind::Paths),
            ("stickiness", InsightKind::Stickiness),
            ("lifecycle", InsightKind::Lifecycle),
            ("impact", InsightKind::FlagImpact),
            ("", InsightKind::Correlation),
        ];
        let kind = kinds.iter().find(|(start, _)| name.starts_with(start)).unwrap().1;
        let parsed = kind.parse_people_request(object);
        let ParsedQuery::Query(query) = parsed.unwrap_or_else(|error| panic!("{name}: {error}")) else {
            panic!("{name} is no query")
        };
        let people = people.map(|link| {
            let mut all = object.clone();
            all.extend(link.as_object().unwrap().clone());
            query.data_point(&all).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        Self { name: name.to_owned(), query, people }
    }

    /// Reads the data that the query needs.
    pub fn prepare(&self, world: &World) -> Prepared {
        let plan = self.query.plan(&world.project, world.now);
        let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        Prepared { partitions: world.partitions(plan.scan(), 1), facts: world.facts(&plan), plan }
    }

    /// Calculates it.
    pub fn calculate(&self, prepared: Prepared, is_cancelled: &dyn Fn() -> bool) -> Result<(), CalcError> {
        let Prepared { plan, partitions, facts } = prepared;
        let partitions = plan.join(partitions, facts, is_cancelled)?;
        if let Some(selector) = &self.people {
            for partition in &partitions {
                plan.people(partition, selector, is_cancelled)?;
            }
            return Ok(());
        }
        let mut sum = PartitionResult::default();
        for partition in &partitions {
            sum = sum.merge(plan.partial(partition, is_cancelled)?);
        }
        plan.finish(sum, is_cancelled).map(drop)
    }
}

/// How the events are spread over persons and names.
#[derive(Clone, Copy, PartialEq)]
pub enum Spread {
    /// Each person has a few.
    Persons,
    /// All are of one person.
    One,
    /// Each person has a few, of which every third has a name that no other has.
    Names,
    /// The same, all of one person.
    NamesOfOne,
}

const DAY: i64 = 86_400_000_000;

/// Events of three names and more, half a day apart at most, each with values that no other event of its name has.
pub fn world(values: usize, spread: Spread) -> World {
    let now = "2024-03-01T00:00:00Z";
    let mut world = World::of_case(&json!({
        "now": now, "project": {}, "persons": [], "groups": [], "events": [],
        "actions": [{"id": 1, "name": "did", "steps": [
            {"event": "a", "url": "/1", "url_matching": "contains"},
            {"event": "$autocapture", "selector": "div > a", "text": "7", "text_matching": "contains"},
        ]}],
        "cohorts": [
            {"id": 1, "name": "rules", "filters": {"properties": {"type": "AND", "values": [
                {"type": "AND", "values": [{"key": "mail", "type": "person", "operator": "icontains", "value": "1"}]}]}}},
            {"id": 2, "name": "behaviour", "filters": {"properties": {"type": "AND", "values": [
                {"type": "AND", "values": [{"key": "a", "type": "behavioral", "event_type": "events",
                    "value": "performed_event_multiple", "operator": "gte", "operator_value": 2, "time_value": 90,
                    "time_interval": "day"}]}]}}},
            {"id": 3, "name": "list", "static_distinct_ids": []},
        ],
    }));
    let end = instant(now).timestamp_micros();
    let start = end - 40 * DAY;
    for index in 0..values {
        let person = match spread {
            Spread::One | Spread::NamesOfOne => 0,
            Spread::Persons | Spread::Names => index / 4,
        };
        let own_name = format!("e{index}");
        let third = match spread {
            Spread::Persons | Spread::One => "$autocapture",
            Spread::Names | Spread::NamesOfOne => &own_name,
        };
        let id = Uuid::from_u128(person as u128 + 1);
        let time = start + index as i64 * (39 * DAY / values as i64);
        world
            .persons
            .entry(id)
            .or_insert_with(|| json!({"mail": format!("p{person}@example.com"), "n": person}));
        world.named.insert(format!("d{person}"), id);
        world.cohort_lists.entry(3).or_default().insert(id);
        world.groups.insert((0, format!("g{index}")), json!({"name": format!("group {index}")}));
        for (offset, name) in ["a", "b", third].into_iter().enumerate() {
            let variant = if person % 2 == 0 { "control" } else { "test" };
            let properties = json!({
                "u": format!("https://example.com/{name}/{index}/"), "n": index, "m": index % 7,
                "$current_url": format!("https://example.com/{index}"), "$session_id": format!("s{name}{index}"),
                "$group_0": format!("g{index}"), "$feature/f": variant,
                "$elements_chain": format!("a.c{index}:text=\"t{index}\"href=\"/h{index}\";div.d"),
            });
            let (distinct_id, name) = (format!("d{person}"), name.to_owned());
            world.events.push(Event {
                person: id,
                distinct_id,
                name,
                time: time + offset as i64,
                properties,
            });
        }
    }
    world.project.earliest_event = Some(start);
    world
}

/// `request` with more fields.
fn with(request: &Value, more: &Value) -> Value {
    let mut all = request.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Value::Object(all)
}

/// One query of each kind.
pub fn all() -> Vec<Workload> {
    let mut workloads = trends();
    workloads.extend(filters());
    workloads.extend(funnels());
    workloads.extend(correlations());
    workloads.extend(retention());
    workloads.extend(paths());
    workloads.extend(stickiness());
    workloads.extend(lifecycles());
    workloads.extend(impacts::all());
    workloads
}

/// Of persons, of groups, of values of an expression; with a criterion, and over intervals that are cut back from the end.
fn stickiness() -> Vec<Workload> {
    let node = |series: Value, more: Value| {
        let node = json!({"kind": "StickinessQuery", "series": [series], "interval": "day",
            "dateRange": {"date_from": "2024-01-01", "date_to": "2024-03-01"}});
        json!({"query": with(&node, &more)})
    };
    let event = |more: Value| with(&json!({"kind": "EventsNode", "event": "a"}), &more);
    let criterion = json!({"stickinessFilter": {"stickinessCriteria": {"operator": "gte", "value": 1}},
        "intervalCount": 2, "interval": "hour"});
    let group = json!({"math": "unique_group", "math_group_type_index": 0});
    let value = json!({"math": "hogql", "math_hogql": "lower(properties.u)"});
    let people = json!({"stickiness_days": 1});
    vec![
        Workload::new("stickiness", &node(event(json!({})), json!({})), None),
        Workload::new(
            "stickiness of every event with a criterion",
            &node(event(json!({"event": null})), criterion),
            None,
        ),
        Workload::new("stickiness of groups", &node(event(group), json!({})), None),
        Workload::new("stickiness of values", &node(event(value), json!({})), None),
        Workload::new("stickiness people", &node(event(json!({"event": null})), json!({})), Some(&people)),
    ]
}

fn lifecycles() -> Vec<Workload> {
    let node = |more: Value| {
        let node = json!({"kind": "LifecycleQuery", "series": [{"kind": "EventsNode", "event": "a"}],
            "dateRange": {"date_from": "2024-01-01", "date_to": "2024-03-01"}});
        json!({"query": with(&node, &more)})
    };
    let people = json!({"target_date": "2024-02-01", "lifecycle_type": "new"});
    vec![
        Workload::new("lifecycle", &node(json!({})), None),
        Workload::new(
            "lifecycle of groups by hour",
            &node(json!({"aggregation_group_type_index": 0, "interval": "hour"})),
            None,
        ),
        Workload::new(
            "lifecycle people",
            &node(json!({"series": [{"kind": "EventsNode", "event": null}]})),
            Some(&people),
        ),
    ]
}

fn trend() -> Value {
    json!({"insight": "TRENDS", "date_from": "2024-01-01", "date_to": "2024-03-01", "interval": "week",
        "events": [{"id": "a"}, {"id": "b"}]})
}

fn breakdowns() -> BTreeMap<&'static str, Value> {
    let expression =
        "concat(lower(properties.u), if(properties.u like '%/1%7%', 'x', toString(properties.n)))";
    BTreeMap::from([
        ("event property", json!({"breakdown": "u", "breakdown_type": "event"})),
        ("url", json!({"breakdown": "u", "breakdown_type": "event", "breakdown_normalize_url": true})),
        ("person property", json!({"breakdown": "mail", "breakdown_type": "person"})),
        (
            "group property",
            json!({"breakdown": "name", "breakdown_type": "group", "breakdown_group_type_index": 0}),
        ),
        ("session", json!({"breakdown": "$session_duration", "breakdown_type": "session"})),
        ("expression", json!({"breakdown": expression, "breakdown_type": "hogql"})),
        ("cohorts", json!({"breakdown": [1, 2, 3, "all"], "breakdown_type": "cohort"})),
        (
            "several",
            json!({"breakdowns": [{"property": "u", "type": "event"}, {"property": "n", "type": "event"}]}),
        ),
    ])
}

fn trends() -> Vec<Workload> {
    let base = trend();
    let mut list = vec![Workload::new("trend", &base, None)];
    for (name, breakdown) in breakdowns() {
        let request = with(&base, &breakdown);
        list.push(Workload::new(&format!("trend by {name}"), &request, None));
        let total = with(&request, &json!({"display": "ActionsBarValue", "compare": true}));
        list.push(Workload::new(&format!("trend total by {name}"), &total, None));
        let unique =
            with(&request, &json!({"events": [{"id": "a", "math": "dau"}, {"id": "b", "math": "dau"}]}));
        list.push(Workload::new(&format!("trend of persons by {name}"), &unique, None));
    }
    for math in ["dau", "weekly_active", "unique_session", "first_time_for_user", "avg_count_per_actor"] {
        let series = json!({"events": [{"id": "a", "math": math}, {"id": "b", "math": math}]});
        list.push(Workload::new(&format!("trend of {math}"), &with(&base, &series), None));
    }
    for math in ["sum", "median", "p99", "min"] {
        let series = json!([{"id": "a", "math": math, "math_property": "n"}, {"id": "b", "math": math, "math_property": "n"}]);
        let request = with(&base, &json!({"events": series, "breakdown": "u", "breakdown_type": "event"}));
        list.push(Workload::new(&format!("trend of {math}"), &request, None));
    }
    let groups = json!({"events": [{"id": "a", "math": "unique_group", "math_group_type_index": 0}]});
    list.push(Workload::new("trend of groups", &with(&base, &groups), None));
    let expression = "uniq(properties.u) + quantile(0.9)(properties.n) + countIf(properties.u like '%1%')";
    let aggregate = json!({"events": [{"id": "a", "math": "hogql", "math_hogql": expression}]});
    list.push(Workload::new("trend of an expression", &with(&base, &aggregate), None));
    let formula = json!({"formula": "A / (B + 1)", "breakdown": "u", "breakdown_type": "event", "breakdown_limit": 1000});
    list.push(Workload::new("trend by formula", &with(&base, &formula), None));
    let running =
        json!({"display": "ActionsLineGraphCumulative", "events": [{"id": "a", "math": "dau"}, {"id": "b"}]});
    list.push(Workload::new("trend, running", &with(&base, &running), None));
    let action = json!({"events": [], "actions": [{"id": 1}], "breakdown": "u", "breakdown_type": "event"});
    list.push(Workload::new("trend of an action", &with(&base, &action), None));
    let link = json!({"entity_id": "a", "entity_type": "events", "entity_math": "total", "entity_order": 0,
        "breakdown_value": "https://example.com/a/5/"});
    let by = json!({"breakdown": "u", "breakdown_type": "event"});
    list.push(Workload::new("trend, people", &with(&base, &by), Some(&link)));
    list
}

/// Filters of each kind, by every type of what they look at.
fn filters() -> Vec<Workload> {
    let many: Vec<String> = (0..2_000).map(|index| format!("https://example.com/a/{index}/")).collect();
    let list: Vec<String> = (0..20).map(|index| format!("{index}{index}x")).collect();
    let kinds = [
        ("a long list", json!({"key": "u", "value": many, "operator": "exact", "type": "event"})),
        ("texts inside", json!({"key": "u", "value": list, "operator": "icontains", "type": "event"})),
        ("a pattern", json!({"key": "u", "value": "a/[0-9]*7/$", "operator": "regex", "type": "event"})),
        ("a number", json!({"key": "n", "value": 1000, "operator": "gt", "type": "event"})),
        ("a date", json!({"key": "u", "value": "-7d", "operator": "is_date_after", "type": "event"})),
        ("persons", json!({"key": "mail", "value": "1", "operator": "icontains", "type": "person"})),
        (
            "distinct ids",
            json!({"key": "distinct_id", "value": ["d1", "d2"], "operator": "exact", "type": "person"}),
        ),
        (
            "groups",
            json!({"key": "name", "value": "1", "operator": "icontains", "type": "group", "group_type_index": 0}),
        ),
        ("sessions", json!({"key": "$session_duration", "value": 0, "operator": "gte", "type": "session"})),
        ("elements", json!({"key": "text", "value": "7", "operator": "icontains", "type": "element"})),
        (
            "selectors",
            json!({"key": "selector", "value": "div > a.c7", "operator": "exact", "type": "element"}),
        ),
        ("a cohort by rules", json!({"key": "id", "value": 1, "type": "cohort"})),
        ("a cohort by behaviour", json!({"key": "id", "value": 2, "type": "cohort"})),
        ("a static cohort", json!({"key": "id", "value": 3, "type": "cohort"})),
        (
            "an expression",
            json!({"key": "match(properties.u, '7/$') and properties.n % 3 = 1", "type": "hogql"}),
        ),
    ];
    let base = trend();
    let workload = |(name, filter): (&str, Value)| {
        Workload::new(
            &format!("trend filtered by {name}"),
            &with(&base, &json!({"properties": [filter]})),
            None,
        )
    };
    kinds.into_iter().map(workload).collect()
}

fn funnel() -> Value {
    json!({"insight": "FUNNELS", "date_from": "2024-01-01", "date_to": "2024-03-01",
        "funnel_window_interval": 1, "funnel_window_interval_unit": "hour",
        "events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}]})
}

fn funnels() -> Vec<Workload> {
    let base = funnel();
    let mut list = vec![Workload::new("funnel", &base, None)];
    let exclusion = json!({"exclusions": [{"id": "$autocapture", "type": "events", "funnel_from_step": 0, "funnel_to_step": 1,
        "properties": [{"key": "u", "value": "9", "operator": "icontains", "type": "event"}]}]});
    for (name, more) in [
        ("excluding", exclusion),
        ("strict", json!({"funnel_order_type": "strict"})),
        ("unordered", json!({"funnel_order_type": "unordered"})),
        ("over time", json!({"funnel_viz_type": "trends"})),
        ("time to convert", json!({"funnel_viz_type": "time_to_convert"})),
        ("by groups", json!({"aggregation_group_type_index": 0})),
    ] {
        list.push(Workload::new(&format!("funnel, {name}"), &with(&base, &more), None));
    }
    for (name, breakdown) in breakdowns() {
        for attribution in ["first_touch", "last_touch", "all_events", "step"] {
            let by = with(
                &breakdown,
                &json!({"breakdown_attribution_type": attribution, "breakdown_attribution_value": 0}),
            );
            list.push(Workload::new(&format!("funnel by {name}, {attribution}"), &with(&base, &by), None));
        }
    }
    list.extend(funnels_by_property());
    let link = json!({"funnel_step": 2, "funnel_step_breakdown": ["https://example.com/a/5/"]});
    let by = json!({"breakdown": "u", "breakdown_type": "event"});
    list.push(Workload::new("funnel, people", &with(&base, &by), Some(&link)));
    list
}

/// Funnels of three steps and other orders by an event property, all its values distinct.
fn funnels_by_property() -> Vec<Workload> {
    let steps = json!({"events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}, {"id": "a", "order": 2}],
        "breakdown": "u", "breakdown_type": "event"});
    let base = with(&funnel(), &steps);
    let strict = json!({"funnel_order_type": "strict"});
    let excluded = json!({"exclusions": [{"id": "$autocapture", "type": "events", "funnel_from_step": 0, "funnel_to_step": 2,
        "properties": [{"key": "u", "value": "9", "operator": "icontains", "type": "event"}]}]});
    let mut list = Vec::new();
    for step in 0..3 {
        let by_step = json!({"breakdown_attribution_type": "step", "breakdown_attribution_value": step});
        let long =
            with(&by_step, &json!({"funnel_window_interval": 30, "funnel_window_interval_unit": "day"}));
        for (name, more) in [
            ("ordered", with(&by_step, &json!({}))),
            ("ordered in a long window", long),
            ("excluding", with(&by_step, &excluded)),
            ("strict", with(&by_step, &strict)),
        ] {
            list.push(Workload::new(&format!("funnel, {name}, by step {step}"), &with(&base, &more), None));
        }
    }
    for attribution in ["first_touch", "last_touch", "all_events"] {
        let by = with(&strict, &json!({"breakdown_attribution_type": attribution}));
        list.push(Workload::new(&format!("funnel, strict, by {attribution}"), &with(&base, &by), None));
    }
    let over_time = json!({"funnel_viz_type": "trends"});
    for (name, more) in [("over time", over_time.clone()), ("over time, strict", with(&over_time, &strict))] {
        list.push(Workload::new(&format!("funnel, {name}, by event property"), &with(&base, &more), None));
    }
    list
}

fn paths() -> Vec<Workload> {
    let base = json!({"insight": "PATHS", "date_from": "2024-01-01", "date_to": "2024-03-01", "step_limit": 1_000_000,
        "edge_limit": 1_000_000, "paths_hogql_expression": "properties.u"});
    let around = |group: u8| {
        let mut funnel = funnel();
        funnel["funnel_step"] = json!(1);
        funnel["aggregation_group_type_index"] = json!(group);
        funnel["aggregation_group_types_from_zero"] = json!(group == 0);
        json!({"funnel_paths": "funnel_path_after_step", "funnel_filter": funnel})
    };
    let end = json!({"end_point": "https://example.com/b/5/", "start_point": "https://example.com/a/5/"});
    let mut list = vec![Workload::new("paths", &base, None)];
    for (name, more) in [
        ("by names of events", json!({"paths_hogql_expression": null, "step_limit": 5})),
        (
            "cleaned",
            json!({"local_path_cleaning_filters": [{"regex": "[0-7]+", "alias": "<\\0>"}, {"regex": "z", "alias": ""}]}),
        ),
        ("grouped", json!({"path_groupings": ["*/a/*1/", "*/b/*2/", "nothing*"]})),
        ("between points", end),
        (
            "around a funnel",
            json!({"funnel_paths": "funnel_path_after_step", "funnel_filter": with(&funnel(), &json!({"funnel_step": 1}))}),
        ),
        ("around a funnel of groups", around(0)),
    ] {
        list.push(Workload::new(&format!("paths, {name}"), &with(&base, &more), None));
    }
    let link = json!({"path_end_key": "2_https://example.com/b/5/"});
    list.push(Workload::new("paths, people", &base, Some(&link)));
    list
}

fn correlations() -> Vec<Workload> {
    let base = funnel();
    let kinds = [
        ("events", json!({"funnel_correlation_type": "events"})),
        (
            "properties",
            json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["mail"]}),
        ),
        (
            "all properties",
            json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["$all"]}),
        ),
        (
            "event properties",
            json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["$autocapture", "b"]}),
        ),
    ];
    let workload = |(name, more)| Workload::new(&format!("correlation of {name}"), &with(&base, &more), None);
    let mut list: Vec<Workload> = kinds.into_iter().map(workload).collect();
    let properties = json!([{"key": "u", "value": "https://example.com/$autocapture/5/", "type": "event"}]);
    let link = json!({"funnel_correlation_person_converted": true, "funnel_correlation_person_entity":
        {"id": "$autocapture", "type": "events", "properties": properties}});
    let names = json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["$autocapture"]});
    list.push(Workload::new("correlation, people", &with(&base, &names), Some(&link)));
    list
}

/// Retention of each type, by every value that it can be split by.
fn retention() -> Vec<Workload> {
    let base = json!({"insight": "RETENTION", "date_from": "2024-01-15", "date_to": "2024-03-01", "total_intervals": 30,
        "target_entity": {"id": "a"}, "returning_entity": {"id": "b"}});
    let mut list = vec![Workload::new("retention", &base, None)];
    let everything = json!({"target_entity": {"id": null}, "returning_entity": {"id": null}});
    for (name, more) in [
        ("of every event", everything.clone()),
        ("for the first time", json!({"retention_type": "retention_first_time"})),
        ("for the first time ever", json!({"retention_type": "retention_first_ever_occurrence"})),
        ("in windows", json!({"time_window_mode": "24_hour_windows"})),
        ("by hours", json!({"period": "Hour", "minimum_occurrences": 2, "cumulative": true})),
        ("by groups", json!({"aggregation_group_type_index": 0, "aggregation_group_types_from_zero": true})),
        ("with sums", json!({"aggregation_type": "sum", "aggregation_property": "n"})),
    ] {
        list.push(Workload::new(&format!("retention {name}"), &with(&base, &more), None));
    }
    for (name, breakdown) in breakdowns() {
        if ["session", "several"].contains(&name) {
            continue;
        }
        for kind in ["retention_recurring", "retention_first_time"] {
            let more = json!({"retention_type": kind, "period": "Week", "total_intervals": 10, "breakdown_limit": 1000});
            let request = with(&with(&base, &breakdown), &more);
            list.push(Workload::new(&format!("retention of {kind} by {name}"), &request, None));
        }
        let windows =
            with(&with(&base, &breakdown), &json!({"time_window_mode": "24_hour_windows", "period": "Week"}));
        list.push(Workload::new(&format!("retention in windows by {name}"), &windows, None));
    }
    let link = json!({"selected_interval": 20});
    list.push(Workload::new("retention, people", &with(&base, &everything), Some(&link)));
    list
}
