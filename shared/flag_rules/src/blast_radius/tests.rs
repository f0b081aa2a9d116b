//! Conditions of requests, and what they match.
#![allow(clippy::unwrap_used)]

use pennon_filters::body::FieldError;
use serde_json::json;

use super::*;
use crate::{limits, testing};

fn parse(body: Value) -> Result<Conditions, FieldError> {
    Conditions::parse(&testing::object(body))
}

fn blast_with(body: Value, cohorts: Vec<FlagCohort>) -> BlastRadius {
    parse(body).unwrap().compile(cohorts, Tz::UTC, testing::now())
}

fn on(properties: Value) -> Value {
    json!({"condition": {"properties": properties, "rollout_percentage": 25, "variant": "x"}})
}

fn reaches(property: Value, person: Value) -> bool {
    let blast = blast_with(on(json!([property])), Vec::new());
    blast.matches_person("p", &testing::object(person), &BTreeSet::new())
}

fn of_group(key: &str, operator: &str, value: Value) -> Value {
    json!({"key": key, "type": "group", "group_type_index": 0, "operator": operator, "value": value})
}

#[track_caller]
fn refuses(body: Value, attr: Option<&str>, code: &str, detail: &str) {
    let error = parse(body.clone()).expect_err(&body.to_string());
    assert_eq!((error.attr.as_deref(), error.code, error.detail.as_str()), (attr, code, detail), "{body}");
}

#[test]
fn entities_of_a_condition() {
    let person = json!({"key": "a", "type": "person", "value": "x"});
    let group = of_group("a", "exact", json!("x"));
    let in_cohort = json!({"key": "id", "type": "cohort", "value": 1});
    for (condition, index, actors, all) in [
        (json!(null), json!(null), Actors::Persons, true),
        (json!({}), json!(null), Actors::Persons, true),
        (json!({"properties": []}), json!(null), Actors::Persons, true),
        (json!({"properties": null}), json!(0), Actors::Groups(0), true),
        (json!(null), json!(4), Actors::Groups(4), true),
        (json!({"properties": [person]}), json!(null), Actors::Persons, false),
        (json!({"properties": [group, group]}), json!(0), Actors::Groups(0), false),
        (json!({"properties": [group]}), json!("0"), Actors::Groups(0), false),
        (json!({"properties": [person, in_cohort]}), json!(0), Actors::Persons, false),
    ] {
        let body = json!({"condition": condition, "group_type_index": index});
        let blast = blast_with(body.clone(), Vec::new());
        assert_eq!((blast.actors(), blast.matches_all()), (actors, all), "{body}");
    }
}

#[test]
fn filters_of_a_flag_match_when_one_of_their_groups_does() {
    let person = |key: &str| json!({"key": key, "type": "person", "value": "x"});
    let groups = |groups: Value| json!({"filters": {"groups": groups}, "key": "a", "active": "no"});
    let two = groups(json!([
        {"properties": [person("a"), person("b")], "rollout_percentage": 5},
        {"properties": [person("c")], "variant": "none"},
    ]));
    let blast = blast_with(two, Vec::new());
    assert_eq!((blast.actors(), blast.matches_all()), (Actors::Persons, false));
    for (person, reached) in [
        (json!({"a": "x"}), false),
        (json!({"a": "x", "b": "x"}), true),
        (json!({"c": "x"}), true),
        (json!({"a": "x", "b": "x", "c": "x"}), true),
        (json!({}), false),
    ] {
        assert_eq!(
            blast.matches_person("p", &testing::object(person.clone()), &[].into()),
            reached,
            "{person}"
        );
    }
    for body in [
        json!({}),
        json!({"filters": null}),
        json!({"filters": {}}),
        json!({"key": "a", "name": "b"}),
        groups(json!([{}, {"properties": [person("a")]}])),
    ] {
        let blast = blast_with(body.clone(), Vec::new());
        assert_eq!((blast.actors(), blast.matches_all()), (Actors::Persons, true), "{body}");
    }
    let none = blast_with(groups(json!([])), Vec::new());
    assert!(!none.matches_all() && !none.matches_person("p", &Object::new(), &[].into()));
    let group = json!({"aggregation_group_type_index": 0, "groups": [{"properties": [of_group("a", "exact", json!(1))]}]});
    let blast = blast_with(json!({"filters": group}), Vec::new());
    assert_eq!(blast.actors(), Actors::Groups(0));
    assert!(blast.matches_group("g", &testing::object(json!({"a": 1}))));
    // A condition takes precedence over filters.
    let both = json!({"condition": null, "filters": {"groups": []}});
    assert!(blast_with(both, Vec::new()).matches_all());
}

