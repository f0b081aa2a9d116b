//! Filters on anything but event properties, the operators of the contract's table, and negation.

use pennon_analytics::{InsightKind, ParsedQuery};
use pennon_filters::{CalcError, ErrorKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::World;

/// Which of three events pass a filter: one of a person with a group, one of a person without, and a later one of a third person.
fn passing(filter: &Value) -> Result<Vec<u64>, CalcError> {
    let event = |who: &str, at: &str, version: Value, group: Value| {
        json!({"event": "e", "distinct_id": who, "timestamp": at, "groups": group,
            "properties": {"version": version, "$feature/beta": "on", "path": "/a/1"}})
    };
    let world = World::of_case(&json!({
        "now": "2024-05-15T12:00:00Z", "project": {"timezone": "UTC"},
        "persons": [{"distinct_ids": ["a", "b"], "properties": {"distinct_id": "never this"}}],
        "groups": [{"type_index": 1, "type": "company", "key": "acme", "properties": {}}],
        "events": [
            event("a", "2024-05-15T08:00:00Z", json!("1.2.3"), json!({"company": "acme"})),
            event("b", "2024-05-15T08:00:00Z", json!("v2.0"), json!({})),
            event("c", "2024-05-15T10:00:01.500Z", json!("none"), json!({})),
        ],
    }));
    let mut found = Vec::new();
    for (index, who) in ["a", "b", "c"].into_iter().enumerate() {
        let only = json!({"type": "event_metadata", "key": "distinct_id", "value": who});
        let body = json!({"date_from": "dStart", "events": [{"id": "e", "properties": [only]}], "properties": [filter]});
        if world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?[0]["data"][0]
            == json!(1)
        {
            found.push(index as u64);
        }
    }
    Ok(found)
}

#[test]
fn columns_of_events_are_filtered() {
    for (kind, key, operator, value, want) in [
        ("event_metadata", "event", "exact", json!("e"), vec![0, 1, 2]),
        ("event_metadata", "event", "is_not", json!("e"), vec![]),
        ("event_metadata", "distinct_id", "exact", json!(["a", "c"]), vec![0, 2]),
        ("event_metadata", "$group_1", "exact", json!("acme"), vec![0]),
        ("event_metadata", "$group_1", "is_not", json!("acme"), vec![1, 2]),
        ("event_metadata", "$group_1", "is_set", json!(null), vec![0]),
        ("event_metadata", "person_id", "exact", json!("00000000-0000-0000-0000-000000000001"), vec![0, 1]),
        ("event_metadata", "timestamp", "is_date_after", json!("2024-05-15T08:00:00Z"), vec![2]),
        ("event_metadata", "timestamp", "is_date_exact", json!("2024-05-15 10:00:01"), vec![2]),
        ("event_metadata", "timestamp", "is_date_before", json!("-2h"), vec![0, 1]),
        ("event_metadata", "timestamp", "icontains", json!("T08:00"), vec![0, 1]),
        // Any id of the person matches, whichever the event was sent with.
        ("person", "distinct_id", "exact", json!("b"), vec![0, 1]),
        ("person", "distinct_id", "is_not", json!("b"), vec![2]),
        ("person", "distinct_id", "in", json!(["unknown", "c"]), vec![2]),
        ("person", "distinct_id", "not_in", json!(["a", "c"]), vec![]),
        ("person", "distinct_id", "is_set", json!(null), vec![0, 1, 2]),
        ("feature", "beta", "exact", json!("on"), vec![0, 1, 2]),
        ("flag", "beta", "flag_evaluates_to", json!(false), vec![0, 1, 2]),
    ] {
        let filter = json!({"type": kind, "key": key, "operator": operator, "value": value});
        assert_eq!(passing(&filter).unwrap(), want, "{filter}");
    }
    let part = json!({"type": "person", "key": "distinct_id", "operator": "icontains", "value": "a"});
    assert!(passing(&part).is_err());
    // A filter on flags always holds, so the other filters of its OR group have no effect.
    let any = json!({"type": "OR", "values": [{"type": "flag", "key": "beta", "value": true}, {"key": "path", "value": "x"}]});
    assert_eq!(passing(&any).unwrap(), [0, 1, 2]);
    // A group without filters restricts nothing either, alone or beside others.
    let never = json!({"key": "path", "value": "x"});
    for (kind, members, want) in [
        ("OR", json!([{"type": "AND", "values": []}, never]), vec![0, 1, 2]),
        ("AND", json!([{"type": "OR", "values": []}, never]), vec![]),
        ("OR", json!([{"key": "path", "operator": "exact"}, never]), vec![]),
    ] {
        let filter = json!({"type": kind, "values": members});
        assert_eq!(passing(&filter).unwrap(), want, "{filter}");
    }
}

/// The filters in links and in the series of a result are equivalent to those of the request.
#[test]
fn links_keep_that_a_group_restricts_nothing() {
    let world = |filter: &Value| {
        let body = json!({"date_from": "dStart", "events": [{"id": "e", "properties": filter}]});
        let parsed = InsightKind::Trends.parse_request(body.as_object().unwrap());
        let world = World::of_case(&json!({"now": "2024-05-15T12:00:00Z", "project": {"timezone": "UTC"},
            "persons": [], "events": []}));
        world.calculate_parsed(parsed).unwrap()[0]["persons_urls"][0]["url"].clone()
    };
    let a = json!({"key": "a", "value": "x"});
    let flag = json!({"type": "flag", "key": "f", "value": true});
    let any = json!({"type": "OR", "values": [flag, a]});
    assert_eq!(world(&any), world(&json!([])));
    assert_eq!(world(&json!({"type": "AND", "values": [flag, a]})), world(&json!([a])));
}

#[test]
fn versions_are_ordered_by_semver() {
    for (operator, value, want) in [
        ("semver_eq", "1.2.3", vec![0]),
        ("semver_neq", "1.2.3", vec![1, 2]),
        ("semver_gt", "1.10.0", vec![1]),
        ("semver_gte", "1.2.3", vec![0, 1]),
        ("semver_lt", "2.0.0", vec![0]),
        ("semver_lte", "2", vec![0, 1]),
        ("semver_tilde", "1.2.0", vec![0]),
        ("semver_caret", "1.0.0", vec![0]),
        ("semver_wildcard", "2.*", vec![1]),
    ] {
        let filter = json!({"key": "version", "operator": operator, "value": value});
        assert_eq!(passing(&filter).unwrap(), want, "{filter}");
    }
    // With a list, no element may be equal; an invalid or missing version equals none.
    let filter = json!({"key": "version", "operator": "semver_neq", "value": ["1.2.3", "2.0.0"]});
    assert_eq!(passing(&filter).unwrap(), [2]);
    let filter = json!({"key": "missing", "operator": "semver_neq", "value": "1.2.3"});
    assert_eq!(passing(&filter).unwrap(), [0, 1, 2]);
    let filter = json!({"key": "path", "operator": "is_cleaned_path_exact", "value": "/a/1"});
    assert_eq!(passing(&filter).unwrap(), [0, 1, 2]);
}

/// Whether one event with a property, or without it, passes a filter.
fn holds(property: Option<&Value>, operator: &str, value: &Value) -> bool {
    let properties = property.map_or_else(|| json!({}), |property| json!({"p": property}));
    let world = World::of_case(&json!({
        "now": "2024-05-15T12:00:00Z", "project": {"timezone": "UTC"}, "persons": [],
        "events": [{"event": "e", "distinct_id": "d", "timestamp": "2024-05-15T08:00:00Z", "properties": properties}],
    }));
    let filter = json!({"key": "p", "operator": operator, "value": value});
    let body = json!({"date_from": "dStart", "events": [{"id": "e", "properties": [filter]}]});
    world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap())).unwrap()[0]["data"]
        [0]
        == json!(1)
}

