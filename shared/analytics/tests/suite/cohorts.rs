//! Cohorts by rules: the members, counted by a trend of an event that all persons have, filtered by the cohort.

use pennon_analytics::InsightKind;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use crate::support::World;

/// Wednesday noon. Each person of the tests is identified by its distinct id.
const NOW: &str = "2024-05-15T12:00:00Z";

struct Project {
    persons: Vec<(&'static str, Value)>,
    events: Vec<Value>,
    actions: Value,
    cohorts: Vec<Value>,
}

impl Project {
    fn new(persons: &[(&'static str, Value)]) -> Self {
        Self { persons: persons.to_vec(), events: Vec::new(), actions: json!([]), cohorts: Vec::new() }
    }

    fn event(mut self, who: &str, event: &str, when: &str) -> Self {
        self.events
            .push(json!({"event": event, "distinct_id": who, "timestamp": when, "properties": {"k": "v"}}));
        self
    }

    fn cohort(mut self, id: u64, properties: &Value) -> Self {
        self.cohorts.push(json!({"id": id, "name": "c", "filters": {"properties": properties}}));
        self
    }

    /// The persons that are in a cohort (`in`) or are not (`not_in`).
    fn members(&self, id: u64, operator: &str) -> Result<Vec<&'static str>, CalcError> {
        let mut events = self.events.clone();
        for (who, _) in &self.persons {
            events.push(
                json!({"event": "mark", "distinct_id": who, "timestamp": NOW, "properties": {"who": who}}),
            );
        }
        let persons: Vec<Value> = (self.persons.iter())
            .map(|(who, properties)| json!({"distinct_ids": [who], "properties": properties}))
            .collect();
        let world = World::of_case(&json!({
            "now": NOW, "project": {"timezone": "UTC"}, "persons": persons, "events": events,
            "actions": self.actions, "cohorts": self.cohorts,
        }));
        let mut found = Vec::new();
        for (who, _) in &self.persons {
            let body = json!({
                "date_from": "dStart", "properties": [{"type": "cohort", "key": "id", "value": id, "operator": operator}],
                "events": [{"id": "mark", "properties": [{"key": "who", "value": who}]}],
            });
            let result =
                world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?;
            if result[0]["data"][0] == json!(1) {
                found.push(*who);
            }
        }
        Ok(found)
    }

    fn with(&self, criteria: &Value) -> Result<Vec<&'static str>, CalcError> {
        let mut project = Self {
            persons: self.persons.clone(),
            events: self.events.clone(),
            actions: self.actions.clone(),
            cohorts: self.cohorts.clone(),
        };
        project.cohorts.push(json!({"id": 99, "name": "tested", "filters": {"properties": criteria}}));
        let members = project.members(99, "in")?;
        // Only persons who are not members match the negated filter.
        let others = project.members(99, "not_in")?;
        assert_eq!(members.len() + others.len(), self.persons.len(), "{members:?} {others:?}");
        assert!(others.iter().all(|who| !members.contains(who)));
        Ok(members)
    }
}

fn and(values: &Value) -> Value {
    json!({"type": "AND", "values": values})
}

fn or(values: &Value) -> Value {
    json!({"type": "OR", "values": values})
}

fn people() -> Project {
    Project::new(&[
        ("ann", json!({"age": 30, "city": "Rome"})),
        ("bob", json!({"age": 40, "city": "Oslo"})),
        ("eve", json!({"city": null})),
    ])
}

fn city(name: &str) -> Value {
    json!({"type": "person", "key": "city", "value": name})
}

fn not(mut criterion: Value) -> Value {
    criterion["negation"] = json!(true);
    criterion
}

#[test]
fn person_properties_are_combined_with_and_and_or() {
    let old = json!({"type": "person", "key": "age", "operator": "gte", "value": 40});
    for (criteria, want) in [
        (or(&json!([and(&json!([city("Rome")]))])), vec!["ann"]),
        (or(&json!([and(&json!([city("Rome")])), and(&json!([old.clone()]))])), vec!["ann", "bob"]),
        (and(&json!([city("Rome"), old.clone()])), vec![]),
        (
            and(&json!([{"type": "person", "key": "city", "operator": "is_not", "value": "Rome"}])),
            vec!["bob", "eve"],
        ),
        (and(&json!([{"type": "person", "key": "city", "operator": "is_not_set"}])), vec!["eve"]),
        (and(&json!([])), vec![]),
        (or(&json!([and(&json!([])), city("Oslo")])), vec!["bob"]),
    ] {
        assert_eq!(people().with(&criteria).unwrap(), want, "{criteria}");
    }
}

#[test]
fn negated_criteria_exclude_persons() {
    let set = json!({"type": "person", "key": "age", "operator": "is_set"});
    for (criteria, want) in [
        (and(&json!([set.clone(), not(city("Rome"))])), vec!["bob"]),
        // A group of negated criteria beside a plain one; De Morgan for the mixed group.
        (and(&json!([set.clone(), or(&json!([not(city("Rome"))]))])), vec!["bob"]),
        (and(&json!([set.clone(), or(&json!([city("Rome"), not(city("Oslo"))]))])), vec!["ann"]),
        (and(&json!([set.clone(), or(&json!([not(city("Rome")), not(city("Oslo"))]))])), vec!["ann", "bob"]),
    ] {
        assert_eq!(people().with(&criteria).unwrap(), want, "{criteria}");
    }
    for criteria in [
        and(&json!([not(city("Rome"))])),
        or(&json!([not(city("Rome"))])),
        or(&json!([set.clone(), not(city("Rome"))])),
        or(&json!([and(&json!([set.clone()])), and(&json!([not(city("Rome")), not(city("Oslo"))]))])),
    ] {
        let error = people().with(&criteria).unwrap_err();
        assert!(error.detail.contains("negated") && error.detail.contains("cohort 99"), "{error}");
    }
}

#[test]
fn cohorts_refer_to_other_cohorts() {
    let mut project = people().cohort(1, &and(&json!([city("Rome")]))).cohort(
        2,
        &or(&json!([{"type": "cohort", "key": "id", "value": 1}, {"type": "static-cohort", "key": "id", "value": 3}])),
    );
    project.cohorts.push(json!({"id": 3, "name": "list", "static_distinct_ids": ["eve"]}));
    assert_eq!(project.members(2, "in").unwrap(), ["ann", "eve"]);
    let set = json!({"type": "person", "key": "city", "operator": "is_set"});
    let outside = and(&json!([set.clone(), {"type": "cohort", "key": "id", "value": 2, "negation": true}]));
    assert_eq!(project.with(&outside).unwrap(), ["bob"]);
    let outside = and(&json!([set, {"type": "cohort", "key": "id", "value": 2, "operator": "not_in"}]));
    assert_eq!(project.with(&outside).unwrap(), ["bob"]);
    let unknown = and(&json!([{"type": "cohort", "key": "id", "value": 77}]));
    assert!(project.with(&unknown).unwrap_err().detail.contains("no cohort 77"));
}

#[test]
fn circular_and_long_references_are_rejected() {
    let member = |id: u64| and(&json!([{"type": "cohort", "key": "id", "value": id}]));
    let circle = people().cohort(1, &member(2)).cohort(2, &member(1));
    assert!(circle.members(1, "in").unwrap_err().detail.contains("leads back to itself"));
    let chain = |length: u64| {
        let start = people().cohort(1, &and(&json!([city("Rome")])));
        (2..=length).fold(start, |project, id| project.cohort(id, &member(id - 1)))
    };
    assert_eq!(chain(32).members(32, "in").unwrap(), ["ann"]);
    let error = chain(33).members(33, "in").unwrap_err();
    assert!(error.detail.contains("at most 32"), "{error}");
}

/// The page views of each person, in days before now, possibly with a fraction.
fn viewers(days: &[(&'static str, &[f64])]) -> Project {
    let persons: Vec<_> = days.iter().map(|(who, _)| (*who, json!({}))).collect();
    days.iter().fold(Project::new(&persons), |project, (who, days)| {
        days.iter().fold(project, |project, days| {
            let at = crate::support::instant(NOW) - chrono::Duration::seconds((days * 86_400.0) as i64);
            project.event(who, "view", &at.to_rfc3339())
        })
    })
}

fn behaviour(value: &str, more: &Value) -> Value {
    let mut criterion = json!({"type": "behavioral", "key": "view", "event_type": "events", "value": value,
        "time_value": 1, "time_interval": "week"});
    criterion.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    and(&json!([criterion]))
}

#[test]
fn events_since_the_start_of_a_day_count() {
    // A week ago is 8 May 00:00, seven and a half days before now.
    let project = viewers(&[("one", &[7.5]), ("two", &[7.51, 7.6]), ("six", &[1.0, 2.0]), ("nil", &[])]);
    let performed = |more: &Value| project.with(&behaviour("performed_event", more)).unwrap();
    assert_eq!(performed(&json!({})), ["one", "six"]);
    assert_eq!(performed(&json!({"time_value": "2"})), ["one", "two", "six"]);
    assert_eq!(performed(&json!({"explicit_datetime": "2024-05-14"})), ["six"]);
    assert_eq!(performed(&json!({"explicit_datetime": "2024-05-14T12:00:01Z"})), [""; 0]);
    assert_eq!(performed(&json!({"explicit_datetime": "-1d"})), ["six"]);
    assert_eq!(performed(&json!({"explicit_datetime": ""})), ["one", "six"]);
    let multiple = |operator: &str, value: i64| {
        let more =
            json!({"operator": operator, "operator_value": value, "time_value": 1, "time_interval": "month"});
        project.with(&behaviour("performed_event_multiple", &more)).unwrap()
    };
    assert_eq!(multiple("gte", 2), ["two", "six"]);
    assert_eq!(multiple("lte", 1), ["one"]);
    assert_eq!(multiple("lt", 3), ["one", "two", "six"]);
    assert_eq!(multiple("gt", 1), ["two", "six"]);
    assert_eq!(multiple("eq", 1), ["one"]);
    assert_eq!(multiple("exact", 2), ["two", "six"]);
    assert_eq!(project.with(&behaviour("performed_event_first_time", &json!({}))).unwrap(), ["one", "six"]);
}

#[test]
fn stopping_restarting_and_returning() {
    let project =
        viewers(&[("old", &[10.0]), ("new", &[2.0]), ("both", &[10.0, 2.0]), ("mid", &[20.0, 5.0, 2.0])]);
    let seq = json!({"time_value": 2, "seq_time_value": 1, "seq_time_interval": "week"});
    assert_eq!(project.with(&behaviour("stopped_performing_event", &seq)).unwrap(), ["old"]);
    // Before a week ago, not until three days ago, again since.
    let seq = json!({"seq_time_value": 3, "seq_time_interval": "day"});
    assert_eq!(project.with(&behaviour("restarted_performing_event", &seq)).unwrap(), ["both"]);
    let longer = json!({"seq_time_value": 2, "seq_time_interval": "week"});
    for value in ["stopped_performing_event", "restarted_performing_event"] {
        let error = project.with(&behaviour(value, &longer)).unwrap_err();
        assert!(error.detail.contains("longer"), "{error}");
    }
    // Twice in the last three weeks, counted back from now.
    let regular = json!({"operator": "gte", "operator_value": 1, "min_periods": 2, "total_periods": 3});
    assert_eq!(project.with(&behaviour("performed_event_regularly", &regular)).unwrap(), ["both", "mid"]);
}

#[test]
fn sequences_filters_and_actions() {
    let mut project = viewers(&[("fast", &[3.0]), ("slow", &[5.0]), ("back", &[1.0])])
        .event("fast", "buy", "2024-05-13T12:00:00Z")
        .event("slow", "buy", "2024-05-13T12:00:00Z")
        .event("back", "buy", "2024-05-13T12:00:00Z");
    project.actions = json!([{"id": 4, "name": "bought", "steps": [{"event": "buy", "properties":
        [{"type": "person", "key": "plan", "value": "big"}]}]}]);
    project.persons[0].1 = json!({"plan": "big"});
    let seq = json!({"seq_event": "buy", "seq_event_type": "events", "seq_time_value": 1, "seq_time_interval": "day"});
    assert_eq!(project.with(&behaviour("performed_event_sequence", &seq)).unwrap(), ["fast"]);
    let seq = json!({"seq_event": "buy", "seq_event_type": "events", "seq_time_value": 3, "seq_time_interval": "day"});
    assert_eq!(project.with(&behaviour("performed_event_sequence", &seq)).unwrap(), ["fast", "slow"]);
    let action = json!({"key": "4", "event_type": "actions"});
    assert_eq!(project.with(&behaviour("performed_event", &action)).unwrap(), ["fast"]);
    for (value, want) in [("v", vec!["fast", "slow", "back"]), ("w", vec![])] {
        let filters =
            json!({"event_filters": [{"key": "k", "type": "event", "value": value, "operator": "exact"}]});
        assert_eq!(project.with(&behaviour("performed_event", &filters)).unwrap(), want);
    }
    // A cohort by events inside a filter of another one's events.
    let project = project.cohort(5, &behaviour("performed_event", &action));
    let inner = json!({"key": "buy", "event_filters": [{"type": "cohort", "key": "id", "value": 5, "negation": true}]});
    assert_eq!(project.with(&behaviour("performed_event", &inner)).unwrap(), ["slow", "back"]);
}

#[test]
fn the_older_format_is_parsed() {
    let mut project = viewers(&[("ann", &[2.0, 3.0]), ("bob", &[2.0]), ("eve", &[])]);
    project.persons[2].1 = json!({"city": "Rome", "age": 20});
    for (groups, want) in [
        (json!([{"properties": {"city": "Rome"}}]), vec!["eve"]),
        (json!([{"properties": {"age__gt": 19}}]), vec!["eve"]),
        (
            json!([{"properties": [{"key": "city", "type": "event", "value": "Rome"}]}, {"event_id": "view", "days": "30", "count": 2,
            "count_operator": "gte"}]),
            vec!["ann", "eve"],
        ),
        (json!([{"event_id": "view", "days": 30}]), vec!["ann", "bob"]),
        (json!([{"event_id": "view", "days": 1}]), vec![]),
        (json!([{"event_id": "view", "days": 30, "count": 1, "count_operator": "lte"}]), vec!["bob"]),
        (json!([]), vec![]),
    ] {
        project.cohorts = vec![json!({"id": 1, "name": "c", "filters": {}, "groups": groups})];
        assert_eq!(project.members(1, "in").unwrap(), want, "{groups}");
    }
}

#[test]
fn invalid_criteria_are_rejected() {
    let project = viewers(&[("ann", &[2.0])]);
    for (value, more) in [
        ("performed_something", json!({})),
        ("performed_event", json!({"time_interval": "fortnight"})),
        ("performed_event", json!({"time_value": 0})),
        ("performed_event", json!({"time_value": null})),
        ("performed_event", json!({"time_value": 99999, "time_interval": "year"})),
        ("performed_event", json!({"key": null})),
        ("performed_event", json!({"key": 5})),
        ("performed_event", json!({"key": 5, "event_type": "actions"})),
        ("performed_event", json!({"key": "x", "event_type": "actions"})),
        ("performed_event", json!({"explicit_datetime": 5})),
        ("performed_event_multiple", json!({"operator": "gte", "operator_value": 0})),
        ("performed_event_multiple", json!({"operator": "gte"})),
        ("performed_event_multiple", json!({"operator": "icontains", "operator_value": 1})),
        ("performed_event_sequence", json!({"seq_time_value": 1, "seq_time_interval": "day"})),
        ("performed_event_sequence", json!({"seq_event": "buy", "seq_time_interval": "day"})),
        ("performed_event_regularly", json!({"operator_value": 1, "min_periods": 4, "total_periods": 3})),
        ("performed_event_regularly", json!({"operator_value": 1, "min_periods": 1, "total_periods": 1001})),
    ] {
        let error = project.with(&behaviour(value, &more)).unwrap_err();
        assert!(error.detail.contains("cohort 99"), "{error}");
    }
    let regular = |total: u32| {
        behaviour(
            "performed_event_regularly",
            &json!({"operator": "gte", "operator_value": 1, "min_periods": 1, "total_periods": total}),
        )
    };
    assert!(project.with(&regular(1_000)).is_ok());
    assert!(project.with(&regular(1_001)).is_err());
    for criteria in [
        json!({"type": "XOR", "values": [city("Rome")]}),
        and(&json!([5])),
        and(&json!([{"type": "event", "key": "a", "value": "b"}])),
        and(&json!([{"type": "person", "key": "a"}])),
        and(&json!([{"type": "person", "key": "distinct_id", "value": "a"}])),
    ] {
        assert!(project.with(&criteria).is_err(), "{criteria}");
    }
    let many = |count: i64| {
        let one = |days| behaviour("performed_event", &json!({"time_value": days, "time_interval": "day"}));
        or(&(1..=count).map(one).collect())
    };
    assert_eq!(project.with(&many(40)).unwrap(), ["ann"]);
    assert!(project.with(&many(41)).unwrap_err().detail.contains("at most 40"));
}