#[test]
fn early_access_decides_before_the_conditions() {
    let body =
        |groups: Value| json!({"key": "beta", "filters": {"groups": groups, "feature_enrollment": true}});
    let property = "$feature_enrollment/beta";
    assert_eq!(parse(body(json!([]))).unwrap().enrollment_property(), Some(property));
    for (value, reached) in [
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
        (json!("yes"), false),
        (json!(1), false),
        (json!(null), false),
    ] {
        for groups in [json!([{}]), json!([])] {
            let blast = blast_with(body(groups), Vec::new());
            let person = testing::object(json!({property: value}));
            assert!(!blast.matches_all());
            assert_eq!(blast.matches_person("p", &person, &[].into()), reached, "{value}");
        }
    }
    // Persons without the property are matched by the conditions; groups have no such property.
    let plan = json!({"properties": [{"key": "plan", "type": "person", "value": "pro"}]});
    let blast = blast_with(body(json!([plan])), Vec::new());
    let pro = testing::object(json!({"plan": "pro", "$feature_enrollment/other": false}));
    assert!(blast.matches_person("p", &pro, &[].into()));
    assert!(!blast.matches_person("p", &Object::new(), &[].into()));
    let on_groups = json!({"group_type_index": 0, "filters": {"groups": [{}], "feature_enrollment": true}, "key": "beta"});
    assert!(blast_with(on_groups, Vec::new()).matches_all());
    let other = json!({"filters": {"groups": [{}], "feature_enrollment": "true"}});
    assert!(blast_with(other, Vec::new()).matches_all());
    for key in [json!(null), json!(""), json!(1)] {
        let detail = "feature_enrollment depends on the key of the flag. Send `key` beside `filters`.";
        let keyless = json!({"key": key, "filters": {"feature_enrollment": true}});
        refuses(keyless, Some("key"), "required", detail);
    }
}

#[test]
fn a_holdout_decides_before_the_conditions() {
    // `holdout-user-1` hashes to 0.178, `holdout-user-2` to 0.928, `holdout-o2` to 0.269, `holdout-o1` to 0.668.
    let body =
        |holdout: Value| json!({"filters": {"groups": [], "holdout": holdout, "holdout_groups": [{}]}});
    for (holdout, first, second) in [
        (json!({"id": 7, "exclusion_percentage": 17.8}), false, false),
        (json!({"id": 7, "exclusion_percentage": 17.9}), true, false),
        (json!({"id": "a", "exclusion_percentage": 100}), true, true),
        (json!({"id": 7, "exclusion_percentage": -5}), false, false),
        (json!({"id": null, "exclusion_percentage": 100}), false, false),
        (json!({"exclusion_percentage": 100}), false, false),
        (json!({"id": 7}), false, false),
        (json!(null), false, false),
    ] {
        let blast = blast_with(body(holdout.clone()), Vec::new());
        assert!(!blast.matches_all());
        for (id, reached) in [("user-1", first), ("user-2", second)] {
            assert_eq!(blast.matches_person(id, &Object::new(), &[].into()), reached, "{holdout} {id}");
        }
    }
    let holdout = json!({"id": 7, "exclusion_percentage": 50});
    let early =
        json!({"key": "beta", "filters": {"groups": [], "holdout": holdout, "feature_enrollment": true}});
    let declined = testing::object(json!({"$feature_enrollment/beta": false}));
    assert!(!blast_with(early, Vec::new()).matches_person("user-1", &declined, &[].into()));
    let on_groups = json!({"group_type_index": 0, "filters": {"groups": [], "holdout": holdout}});
    let blast = blast_with(on_groups, Vec::new());
    assert!(blast.matches_group("o2", &Object::new()) && !blast.matches_group("o1", &Object::new()));
    refuses(
        body(json!([])),
        Some("filters"),
        "invalid_input",
        "holdout must be a dictionary or null, got list",
    );
}

