//! Cohort conditions spelled out as conditions on properties, row by row.

use std::collections::BTreeSet;

use chrono_tz::Tz;

use super::*;
use crate::evaluate::{Evaluator, Subject};
use crate::limits;

/// The conditions of a flag after flattening.
fn flattened(conditions: Value, cohorts: Vec<FlagCohort>) -> Value {
    let flag = flag(1, "a", json!({"groups": conditions}));
    let document = text(&[flag], cohorts, &[], CohortForm::Flattened);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["cohorts"], json!({}));
    document["flags"][0]["filters"]["groups"].clone()
}

/// The flattened condition of a single cohort with these criteria: lists of properties; `None` when it is unchanged.
#[track_caller]
fn becomes(criteria: Value, expected: Option<Value>) {
    let condition = json!({"properties": [in_cohort(1)], "rollout_percentage": 20});
    let got = flattened(json!([condition]), vec![cohort(1, criteria.clone())]);
    let expected = match expected {
        None => json!([condition]),
        Some(lists) => {
            let lists = lists.as_array().unwrap().iter();
            lists.map(|properties| json!({"properties": properties, "rollout_percentage": 20})).collect()
        }
    };
    assert_eq!(got, expected, "{criteria}");
}

fn any(values: Value) -> Value {
    json!({"type": "OR", "values": values})
}

fn all(values: Value) -> Value {
    json!({"type": "AND", "values": values})
}

#[test]
fn shapes_of_cohorts() {
    let [a, b, c] = ["a", "b", "c"].map(|key| person(key, "x"));
    becomes(any(json!([a])), Some(json!([[a]])));
    becomes(all(json!([any(json!([all(json!([a]))]))])), Some(json!([[a]])));
    becomes(all(json!([a, b])), Some(json!([[a, b]])));
    becomes(any(json!([all(json!([a, b]))])), Some(json!([[a, b]])));
    becomes(any(json!([a, b])), Some(json!([[a], [b]])));
    becomes(all(json!([any(json!([a, b]))])), Some(json!([[a], [b]])));
    becomes(any(json!([all(json!([a, b])), c])), Some(json!([[a, b], [c]])));
    becomes(any(json!([all(json!([a, b])), any(json!([c]))])), Some(json!([[a, b], [c]])));
    becomes(all(json!([all(json!([a])), b])), Some(json!([[a, b]])));
    becomes(all(json!([any(json!([a, b])), c])), None);
    becomes(all(json!([all(json!([a, b])), c])), None);
    becomes(any(json!([any(json!([a, b])), c])), None);
    becomes(any(json!([all(json!([any(json!([a, b])), c])), b])), None);
}

#[test]
fn properties_are_reduced_to_what_a_condition_needs() {
    let full = json!({
        "value": "@x.io", "bytecode": [1], "type": "person", "negation": false, "operator": "icontains",
        "key": "email", "conditionHash": "1",
    });
    let plain = json!({"key": "email", "type": "person", "value": "@x.io", "operator": "icontains"});
    let got = flattened(json!([{"properties": [in_cohort(1)]}]), vec![cohort(1, any(json!([full])))]);
    assert_eq!(got.to_string(), json!([{"properties": [plain], "rollout_percentage": null}]).to_string());
}

#[test]
fn expanded_conditions_follow_the_others() {
    let [a, b] = ["a", "b"].map(|key| person(key, "x"));
    let kept = |rollout: u8| json!({"properties": [person("k", "y")], "rollout_percentage": rollout});
    let by_cohort = |rollout: u8| json!({"properties": [in_cohort(1)], "rollout_percentage": rollout});
    let one =
        |property: &Value, rollout: u8| json!({"properties": [property], "rollout_percentage": rollout});
    let got = flattened(
        json!([by_cohort(10), kept(20), by_cohort(30), kept(40)]),
        vec![cohort(1, any(json!([a, b])))],
    );
    let expected = json!([kept(20), kept(40), one(&a, 10), one(&b, 10), one(&a, 30), one(&b, 30)]);
    assert_eq!(got, expected);
}