fn scalars() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!("a"),
        json!("A"),
        json!("ab"),
        json!(""),
        json!("5"),
        json!(5),
        json!(5.5),
        json!("5.5"),
        json!(true),
        json!("true"),
        json!(false),
        json!("null"),
        json!("%"),
        json!("_"),
        json!("ä"),
        json!("Ä"),
        json!([1, "a"]),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// If the contract has an operator and its negation, exactly one of them holds: the negation for missing values. Both hold
    /// for an empty list, which restricts nothing.
    #[test]
    fn a_negated_operator_holds_if_the_plain_one_does_not(
        property in prop::option::of(prop_oneof![4 => scalars(), 1 => Just(Value::Null)]),
        values in prop::collection::vec(scalars(), 0..3),
        pair in prop::sample::select(vec![
            ("exact", "is_not"), ("in", "not_in"), ("icontains", "not_icontains"),
            ("icontains_multi", "not_icontains_multi"),
        ]),
    ) {
        let value = json!(values);
        let (plain, negated) = (holds(property.as_ref(), pair.0, &value), holds(property.as_ref(), pair.1, &value));
        let missing = property.as_ref().is_none_or(Value::is_null);
        if values.is_empty() {
            prop_assert!(plain && negated);
        } else {
            prop_assert!(plain != negated);
            prop_assert!(!missing || negated);
        }
        // A list of one value equals the value.
        if let [only] = values.as_slice()
            && !only.is_array()
        {
            prop_assert_eq!(holds(property.as_ref(), pair.0, only), plain);
        }
    }
}