#[test]
fn filters_that_are_refused() {
    let filters = |filters: Value, code: &str, detail: &str| {
        refuses(json!({"filters": filters}), Some("filters"), code, detail);
    };
    let invalid = |sent: Value, detail: &str| filters(sent, "invalid_input", detail);
    filters(json!([]), "not_a_dict", "Expected a dictionary of items but got type \"list\".");
    invalid(json!({"groups": {}}), "groups must be a list, got dict");
    invalid(json!({"groups": [{}, 1]}), "groups[1] must be a dictionary, got int");
    invalid(json!({"groups": [{"properties": "x"}]}), "groups[0].properties must be a list, got str");
    let nameless = json!({"groups": [{}, {"properties": [{"value": 1}]}]});
    invalid(nameless, "groups[1].properties[0].key: a property key is required");
    let odd = json!({"aggregation_group_type_index": "x"});
    invalid(odd, "A valid integer is required.");
    let many = |count: usize| json!({"groups": vec![json!({"properties": []}); count]});
    assert!(parse(json!({"filters": many(limits::CONDITIONS)})).is_ok());
    invalid(many(limits::CONDITIONS + 1), "groups must not have more than 1000 entries");
    let pattern = json!({"properties": [{"key": "a", "type": "person", "operator": "regex", "value": "a"}]});
    let patterns = |count: usize| json!({"groups": vec![pattern.clone(); count]});
    assert!(parse(json!({"filters": patterns(limits::PATTERNS)})).is_ok());
    invalid(patterns(limits::PATTERNS + 1), "filters must not have more than 100 regular expressions");
}

#[test]
fn values_are_compared_by_their_texts() {
    let exact = |value: Value| json!({"key": "age", "type": "person", "value": value, "operator": "exact"});
    for value in [json!([25]), json!(["25"]), json!(25), json!("25")] {
        assert!(
            reaches(exact(value.clone()), json!({"age": 25})) && reaches(exact(value), json!({"age": "25"}))
        );
    }
    assert!(!reaches(exact(json!([25])), json!({"age": 30})) && !reaches(exact(json!([25])), json!({})));
    assert!(reaches(exact(json!([0, 1, 2, 3])), json!({"age": "3"})));
    assert!(!reaches(exact(json!([8888])), json!({"age": "3"})));
    let is_in = |operator: &str| json!({"key": "age", "value": [1, "2"], "operator": operator});
    assert!(reaches(is_in("in"), json!({"age": 2})) && !reaches(is_in("not_in"), json!({"age": 2})));
    assert!(!reaches(is_in("in"), json!({"age": 3})) && reaches(is_in("not_in"), json!({})));
    // Relative dates: now is 5 January 2026.
    let before =
        |value: &str| json!({"key": "d", "type": "person", "value": value, "operator": "is_date_before"});
    assert!(
        reaches(before("-1d"), json!({"d": "2026-01-03"}))
            && !reaches(before("-1d"), json!({"d": "2026-01-05"}))
    );
}

#[test]
fn all_properties_have_to_match() {
    let industry = |values: Value| of_group("industry", "exact", values);
    let body = json!({"group_type_index": 0, "condition": {
        "properties": [industry(json!([0, 1, 2, 3, 4])), industry(json!([2, 3, 4, 5, 6]))],
    }});
    let blast = blast_with(body, Vec::new());
    let reached: Vec<usize> = (0..10)
        .filter(|number| {
            let properties = testing::object(json!({"industry": number.to_string()}));
            blast.matches_group(&format!("org:{number}"), &properties)
        })
        .collect();
    assert_eq!(reached, [2, 3, 4]);
}

