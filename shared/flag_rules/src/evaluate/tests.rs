//! The order of decisions, on flags made for it.
#![allow(clippy::unwrap_used)]

use chrono_tz::Tz;
use pennon_filters::body::json::Object;
use serde_json::{Value, json};

use super::*;
use crate::testing;

mod bulk;
mod cohorts;
mod dependencies;
mod newer_forms;

/// A flag as stored, whatever its filters.
fn flag(id: i64, key: &str, filters: Value) -> Flag {
    Flag { id, key: key.to_owned(), filters: testing::object(filters), ..testing::flag() }
}

/// The data for evaluation. Each test changes the part that it tests.
struct World {
    flags: Vec<Flag>,
    cohorts: Vec<FlagCohort>,
    properties: Value,
    groups: Vec<(u32, &'static str, Value)>,
    members_of: BTreeSet<i64>,
}

fn world(flags: Vec<Flag>) -> World {
    World {
        flags,
        cohorts: Vec::new(),
        properties: json!({}),
        groups: Vec::new(),
        members_of: BTreeSet::new(),
    }
}

impl World {
    fn evaluator(&self) -> Evaluator {
        Evaluator::new(&self.flags, self.cohorts.clone(), Tz::UTC)
    }

    /// The values for a person, which must be the same one by one and all at once.
    fn evaluate(&self, distinct_id: &str) -> BTreeMap<i64, Evaluation> {
        let properties = testing::object(self.properties.clone());
        let of_groups: Vec<Object> =
            self.groups.iter().map(|(_, _, properties)| testing::object(properties.clone())).collect();
        let groups = self
            .groups
            .iter()
            .zip(&of_groups)
            .map(|((index, key, _), properties)| (*index, GroupSubject { key, properties }));
        let subject = Subject::person(distinct_id, &properties, &self.members_of, testing::now())
            .with_groups(groups.collect());
        let evaluator = self.evaluator();
        let all = evaluator.evaluate_all(&subject);
        for (id, evaluation) in &all {
            assert_eq!(evaluator.evaluate(*id, &subject).as_ref(), Some(evaluation), "flag {id} alone");
        }
        all
    }

