//! Property tests of evaluation: any stored JSON evaluates to something, and every way to request it gives the same
//! result.
//!
//! Must stay true: no stored filters, cohorts or properties make an evaluation panic; the order in which flags are
//! given and requested does not matter; a larger rollout contains every id of a smaller one.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use chrono_tz::Tz;
use pennon_filters::body::json::Object;
use pennon_filters::operator::{FilterSide, Operator};
use pennon_filters::semver::Version;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    Evaluation, Evaluator, FlagCohort, GroupSubject, SlowSearches, Subject,
    compiler::FlagCompiler,
    date_bound::EvaluationClock,
    predicate::{ComparableValue, PropertyPredicate},
};
use crate::flag::Flag;
use crate::testing::random_json::{self, word};
use crate::{blast_radius, definitions, testing};

fn any_json() -> impl Strategy<Value = Value> {
    random_json::any_json(any::<f64>())
}

/// Properties of the right shape, about flags 1 to 4, cohorts 1 to 4 and persons with the keys of [`random_json::WORDS`].
fn property() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["person", "cohort", "flag", "group", "event"]);
    let operator = prop::sample::select(Operator::available_to(FilterSide::Flags));
    (kind, operator, word(), any_json(), 1..5_i64, any::<bool>()).prop_map(
        |(kind, operator, key, value, id, negation)| match kind {
            "flag" => json!({"key": id.to_string(), "type": kind, "value": negation}),
            "cohort" => json!({"key": "id", "type": kind, "value": id, "negation": negation}),
            _ => {
                json!({"key": key, "type": kind, "value": value, "operator": operator.name(), "group_type_index": 0})
            }
        },
    )
}

fn condition() -> impl Strategy<Value = Value> {
    (prop::collection::vec(property(), 0..3), prop::option::of(0..101_u8), any_json()).prop_map(
        |(properties, rollout, variant)| {
            json!({"properties": properties, "rollout_percentage": rollout, "variant": variant})
        },
    )
}

fn filters() -> impl Strategy<Value = Object> {
    let conditions = (
        prop::collection::vec(condition(), 0..3),
        prop::option::of(condition()),
        prop::option::weighted(0.2, condition()),
    );
    let filters = conditions.prop_map(|(groups, early, holdout)| {
        json!({
            "groups": groups, "super_groups": early.into_iter().collect::<Vec<_>>(),
            "holdout_groups": holdout.into_iter().collect::<Vec<_>>(),
            "multivariate": {"variants": [
                {"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50},
            ]},
        })
    });
    random_json::with_random_fields(filters, any_json(), 1).prop_map(testing::object)
}

fn cohort_of(id: i64, criteria: Value) -> FlagCohort {
    let stored = json!({"id": id, "name": "c", "is_static": id == 4, "filters": {"properties": criteria}});
    FlagCohort::read(&stored).unwrap()
}

fn criteria() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![property(), any_json()];
    leaf.prop_recursive(3, 10, 3, |inner| {
        (prop::collection::vec(inner, 0..4), any::<bool>())
            .prop_map(|(values, any)| json!({"type": if any { "OR" } else { "AND" }, "values": values}))
    })
}

fn flag(id: i64, filters: Object) -> Flag {
    Flag { id, key: format!("flag-{id}"), filters, ..testing::flag() }
}

fn person() -> impl Strategy<Value = Object> {
    prop::collection::vec((word(), any_json()), 0..8).prop_map(Map::from_iter)
}