#[test]
fn the_key_of_a_group() {
    let reaches = |operator: &str, value: Value, key: &str| {
        let properties = json!([of_group("$group_key", operator, value)]);
        let body = json!({"group_type_index": 0, "condition": {"properties": properties}});
        blast_with(body, Vec::new()).matches_group(key, &Object::new())
    };
    for (operator, value, yes, no) in [
        ("exact", json!("org:1"), "org:1", "org:2"),
        ("exact", json!(["org:1", "org:2"]), "org:2", "org:3"),
        ("is_not", json!("org:1"), "org:2", "org:1"),
        ("in", json!(["org:1", 7]), "7", "org:2"),
        ("not_in", json!(["org:1"]), "org:2", "org:1"),
        ("icontains", json!("ORG"), "org:1", "x"),
        ("not_icontains", json!("org"), "x", "org:1"),
        ("regex", json!("^o"), "org:1", "xo"),
        ("not_regex", json!("^o"), "xo", "org:1"),
    ] {
        assert!(reaches(operator, value.clone(), yes) && !reaches(operator, value, no), "{operator}");
    }
    for operator in
        ["gt", "is_set", "is_date_before", "starts_with", "between", "semver_eq", "icontains_multi"]
    {
        let properties = json!([of_group("$group_key", operator, json!("1"))]);
        let detail = format!(
            "Operator '{operator}' is not supported for $group_key. The operator must be one of exact, is_not, in, not_in, \
             icontains, not_icontains, regex, not_regex."
        );
        let body = json!({"group_type_index": 0, "condition": {"properties": properties}});
        refuses(body, None, "invalid_input", &detail);
    }
    for operator in ["icontains", "not_icontains", "regex", "not_regex"] {
        let properties = json!([of_group("$group_key", operator, json!(["a"]))]);
        let detail = format!("Operator '{operator}' is not supported with a list of values for $group_key.");
        let body = json!({"group_type_index": 0, "condition": {"properties": properties}});
        refuses(body, None, "invalid_input", &detail);
    }
    // A person property of that name has no special meaning.
    let odd = json!({"key": "$group_key", "type": "person", "value": "1", "operator": "gt"});
    assert!(reaches_person(odd, json!({"$group_key": 2})));
}

fn reaches_person(property: Value, person: Value) -> bool {
    reaches(property, person)
}

#[test]
fn cohorts_by_membership_and_by_criteria() {
    let dynamic = |id: i64, values: Value| {
        let criteria = json!({"properties": {"type": "OR", "values": values}});
        FlagCohort::read(&json!({"id": id, "name": "c", "filters": criteria})).unwrap()
    };
    let listed = FlagCohort::read(&json!({"id": 3, "name": "s", "is_static": true})).unwrap();
    let member =
        |id: i64, operator: &str| json!({"key": "id", "type": "cohort", "value": id, "operator": operator});
    let criteria = json!([member(3, "in"), {"key": "age", "type": "person", "value": 25}]);
    let cohorts = vec![dynamic(1, criteria), listed];
    let body = on(json!([member(1, "in")]));
    assert_eq!(parse(body.clone()).unwrap().cohort_ids(), [1].into());
    let blast = blast_with(body, cohorts.clone());
    assert_eq!(*blast.static_cohorts(), [3].into());
    let person = |age: i64| testing::object(json!({"age": age}));
    assert!(
        blast.matches_person("p", &person(25), &[].into())
            && !blast.matches_person("p", &person(26), &[].into())
    );
    assert!(blast.matches_person("p", &person(26), &[3].into()));
    let not_listed = blast_with(on(json!([member(3, "not_in")])), cohorts);
    assert!(
        not_listed.matches_person("p", &person(1), &[].into())
            && !not_listed.matches_person("p", &person(1), &[3].into())
    );
    assert!(!blast_with(on(json!([member(9, "in")])), Vec::new()).matches_person(
        "p",
        &person(1),
        &[9].into()
    ));
}