    #[track_caller]
    fn expect(&self, distinct_id: &str, id: i64, value: Value, reason: &str, index: Option<usize>) {
        let all = self.evaluate(distinct_id);
        let evaluation = &all[&id];
        let got = (evaluation.value.to_json(), evaluation.reason.as_str(), evaluation.condition_index);
        assert_eq!(got, (value, reason, index), "flag {id} for {distinct_id}");
    }
}

/// Conditions of flags with the key `simple-flag`; its hashes are 0.737 for `user-1` and 0.196 for `user-2`.
fn simple(filters: Value) -> World {
    world(vec![flag(1, "simple-flag", filters)])
}

fn person(key: &str, value: Value) -> Value {
    json!({"key": key, "type": "person", "value": value})
}

const HALF: &str = "out_of_rollout_bound";
const NONE: &str = "no_condition_match";
const MATCH: &str = "condition_match";

#[test]
fn rollout_of_one_condition() {
    for (rollout, first, second) in [
        (json!(50), false, true),
        (json!(19), false, false),
        (json!(73.8), true, true),
        (json!(73.7), false, true),
        (json!(100), true, true),
        (json!(null), true, true),
        (json!(0), false, false),
    ] {
        let world = simple(json!({"groups": [{"properties": [], "rollout_percentage": rollout}]}));
        for (id, on) in [("user-1", first), ("user-2", second)] {
            world.expect(id, 1, json!(on), if on { MATCH } else { HALF }, Some(0));
        }
    }
    simple(json!({"groups": [{}]})).expect("user-1", 1, json!(true), MATCH, Some(0));
}

#[test]
fn filters_without_conditions() {
    // Never sent: the default condition matches everyone. An empty list of conditions matches no one.
    simple(json!({})).expect("user-1", 1, json!(true), MATCH, Some(0));
    simple(json!({"groups": []})).expect("user-1", 1, json!(false), NONE, Some(0));
    simple(json!({"payloads": {}})).expect("user-1", 1, json!(false), NONE, Some(0));
}

#[test]
fn a_disabled_flag_is_off_before_anything_else() {
    let mut world = simple(json!({"groups": [{}], "aggregation_group_type_index": 0}));
    world.flags[0].active = false;
    world.expect("user-1", 1, json!(false), "disabled", None);
}

#[test]
fn a_deleted_flag_is_not_evaluated() {
    let mut world = simple(json!({"groups": [{}]}));
    world.flags[0].deleted = true;
    assert!(world.evaluate("user-1").is_empty());
    assert!(world.evaluator().plan(1).is_none() && world.evaluator().plan(2).is_none());
}

#[test]
fn the_first_match_in_the_listed_order_wins() {
    let mut world = simple(json!({
        "groups": [
            {"properties": [person("plan", json!("pro"))], "rollout_percentage": 50},
            {"properties": [person("plan", json!("pro"))], "rollout_percentage": 60, "variant": "b"},
            {"properties": [], "rollout_percentage": 100, "variant": "a"},
        ],
        "multivariate": {"variants": [
            {"key": "a", "rollout_percentage": 33}, {"key": "b", "rollout_percentage": 33},
            {"key": "c", "rollout_percentage": 34},
        ]},
    }));
    world.expect("user-1", 1, json!("a"), MATCH, Some(2));
    world.properties = json!({"plan": "pro"});
    // The variant hash of user-2 is 0.057, which is in a; the condition has no variant.
    world.expect("user-2", 1, json!("a"), MATCH, Some(0));
    world.expect("user-1", 1, json!("a"), MATCH, Some(2));
}

#[test]
fn the_variant_of_a_match() {
    let variants = json!({"variants": [
        {"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50},
    ]});
    let with = |variant: Value, variants: &Value| {
        simple(json!({"groups": [{"variant": variant}], "multivariate": variants}))
    };
    // The hashes of the variants are 0.421 for user-1 and 0.569 for user-3.
    with(json!(null), &variants).expect("user-1", 1, json!("control"), MATCH, Some(0));
    with(json!(null), &variants).expect("user-3", 1, json!("test"), MATCH, Some(0));
    with(json!("test"), &variants).expect("user-1", 1, json!("test"), MATCH, Some(0));
    with(json!(""), &variants).expect("user-1", 1, json!("control"), MATCH, Some(0));
    // A variant that does not exist is ignored.
    with(json!("Test"), &variants).expect("user-1", 1, json!("control"), MATCH, Some(0));
    with(json!("test"), &json!(null)).expect("user-1", 1, json!(true), MATCH, Some(0));
    with(json!(null), &json!({"variants": []})).expect("user-1", 1, json!(true), MATCH, Some(0));
    let few = json!({"variants": [{"key": "control", "rollout_percentage": 40}]});
    with(json!(null), &few).expect("user-1", 1, json!(true), MATCH, Some(0));
}

#[test]
fn the_most_specific_reason_wins() {
    let (no, out) = (
        json!({"properties": [person("plan", json!("pro"))], "rollout_percentage": 100}),
        json!({"properties": [], "rollout_percentage": 0}),
    );
    for (groups, reason, index) in [
        ([&no, &out, &no], HALF, 1),
        ([&no, &no, &no], NONE, 2),
        ([&out, &no, &out], HALF, 2),
        ([&out, &out, &no], HALF, 1),
    ] {
        simple(json!({"groups": groups})).expect("user-1", 1, json!(false), reason, Some(index));
    }
}

#[test]
fn early_exit_stops_at_a_condition_that_matches_but_for_the_rollout() {
    let groups = json!([
        {"properties": [person("plan", json!("pro"))]}, {"rollout_percentage": 50}, {"rollout_percentage": 100},
    ]);
    let with = |early_exit: Value| simple(json!({"groups": groups, "early_exit": early_exit}));
    with(json!(true)).expect("user-1", 1, json!(false), HALF, Some(1));
    with(json!(true)).expect("user-2", 1, json!(true), MATCH, Some(1));
    for off in [json!(false), json!(null)] {
        with(off).expect("user-1", 1, json!(true), MATCH, Some(2));
    }
}

#[test]
fn all_properties_of_a_condition_have_to_match() {
    let properties = json!([person("plan", json!(["pro", "team"])), person("age", json!("30"))]);
    let mut world = simple(json!({"groups": [{"properties": properties}]}));
    for (person, on) in [
        (json!({"plan": "Team", "age": 30}), true),
        (json!({"plan": "Team", "age": 31}), false),
        (json!({"age": 30}), false),
        (json!({}), false),
    ] {
        world.properties = person;
        world.expect("user-1", 1, json!(on), if on { MATCH } else { NONE }, Some(0));
    }
}

#[test]
fn properties_that_cannot_be_compared_do_not_match() {
    for property in [
        json!({"key": "a", "type": "event", "value": "x", "operator": "is_not"}),
        json!({"key": "a", "type": "person", "operator": "is_not"}),
        json!({"type": "person", "value": "x", "operator": "is_not"}),
        json!({"key": "a", "type": "person", "value": "(", "operator": "not_regex"}),
        json!({"key": "a", "type": "group", "value": "x", "operator": "is_not"}),
        json!({"key": "id", "type": "cohort", "value": 1, "operator": "is_not"}),
        json!({"key": "1", "type": "flag", "value": 3, "operator": "flag_evaluates_to"}),
        json!("a"),
        json!(null),
    ] {
        let world = simple(json!({"groups": [{"properties": [property]}]}));
        assert_eq!(world.evaluate("user-1")[&1].value, FlagValue::Off, "{property}");
    }
}

fn of_group(key: &str, value: Value, operator: &str, index: Value) -> Value {
    json!({"key": key, "type": "group", "value": value, "operator": operator, "group_type_index": index})
}

#[test]
fn a_flag_on_groups() {
    let conditions = json!([{"properties": [], "rollout_percentage": 80}]);
    let mut world = world(vec![flag(
        1,
        "beta-feature",
        json!({"groups": conditions, "aggregation_group_type_index": 1}),
    )]);
    world.expect("org:1", 1, json!(false), "no_group_type", None);
    world.groups = vec![(0, "org:1", json!({}))];
    world.expect("org:1", 1, json!(false), "no_group_type", None);
    // The hashes of this flag are 0.7955 for org:1, 0.142 for org:3 and 0.726 for user-1.
    world.groups.push((1, "org:1", json!({})));
    world.expect("user-1", 1, json!(true), MATCH, Some(0));
    world.flags[0].filters["groups"][0]["rollout_percentage"] = json!(79);
    world.expect("user-1", 1, json!(false), HALF, Some(0));
    for nowhere in [json!(-1), json!(5_000_000_000_u64), json!("1"), json!(1.5)] {
        world.flags[0].filters["aggregation_group_type_index"] = nowhere;
        world.expect("user-1", 1, json!(false), "no_group_type", None);
    }
}

#[test]
fn properties_of_groups() {
    let mut world = world(vec![flag(1, "g", json!({"aggregation_group_type_index": 0, "groups": [{}]}))]);
    world.groups = vec![(0, "org:1", json!({"size": 10, "plan": "pro"})), (2, "p", json!({"size": 3}))];
    world.properties = json!({"size": 1});
    for (property, on) in [
        (of_group("size", json!("9"), "gt", json!(0)), true),
        (of_group("size", json!("9"), "gt", json!(null)), true),
        (of_group("size", json!("9"), "gt", json!(2)), false),
        (of_group("size", json!(3), "exact", json!(2)), true),
        // A group that the request does not name has no properties.
        (of_group("size", json!(3), "exact", json!(1)), false),
        (of_group("size", json!(3), "is_not", json!(1)), true),
        (of_group("$group_key", json!("ORG:1"), "exact", json!(0)), true),
        (of_group("$group_key", json!(["org:2"]), "is_not", json!(0)), true),
        (of_group("$group_key", json!("^org"), "regex", json!(0)), true),
        (of_group("$group_key", json!("org"), "icontains", json!(2)), false),
        (person("size", json!(1)), true),
    ] {
        world.flags[0].filters["groups"][0]["properties"] = json!([property]);
        assert_eq!(world.evaluate("u")[&1].value, on.into(), "{property}");
    }
}

#[test]
fn early_access_decides_for_persons_who_enrolled_or_declined() {
    let key = "$feature_enrollment/simple-flag";
    let enrolled = json!({"key": key, "type": "person", "value": ["true"], "operator": "exact"});
    let other = person("invited", json!("yes"));
    let mut world = simple(json!({
        "groups": [{"rollout_percentage": 50}],
        "super_groups": [{"properties": [enrolled, other], "rollout_percentage": 0}, {"properties": []}],
        "multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]},
        "holdout_groups": [{"rollout_percentage": 100}],
    }));
    world.properties = json!({key: "true", "invited": "yes"});
    world.expect("user-1", 1, json!(true), "super_condition_value", Some(0));
    // One of the keys is enough for a decision.
    for properties in [json!({key: "false"}), json!({key: true}), json!({"invited": null})] {
        world.properties = properties;
        world.expect("user-2", 1, json!(false), "super_condition_value", Some(0));
    }
    world.properties = json!({"other": "true"});
    world.expect("user-2", 1, json!("holdout"), "holdout_condition_value", None);
    world.flags[0].filters["holdout_groups"] = json!(null);
    world.expect("user-2", 1, json!("a"), MATCH, Some(0));
    for nothing in [json!([]), json!(null), json!([{"properties": []}])] {
        world.flags[0].filters["super_groups"] = nothing;
        world.expect("user-1", 1, json!(false), HALF, Some(0));
    }
}

#[test]
fn holdouts() {
    // The hashes of holdouts are 0.178 for user-1 and 0.928 for user-2.
    let with = |holdout: Value| simple(json!({"groups": [{}], "holdout_groups": [holdout]}));
    let named = with(json!({"properties": [], "rollout_percentage": 18, "variant": "holdout-7"}));
    named.expect("user-1", 1, json!("holdout-7"), "holdout_condition_value", None);
    named.expect("user-2", 1, json!(true), MATCH, Some(0));
    let unnamed = with(json!({"rollout_percentage": 18}));
    unnamed.expect("user-1", 1, json!("holdout"), "holdout_condition_value", None);
    with(json!({"rollout_percentage": 17})).expect("user-1", 1, json!(true), MATCH, Some(0));
    // Without a percentage all are held out.
    with(json!({"properties": []})).expect("user-2", 1, json!("holdout"), "holdout_condition_value", None);
    // For a flag on groups, the group is held out.
    let mut world = with(json!({"rollout_percentage": 18}));
    world.flags[0].filters.insert("aggregation_group_type_index".to_owned(), json!(0));
    world.groups = vec![(0, "user-1", json!({}))];
    world.expect("user-2", 1, json!("holdout"), "holdout_condition_value", None);
}

#[test]
fn the_examples_of_the_contract() {
    let property = |key: &str, value: Value, operator: &str| json!({"key": key, "value": value, "operator": operator, "type": "person"});
    let cases = [
        (property("email", json!("@posthog.com"), "icontains"), json!({"email": "Ann@PostHog.com"}), true),
        (json!({"key": "plan", "value": ["pro", "team"], "type": "person"}), json!({"plan": "Team"}), true),
        (property("age", json!("30"), "gt"), json!({"age": 31}), true),
        (property("age", json!("30"), "gt"), json!({"age": "31"}), true),
        (property("age", json!("30"), "gt"), json!({"age": "old"}), false),
        (property("x", json!("a"), "is_not"), json!({}), true),
        (json!({"key": "beta", "value": ["true"], "type": "person"}), json!({"beta": true}), true),
        (json!({"key": "beta", "value": ["true"], "type": "person"}), json!({"beta": "TRUE"}), true),
        (json!({"key": "beta", "value": ["true"], "type": "person"}), json!({"beta": "yes"}), false),
        (property("v", json!(r"^1\.[0-9]+$"), "regex"), json!({"v": "1.12"}), true),
        (property("v", json!(r"^1\.[0-9]+$"), "regex"), json!({"v": "11.1"}), false),
        (property("d", json!("2022-05-01"), "is_date_before"), json!({"d": "2022-03-01"}), true),
        (property("d", json!("2022-05-01"), "is_date_before"), json!({"d": "2022-05-30"}), false),
        // Now is 5 January 2026, ten o'clock.
        (property("d", json!("-6h"), "is_date_before"), json!({"d": "2026-01-03T10:00:00Z"}), true),
        (property("d", json!("-6h"), "is_date_before"), json!({"d": "2026-01-05T10:00:00Z"}), false),
    ];
    for (property, properties, expected) in cases {
        let mut world = simple(json!({"groups": [{"properties": [property]}]}));
        world.properties = properties;
        assert_eq!(world.evaluate("u")[&1].value, expected.into(), "{property} for {}", world.properties);
    }
}

#[test]
fn values_have_the_format_of_responses() {
    let variant = FlagValue::Variant("a".into());
    for (value, json) in [(FlagValue::Off, json!(false)), (FlagValue::On, json!(true)), (variant, json!("a"))]
    {
        assert_eq!(serde_json::to_value(&value).unwrap(), json);
        assert_eq!(value.to_json(), json);
        assert_eq!(value.is_on(), json != json!(false));
    }
}

#[test]
fn an_evaluator_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Evaluator>();
    shared::<EvaluationPlan<'_>>();
}

#[test]
fn oversize_patterns_of_one_flag_leave_those_of_others_alone() {
    let matching = |text: &str| json!({"properties": [{"key": "name", "type": "person", "operator": "regex", "value": text}]});
    let oversize: Vec<Value> =
        (0..50).map(|number| matching(&format!("((a{{100}}){{100}}){{100}}{number}"))).collect();
    let mut world = world(vec![
        flag(1, "oversize", json!({"groups": oversize})),
        flag(2, "large", json!({"groups": [matching(r"^\pL{60}$")]})),
        flag(3, "ordinary", json!({"groups": [matching("^é+$")]})),
    ]);
    world.properties = json!({"name": "é".repeat(60)});
    world.expect("u", 1, json!(false), NONE, Some(49));
    world.expect("u", 2, json!(true), MATCH, Some(0));
    world.expect("u", 3, json!(true), MATCH, Some(0));
}