fn with_subject<T>(properties: &Object, distinct_id: &str, then: impl FnOnce(&Subject<'_>) -> T) -> T {
    let static_cohorts = BTreeSet::from([4]);
    let groups = BTreeMap::from([(0, GroupSubject { key: "org:1", properties })]);
    then(&Subject::person(distinct_id, properties, &static_cohorts, testing::now()).with_groups(groups))
}

proptest! {
    #[test]
    fn any_filters_evaluate_the_same_in_every_way(
        filters in prop::collection::vec(prop_oneof![3 => filters(), 1 => any_json().prop_map(|json| {
            json.as_object().cloned().unwrap_or_default()
        })], 1..5),
        cohorts in prop::collection::vec(criteria(), 0..5),
        person in person(),
        turn in 0..4_usize,
    ) {
        let mut flags: Vec<Flag> = (1..).zip(filters).map(|(id, filters)| flag(id, filters)).collect();
        let mut cohorts: Vec<FlagCohort> =
            (1..).zip(cohorts).map(|(id, criteria)| cohort_of(id, criteria)).collect();
        let evaluate = |flags: &[Flag], cohorts: &[FlagCohort]| -> BTreeMap<i64, Evaluation> {
            let evaluator = Evaluator::new(flags, cohorts.to_vec(), Tz::UTC);
            with_subject(&person, "person", |subject| {
                let all = evaluator.evaluate_all(subject);
                for flag in flags {
                    assert_eq!(evaluator.evaluate(flag.id, subject).as_ref(), all.get(&flag.id));
                }
                all
            })
        };
        let first = evaluate(&flags, &cohorts);
        prop_assert_eq!(first.len(), flags.len());
        let count = flags.len();
        flags.rotate_left(turn % count);
        cohorts.reverse();
        prop_assert_eq!(first, evaluate(&flags, &cohorts));

        let cohorts: BTreeMap<i64, FlagCohort> =
            cohorts.into_iter().map(|cohort| (cohort.id, cohort)).collect();
        let definitions = definitions::FlagDefinitions::new(1, &flags);
        for form in [definitions::CohortForm::Sent, definitions::CohortForm::Flattened] {
            let text = definitions.document(&cohorts, &[], form, 1 << 20).unwrap();
            let document: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(document["flags"].as_array().map(Vec::len), Some(count));
        }
    }

    #[test]
    fn any_condition_of_a_request_is_rejected_or_evaluated(condition in any_json(), properties in prop::collection::vec(property(), 0..3), person in person(), index in any_json()) {
        for body in [
            json!({"condition": condition, "group_type_index": index}),
            json!({"condition": {"properties": properties}}),
            json!({"condition": {"properties": properties}, "group_type_index": 0}),
        ] {
            let Ok(condition) = blast_radius::Conditions::parse(&testing::object(body)) else { continue };
            let radius = condition.compile([cohort_of(1, json!(null))], Tz::UTC, testing::now());
            radius.matches_person("p", &person, &BTreeSet::new());
            radius.matches_group("org:1", &person);
        }
    }

    #[test]
    fn a_larger_rollout_admits_all_of_a_smaller_one(
        key in "[a-z0-9_-]{1,12}", id in ".{0,12}", small in 0.0..=100.0_f64, large in 0.0..=100.0_f64,
    ) {
        let (small, large) = if small <= large { (small, large) } else { (large, small) };
        let no_properties = Object::new();
        let admits = |percentage: f64| {
            let filters = json!({"groups": [{"rollout_percentage": percentage}]});
            let flag = Flag { key: key.clone(), ..flag(1, testing::object(filters)) };
            let evaluator = Evaluator::new([&flag], [], Tz::UTC);
            with_subject(&no_properties, &id, |subject| evaluator.evaluate(1, subject).unwrap().value.is_on())
        };
        prop_assert!(!admits(small) || admits(large));
        prop_assert!(admits(100.0));
    }

    #[test]
    fn any_text_is_read_as_a_version_a_date_or_neither(
        text in prop_oneof![
            ".{0,24}", "[v0-9.*x+-]{0,16}", "[0-9]{1,24}\\.[0-9]{1,24}(-[a-z0-9.]{0,9})?", "-?[0-9]{0,6}[hdwmy]?",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.+Z-]{0,16}", "[-+0-9.eE]{0,24}",
        ],
        other in "[v0-9.*x+-]{0,12}",
        zone in prop::sample::select(vec![Tz::UTC, Tz::America__Sao_Paulo, Tz::Asia__Kathmandu]),
    ) {
        Version::parse(&text);
        let clock = EvaluationClock { zone, now: testing::now() };
        if let Some(instant) = clock.parse_property(ComparableValue::Text(&text)) {
            let text = chrono::DateTime::from_timestamp_micros(instant).unwrap().to_rfc3339();
            prop_assert_eq!(clock.parse(&text), Some(instant));
        }
        let compiler = FlagCompiler::new(zone);
        for operator in Operator::available_to(FilterSide::Flags) {
            for value in [json!(text), json!([text, other])] {
                let Some(predicate) = PropertyPredicate::new(*operator, Some(&value), &compiler) else { continue };
                predicate.holds(None, testing::now(), SlowSearches::Allowed);
                predicate.holds(Some(ComparableValue::Text(&other)), testing::now(), SlowSearches::Allowed);
                predicate.holds(Some(ComparableValue::Text(&text)), testing::now(), SlowSearches::Allowed);
            }
        }
    }

    #[test]
    fn versions_have_one_order(texts in prop::collection::vec("[0-3]\\.[0-3](\\.[0-3](-[a1]{1,2}(\\.[a1])?)?)?", 3)) {
        let compiler = FlagCompiler::new(Tz::UTC);
        let is = |left: &str, operator: Operator, right: &str| {
            let predicate = PropertyPredicate::new(operator, Some(&json!(right)), &compiler).unwrap();
            predicate.holds(Some(ComparableValue::Text(left)), testing::now(), SlowSearches::Allowed) == Some(true)
        };
        let (a, b, c) = (&texts[0], &texts[1], &texts[2]);
        let (less, equal, greater) = (Operator::SemverLt, Operator::SemverEq, Operator::SemverGt);
        let outcomes = [less, equal, greater].map(|operator| is(a, operator, b));
        prop_assert_eq!(outcomes.iter().filter(|outcome| **outcome).count(), 1);
        prop_assert_eq!(is(a, less, b), is(b, greater, a));
        let at_most = Operator::SemverLte;
        prop_assert!(!(is(a, at_most, b) && is(b, at_most, c)) || is(a, at_most, c));
    }
}