#[test]
fn presence_patterns_and_intervals_are_not_exact_negations() {
    let value = json!("a");
    assert!(holds(Some(&json!("")), "is_set", &value) && !holds(Some(&Value::Null), "is_set", &value));
    assert!(holds(Some(&Value::Null), "is_not_set", &value) && holds(None, "is_not_set", &value));
    // An invalid pattern matches nothing, negated or not.
    assert!(
        !holds(Some(&json!("a")), "regex", &json!("("))
            && !holds(Some(&json!("a")), "not_regex", &json!("("))
    );
    assert!(holds(None, "not_regex", &json!("a")) && !holds(None, "regex", &json!("")));
    // A value that is not a number is neither inside nor outside.
    for property in [json!("x"), json!(true), Value::Null] {
        assert!(!holds(Some(&property), "between", &json!([1, 9])), "{property}");
        assert!(!holds(Some(&property), "not_between", &json!([1, 9])), "{property}");
    }
    assert!(holds(Some(&json!("9")), "between", &json!(["1", 9])));
    assert!(!holds(Some(&json!(9)), "not_between", &json!([1, 9])));
}

/// Length of the text times the list exceeds the comparisons of a query; searching for the whole list would take minutes.
#[test]
fn too_many_comparisons_are_rejected_before_the_search() {
    let text = "a".repeat(4 << 20);
    let world = World::of_case(&json!({
        "now": "2024-05-15T12:00:00Z", "project": {"timezone": "UTC"}, "persons": [],
        "events": [{"event": "e", "distinct_id": "d", "timestamp": "2024-05-15T08:00:00Z",
            "properties": {"p": text, "$elements_chain": text}}],
    }));
    let values: Vec<String> = (0..10_000).map(|index| format!("x{index}")).collect();
    for filter in [
        json!({"key": "p", "operator": "icontains", "value": values}),
        json!({"key": "p", "operator": "not_icontains", "value": values}),
        json!({"type": "element", "key": "text", "operator": "icontains", "value": values}),
        json!({"type": "element", "key": "href", "operator": "icontains", "value": values}),
        json!({"type": "element", "key": "selector", "operator": "exact", "value": values}),
    ] {
        let calculate = |count: usize| {
            let mut filter = filter.clone();
            filter["value"].as_array_mut().unwrap().truncate(count);
            let body = json!({"date_from": "dStart", "events": [{"id": "e", "properties": [filter]}]});
            world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))
        };
        let kind = format!("{} {} {}", filter["type"], filter["key"], filter["operator"]);
        let refused = calculate(10_000).expect_err(&kind);
        assert!(refused.detail.contains("compare too many values"), "{kind}: {refused}");
        assert!(calculate(2).is_ok(), "{kind}");
    }
}