#[test]
fn conditions_that_stay() {
    let simple = || cohort(1, any(json!([person("a", "x")])));
    let lone = || json!([{"properties": [in_cohort(1)]}]);
    let with = |extra: Value| {
        let mut property = in_cohort(1);
        property.as_object_mut().unwrap().extend(testing::object(extra));
        json!([{"properties": [property]}])
    };
    let negated = json!({"key": "a", "type": "person", "value": "x", "negation": true});
    let event = json!({"key": "$pageview", "type": "behavioral", "value": "performed_event"});
    let mut of_others = simple();
    of_others.filters["properties"]["values"] = json!([in_cohort(2)]);
    for (conditions, cohorts) in [
        // A variant anywhere; not the only property; two cohorts, or one inside of another.
        (json!([{"properties": [in_cohort(1)], "variant": "v"}]), vec![simple()]),
        (json!([{"properties": [in_cohort(1)]}, {"properties": [], "variant": "v"}]), vec![simple()]),
        (json!([{"properties": [in_cohort(1), person("b", "x")]}]), vec![simple()]),
        (
            json!([{"properties": [in_cohort(1)]}, {"properties": [person("b", "x"), in_cohort(1)]}]),
            vec![simple()],
        ),
        (json!([{"properties": [in_cohort(1)]}, {"properties": [in_cohort(2)]}]), vec![simple()]),
        (lone(), vec![of_others, cohort(2, any(json!([person("a", "x")])))]),
        // Negations.
        (with(json!({"operator": "not_in"})), vec![simple()]),
        (with(json!({"negation": true})), vec![simple()]),
        (lone(), vec![cohort(1, any(json!([person("b", "x"), negated])))]),
        // Unknown, static, without criteria, with other criteria.
        (lone(), Vec::new()),
        (lone(), vec![FlagCohort { deleted: true, ..simple() }]),
        (lone(), vec![FlagCohort { is_static: true, ..simple() }]),
        (lone(), vec![cohort(1, any(json!([])))]),
        (lone(), vec![cohort(1, any(json!([person("b", "x"), event])))]),
    ] {
        assert_eq!(flattened(conditions.clone(), cohorts), conditions);
    }
    for list in ["super_groups", "holdout_groups"] {
        let filters =
            json!({"groups": [{"properties": [in_cohort(1)]}], list: [{"properties": [in_cohort(1)]}]});
        let flags = [flag(1, "a", filters.clone())];
        let document: Value =
            serde_json::from_str(&text(&flags, vec![simple()], &[], CohortForm::Flattened)).unwrap();
        assert_eq!(document["flags"][0]["filters"], filters);
    }
}

#[test]
fn a_flag_does_not_grow_beyond_the_conditions_that_one_may_have() {
    let cohort_of = |count: usize| {
        let values: Vec<Value> = (0..count).map(|number| person(&format!("k{number}"), "x")).collect();
        vec![cohort(1, any(json!(values)))]
    };
    let conditions = json!([{"properties": []}, {"properties": [in_cohort(1)]}]);
    let count = |of: usize| flattened(conditions.clone(), cohort_of(of)).as_array().unwrap().len();
    assert_eq!(count(limits::CONDITIONS - 2), limits::CONDITIONS - 1);
    assert_eq!(count(limits::CONDITIONS - 1), 2);
}

#[test]
fn the_same_persons_match() {
    let [a, b, c] = ["a", "b", "c"].map(|key| person(key, "x"));
    for criteria in [
        all(json!([a, b])),
        any(json!([a, b])),
        any(json!([all(json!([a, b])), c])),
        any(json!([all(json!([any(json!([a])), b])), all(json!([b, c]))])),
    ] {
        let known = vec![cohort(1, criteria.clone())];
        let before =
            flag(1, "a", json!({"groups": [{"properties": [in_cohort(1)], "rollout_percentage": 100}]}));
        let conditions = flattened(before.filters["groups"].clone(), known.clone());
        assert_ne!(conditions, before.filters["groups"]);
        let after = flag(1, "a", json!({"groups": conditions}));
        for bits in 0..8 {
            let properties: Object = ["a", "b", "c"]
                .iter()
                .enumerate()
                .filter(|(place, _)| bits >> place & 1 == 1)
                .map(|(_, key)| ((*key).to_owned(), json!("x")))
                .collect();
            let nowhere = BTreeSet::new();
            let subject = Subject::person("u", &properties, &nowhere, testing::now());
            let value = |flag: &Flag| {
                Evaluator::new([flag], known.clone(), Tz::UTC).evaluate(1, &subject).unwrap().value
            };
            assert_eq!(value(&before), value(&after), "{criteria} for {properties:?}");
        }
    }
}