#[test]
fn bodies_that_are_refused() {
    let general = |body: Value, detail: &str| refuses(body, None, "invalid_input", detail);
    let condition = |properties: Value, detail: &str| {
        refuses(on(properties), Some("condition"), "invalid_input", detail);
    };
    let dictionary = "Expected a dictionary of items but got type \"list\".";
    refuses(json!({"condition": []}), Some("condition"), "not_a_dict", dictionary);
    for (index, code, detail) in [
        (json!("x"), "invalid_input", "A valid integer is required."),
        (json!(1.5), "invalid_input", "A valid integer is required."),
        (json!(-1), "min_value", "Ensure this value is greater than or equal to 0."),
    ] {
        let body = json!({"condition": null, "group_type_index": index});
        refuses(body, Some("group_type_index"), code, detail);
    }
    condition(json!("x"), "condition.properties must be a list, got str");
    condition(json!([1]), "condition.properties[0] must be a dictionary, got int");
    condition(json!([{"value": 1}]), "condition.properties[0].key: a property key is required");
    condition(json!([{"key": "", "value": 1}]), "condition.properties[0].key: a property key is required");
    for operator in [json!("like"), json!(1)] {
        let detail = "condition.properties[0].operator: unsupported operator for feature flags; operator must be one of \
                      exact, is_not, icontains, not_icontains, regex, not_regex, gt, gte, lt, lte, is_set, \
                      is_not_set, is_date_exact, is_date_before, is_date_after, in, not_in, flag_evaluates_to, \
                      between, not_between, starts_with, not_starts_with, ends_with, not_ends_with, \
                      icontains_multi, not_icontains_multi, semver_eq, semver_neq, semver_gt, semver_gte, \
                      semver_lt, semver_lte, semver_tilde, semver_caret, semver_wildcard";
        condition(json!([{"key": "a", "value": 1, "operator": operator}]), detail);
    }
    let index = "Invalid group type index for feature flag condition.";
    let group = |index: Value| json!({"key": "a", "type": "group", "value": 1, "group_type_index": index});
    for (own, body_index) in [
        (json!(null), json!(0)),
        (json!(1), json!(0)),
        (json!(0), json!(null)),
        (json!(null), json!(null)),
        (json!("x"), json!(0)),
    ] {
        let properties = json!([group(own)]);
        general(json!({"condition": {"properties": properties}, "group_type_index": body_index}), index);
    }
    let mixed = json!([group(json!(0)), {"key": "a", "type": "person", "value": 1}]);
    let detail = "Filters are not valid (can only use group properties)";
    general(json!({"condition": {"properties": mixed}, "group_type_index": 0}), detail);
    let flag = json!([{"key": "1", "type": "flag", "value": true, "operator": "flag_evaluates_to"}]);
    general(on(flag), "Flag properties are not supported in a blast radius.");
    let event = json!([{"key": "a", "type": "event", "value": 1}]);
    general(on(event), "Filters are not valid (can only use person, cohort, and flag properties)");
}

#[test]
fn limits_and_one_past() {
    let person = |operator: &str, value: Value| json!({"key": "a", "type": "person", "operator": operator, "value": value});
    let all = |count: usize, property: &Value| on(json!(vec![property.clone(); count]));
    let plain = person("exact", json!("x"));
    assert!(parse(all(limits::PROPERTIES, &plain)).is_ok());
    let detail = "condition.properties must not have more than 200 entries";
    refuses(all(limits::PROPERTIES + 1, &plain), Some("condition"), "invalid_input", detail);
    let values = |count: usize| on(json!([person("exact", json!(vec![1; count]))]));
    assert!(parse(values(limits::VALUES)).is_ok());
    let detail = "Property group expressions of type a cannot contain more than 1000 values.";
    refuses(values(limits::VALUES + 1), Some("condition"), "invalid_input", detail);
    let filters = json!({"key": "filters", "type": "person", "value": vec![1; limits::VALUES + 1]});
    let detail = "Property group expressions of type filters cannot contain more than 1000 values.";
    refuses(on(json!([filters])), Some("condition"), "invalid_input", detail);
    let pattern = |length: usize| on(json!([person("regex", json!("a".repeat(length)))]));
    assert!(parse(pattern(limits::PATTERN_BYTES)).is_ok());
    let detail = "a pattern must not be longer than 4096 bytes";
    refuses(pattern(limits::PATTERN_BYTES + 1), Some("condition"), "invalid_input", detail);
    assert!(parse(all(limits::PATTERNS, &person("regex", json!("a")))).is_ok());
    let detail = "condition must not have more than 100 regular expressions";
    refuses(
        all(limits::PATTERNS + 1, &person("not_regex", json!("a"))),
        Some("condition"),
        "invalid_input",
        detail,
    );
    let two = person("regex", json!(vec!["a"; limits::PATTERNS + 1]));
    refuses(on(json!([two])), Some("condition"), "invalid_input", detail);
    let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
    // Four levels are around the value of a property.
    assert!(parse(on(json!([person("exact", nested(limits::NESTING - 3))]))).is_ok());
    let detail = "condition must not be nested deeper than 32 levels";
    refuses(
        on(json!([person("exact", nested(limits::NESTING - 2))])),
        Some("condition"),
        "invalid_input",
        detail,
    );
    let text = |bytes: usize| on(json!([person("exact", json!("x".repeat(bytes)))]));
    assert!(parse(text(limits::FILTERS_BYTES - 200)).is_ok());
    let detail = "condition must not be larger than 256 KiB as JSON";
    refuses(text(limits::FILTERS_BYTES), Some("condition"), "invalid_input", detail);
}