/// Instants are compared independent of their format and zone; the project's zone is five hours behind UTC.
#[test]
fn times_of_events_are_compared_as_instants() {
    let world = World::of_case(&json!({
        "now": "2024-01-01T20:00:00Z", "project": {"timezone": "America/New_York"}, "persons": [],
        "events": [{"event": "e", "distinct_id": "d", "timestamp": "2024-01-01T05:00:05Z", "properties": {"$session_id": "s"}}],
    }));
    for (kind, key) in
        [("event_metadata", "timestamp"), ("session", "$start_timestamp"), ("session", "$end_timestamp")]
    {
        let passes = |operator: &str, value: &Value| {
            let filter = json!({"type": kind, "key": key, "operator": operator, "value": value});
            let body = json!({"date_from": "dStart", "events": [{"id": "e", "properties": [filter]}]});
            Ok(
                world.calculate_parsed(InsightKind::Trends.parse_request(body.as_object().unwrap()))?[0]["data"]
                    [0]
                    == json!(1),
            )
        };
        for (operator, value, want) in [
            ("gt", json!("2024-01-01 10:00:00"), false),
            ("gt", json!("2024-01-01 00:00:00"), true),
            ("gte", json!("2024-01-01 00:00:05"), true),
            ("lt", json!("2024-01-01T05:00:05.5Z"), true),
            ("max", json!("2024-01-01T05:00:04.999999Z"), false),
            ("exact", json!("2024-01-01T00:00:05-05:00"), true),
            ("in", json!(["2023-01-01", "2024-01-01 00:00:05"]), true),
            ("is_not", json!("2024-01-01 00:00:05"), false),
            ("not_in", json!(["2023-01-01"]), true),
            ("min", json!(1_704_085_205), true),
            ("between", json!(["2024-01-01", "2024-01-01 00:00:05"]), true),
            ("not_between", json!(["2024-01-01", "2024-01-01 00:00:05"]), false),
        ] {
            let found: Result<bool, CalcError> = passes(operator, &value);
            assert_eq!(found.unwrap(), want, "{key} {operator} {value}");
        }
        for (operator, value) in [
            ("gt", json!("soon")),
            ("between", json!(["2024-01-02", "2024-01-01"])),
            ("between", json!("2024-01-01")),
        ] {
            assert!(passes(operator, &value).is_err(), "{key} {operator} {value}");
        }
    }
}

/// Joining checks for cancellation, as counting does.
#[test]
fn a_cancelled_join_stops_with_a_timeout() {
    let mut world = World::of_case(&json!({
        "now": "2024-01-01T20:00:00Z", "project": {"timezone": "UTC"}, "persons": [],
        "events": [{"event": "e", "distinct_id": "d", "timestamp": "2024-01-01T05:00:05Z", "properties": {"$session_id": "s"}}],
    }));
    for (aggregate_by_distinct_id, more) in [
        (false, json!({"properties": [{"type": "person", "key": "a", "value": "b"}]})),
        (
            false,
            json!({"properties": [{"type": "session", "key": "$session_duration", "operator": "gt", "value": 1}]}),
        ),
        (true, json!({"events": [{"id": "e", "math": "dau"}]})),
    ] {
        world.project.aggregate_by_distinct_id = aggregate_by_distinct_id;
        let mut body = json!({"date_from": "dStart", "events": [{"id": "e"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let Ok(ParsedQuery::Query(query)) = InsightKind::Trends.parse_request(body.as_object().unwrap())
        else {
            panic!("{body}")
        };
        let plan = query.plan(&world.project, world.now).unwrap();
        let joined = plan.join(world.partitions(plan.scan(), 2), world.facts(&plan), &|| true);
        assert!(joined.is_err_and(|error| error.kind == ErrorKind::Timeout), "{body}");
    }
}
