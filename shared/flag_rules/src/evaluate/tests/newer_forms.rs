//! Early access and holdouts in the form that newer clients store, flags by device and with experience continuity, what has
//! to be looked up, and what fails where it could not be.

use super::*;

/// `holdout-user-1` hashes to 0.178, `holdout-user-2` to 0.928.
fn held_out(holdout: Value) -> World {
    simple(json!({"groups": [{"rollout_percentage": 100}], "holdout": holdout}))
}

#[test]
fn a_holdout_is_of_those_up_to_its_percentage() {
    for (percentage, first, second) in [
        (json!(17.8), false, false),
        (json!(17.9), true, false),
        (json!(92.9), true, true),
        (json!(100), true, true),
        (json!(250), true, true),
        (json!(0), false, false),
        (json!(-5), false, false),
    ] {
        let world = held_out(json!({"id": 7, "exclusion_percentage": percentage}));
        for (id, inside) in [("user-1", first), ("user-2", second)] {
            match inside {
                true => world.expect(id, 1, json!("holdout-7"), "holdout_condition_value", None),
                false => world.expect(id, 1, json!(true), MATCH, Some(0)),
            }
        }
    }
    held_out(json!({"id": "a", "exclusion_percentage": 100})).expect(
        "u",
        1,
        json!("holdout-a"),
        "holdout_condition_value",
        None,
    );
}

#[test]
fn an_incomplete_holdout_holds_no_one_out() {
    for holdout in [
        json!(null),
        json!({}),
        json!({"id": 7}),
        json!({"id": null, "exclusion_percentage": 100}),
        json!({"id": 7, "exclusion_percentage": null}),
        json!({"exclusion_percentage": 100}),
    ] {
        held_out(holdout).expect("user-1", 1, json!(true), MATCH, Some(0));
    }
    // The older form counts where there is no newer one, and not beside it.
    let older = json!([{"rollout_percentage": 100, "variant": "holdout-old"}]);
    let both = |holdout| simple(json!({"groups": [{}], "holdout": holdout, "holdout_groups": older}));
    both(json!(null)).expect("u", 1, json!("holdout-old"), "holdout_condition_value", None);
    both(json!({"id": 7, "exclusion_percentage": 0})).expect("user-1", 1, json!(true), MATCH, Some(0));
}

#[test]
fn enrollment_decides_for_persons_who_enrolled_or_declined() {
    let mut world = simple(json!({
        "groups": [{"rollout_percentage": 0}], "feature_enrollment": true,
        "super_groups": [{"properties": [person("plan", json!("pro"))]}],
    }));
    for (value, on) in [
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
        (json!("yes"), false),
        (json!(1), false),
        (json!(null), false),
    ] {
        world.properties = json!({"$feature_enrollment/simple-flag": value});
        world.expect("user-1", 1, json!(on), "super_condition_value", Some(0));
    }
    world.properties = json!({"plan": "pro"});
    world.expect("user-1", 1, json!(false), HALF, Some(0));
    world.flags[0].filters = testing::object(json!({"groups": [{}], "feature_enrollment": false}));
    world.properties = json!({"$feature_enrollment/simple-flag": false});
    world.expect("user-1", 1, json!(true), MATCH, Some(0));
}

/// The data in a request about a person besides its id, `user-1`.
#[derive(Default)]
struct Ids<'a> {
    device: Option<&'a str>,
    anonymous: Option<&'a str>,
    overrides: Option<&'a BTreeMap<i64, String>>,
}

fn evaluate(flag: &Flag, ids: Ids<'_>) -> Evaluation {
    let (properties, nowhere) = (Object::new(), BTreeSet::new());
    let subject = Subject {
        device_id: ids.device,
        anonymous_id: ids.anonymous,
        overrides: ids.overrides,
        ..Subject::person("user-1", &properties, &nowhere, testing::now())
    };
    Evaluator::new([flag], [], Tz::UTC).evaluate(1, &subject).unwrap()
}

/// Half of the ids: `user-1` is outside (0.737), `user-2` inside (0.196).
fn half() -> Flag {
    flag(1, "simple-flag", json!({"groups": [{"rollout_percentage": 0}, {"rollout_percentage": 50}]}))
}

#[test]
fn a_flag_by_device_hashes_the_device() {
    let device = |id| Ids { device: Some(id), ..Ids::default() };
    let by_device = Flag { bucketing_identifier: Some("device_id".to_owned()), ..half() };
    assert!(evaluate(&by_device, device("user-2")).value.is_on());
    assert!(!evaluate(&by_device, device("user-1")).value.is_on());
    // Without a device, no condition matches.
    let for_all = Flag { filters: testing::object(json!({"groups": [{}, {}]})), ..by_device.clone() };
    let without = evaluate(&for_all, Ids::default());
    assert_eq!((without.reason, without.condition_index), (EvaluationReason::OutOfRolloutBound, Some(1)));
    let for_none = Flag { filters: testing::object(json!({"groups": []})), ..by_device.clone() };
    let without = evaluate(&for_none, Ids::default());
    assert_eq!((without.reason, without.condition_index), (EvaluationReason::NoConditionMatch, Some(0)));
    // The holdout still applies, by the id of the person.
    let holdout = json!({"groups": [{}], "holdout": {"id": 7, "exclusion_percentage": 50}});
    let held_out = Flag { filters: testing::object(holdout), ..by_device };
    assert_eq!(evaluate(&held_out, Ids::default()).reason, EvaluationReason::HoldoutConditionValue);
    assert_eq!(evaluate(&held_out, device("user-2")).reason, EvaluationReason::ConditionMatch);
}

#[test]
fn continuity_hashes_the_override_else_the_id_before_the_login() {
    let kept = Flag { ensure_experience_continuity: Some(true), ..half() };
    let (inside, outside) =
        (BTreeMap::from([(1, "user-2".to_owned())]), BTreeMap::from([(1, "user-1".to_owned())]));
    let anonymous = Ids { anonymous: Some("user-2"), ..Ids::default() };
    assert!(!evaluate(&kept, Ids::default()).value.is_on());
    assert!(evaluate(&kept, anonymous).value.is_on());
    let stored = |overrides| Ids { overrides: Some(overrides), ..Ids::default() };
    assert!(evaluate(&kept, stored(&inside)).value.is_on());
    let both = Ids { anonymous: Some("user-2"), ..stored(&outside) };
    assert!(!evaluate(&kept, both).value.is_on());
    assert!(!evaluate(&half(), stored(&inside)).value.is_on(), "a flag without continuity");
}

#[test]
fn data_missing_in_the_request_is_looked_up() {
    let cohort = FlagCohort {
        id: 3,
        name: String::new(),
        is_static: false,
        deleted: false,
        filters: json!({"properties": {"type": "AND", "values": [
            {"type": "AND", "values": [person("city", json!("Bern")), {"key": "id", "type": "cohort", "value": 4}]}]}}),
    };
    let listed = FlagCohort { id: 4, is_static: true, filters: json!(null), ..cohort.clone() };
    let in_group = json!({"key": "size", "type": "group", "group_type_index": 0, "value": 1});
    let flags = [
        flag(
            1,
            "plain",
            json!({"groups": [{"properties": [person("distinct_id", json!("u"))], "rollout_percentage": 50}]}),
        ),
        flag(2, "plan", json!({"groups": [{"properties": [person("plan", json!("pro"))]}]})),
        flag(3, "cohort", json!({"groups": [{"properties": [{"key": "id", "type": "cohort", "value": 3}]}]})),
        flag(4, "group", json!({"groups": [{"properties": [in_group]}], "aggregation_group_type_index": 0})),
        Flag {
            ensure_experience_continuity: Some(true),
            ..flag(5, "kept", json!({"groups": [{"rollout_percentage": 50}]}))
        },
        Flag { ensure_experience_continuity: Some(true), ..flag(6, "all", json!({"groups": [{}]})) },
    ];
    let evaluator = Evaluator::new(&flags, [cohort, listed], Tz::UTC);
    assert_eq!(evaluator.continuous_flags(), BTreeSet::from([5, 6]));
    let lookups = |id: i64, properties: Value, named: bool| {
        let (properties, nowhere, empty) = (testing::object(properties), BTreeSet::new(), Object::new());
        let groups = BTreeMap::from([(0, GroupSubject { key: "acme", properties: &empty })]);
        let subject = Subject::person("u", &properties, &nowhere, testing::now());
        let subject = if named { subject.with_groups(groups) } else { subject };
        evaluator.plan(id).unwrap().lookups(&subject)
    };
    let person = DataLookups { person: true, ..DataLookups::default() };
    assert!(lookups(1, json!({}), true).is_empty());
    assert_eq!(lookups(2, json!({}), true), person);
    assert!(lookups(2, json!({"plan": null}), true).is_empty(), "null is a value");
    assert_eq!(lookups(3, json!({}), true), DataLookups { static_cohorts: BTreeSet::from([4]), ..person });
    assert_eq!(lookups(4, json!({}), true).groups, BTreeSet::from([0]));
    assert!(lookups(4, json!({}), false).is_empty(), "no group of the type is named");
    assert_eq!(lookups(5, json!({}), true), DataLookups { overrides: true, ..DataLookups::default() });
    assert!(lookups(6, json!({}), true).is_empty(), "the same value for all persons");
}

#[test]
fn selections_follow_runtime_keys_and_dependencies() {
    let on = |id: i64| json!([{"type": "flag", "key": id.to_string(), "operator": "flag_evaluates_to", "value": true}]);
    let depends = |id, key: &str, on: Value| flag(id, key, json!({"groups": [{"properties": on}]}));
    let runtime = |flag: Flag, runtime: &str| Flag { evaluation_runtime: Some(runtime.to_owned()), ..flag };
    let flags = [
        flag(1, "base", json!({"groups": [{}]})),
        runtime(flag(2, "ops", json!({"groups": [{}]})), "server"),
        depends(3, "of-base", on(1)),
        depends(4, "of-ops", on(2)),
        Flag { active: false, ..flag(5, "paused", json!({"groups": [{}]})) },
        flag(6, "survey-targeting-x", json!({"groups": [{}]})),
    ];
    let evaluator = Evaluator::new(&flags, [], Tz::UTC);
    let (properties, nowhere) = (Object::new(), BTreeSet::new());
    let subject = Subject::person("u", &properties, &nowhere, testing::now());
    let values = |selection: Selection<'_>| -> Vec<(String, bool)> {
        let mut all: Vec<_> = evaluator
            .select(&selection)
            .evaluate_all(&subject)
            .into_iter()
            .map(|(flag, evaluation)| (flag.key.to_string(), evaluation.value.is_on()))
            .collect();
        all.sort();
        all
    };
    let all = |runtime| Selection { runtime, only_surveys: false, with_inactive: false, keys: None };
    let named = |names: &[&str]| -> Vec<(String, bool)> {
        names.iter().map(|name| (name.trim_start_matches('!').to_owned(), !name.starts_with('!'))).collect()
    };
    assert_eq!(values(all(Runtime::All)), named(&["base", "of-base", "of-ops", "ops", "survey-targeting-x"]));
    // A flag that is left out counts as off.
    assert_eq!(values(all(Runtime::Client)), named(&["base", "of-base", "!of-ops", "survey-targeting-x"]));
    let keys = |keys: &'static [&'static str], runtime| Selection {
        keys: Some(keys.iter().copied().collect()),
        ..all(runtime)
    };
    assert_eq!(values(keys(&["of-base", "unknown"], Runtime::All)), named(&["base", "of-base"]));
    assert_eq!(values(keys(&["of-ops", "ops"], Runtime::Client)), named(&["!of-ops"]));
    assert!(values(keys(&[], Runtime::All)).is_empty());
    assert_eq!(values(Selection { only_surveys: true, ..all(Runtime::All) }), named(&["survey-targeting-x"]));
    let inactive = Selection { with_inactive: true, ..keys(&["paused"], Runtime::All) };
    assert_eq!(values(inactive), named(&["!paused"]));
}

#[test]
fn reasons_have_the_names_of_open_feature() {
    let variants =
        json!({"variants": [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]});
    let pro = json!([person("plan", json!("pro"))]);
    for (filters, reason) in [
        (json!({"groups": [{}]}), "STATIC"),
        (json!({"groups": [{"rollout_percentage": 99.9}]}), "SPLIT"),
        (json!({"groups": [{"properties": pro}]}), "TARGETING_MATCH"),
        (json!({"groups": [{}], "multivariate": variants}), "SPLIT"),
        (json!({"groups": [{"variant": "a"}], "multivariate": variants}), "STATIC"),
        (
            json!({"groups": [{"properties": pro, "variant": "a"}], "multivariate": variants}),
            "TARGETING_MATCH",
        ),
        (json!({"groups": [{}], "holdout": {"id": 1, "exclusion_percentage": 100}}), "SPLIT"),
        (json!({"groups": []}), "UNKNOWN"),
        (json!({"groups": [{}], "aggregation_group_type_index": 0}), "UNKNOWN"),
    ] {
        let flag = flag(1, "simple-flag", filters);
        let (properties, nowhere) = (testing::object(json!({"plan": "pro"})), BTreeSet::new());
        let evaluator = Evaluator::new([&flag], [], Tz::UTC);
        let plan = evaluator.all();
        let subject = Subject::person("user-2", &properties, &nowhere, testing::now());
        let (compiled, evaluation) = plan.evaluate_all(&subject).remove(0);
        assert_eq!(
            compiled.open_feature_reason(&evaluation).as_str(),
            reason,
            "{}",
            Value::from(flag.filters)
        );
    }
}

#[test]
fn payloads_are_texts_and_secret_ones_are_none() {
    let filters = json!({"groups": [{}], "payloads": {"true": {"a": 1}, "v": null, "w": "[1]", "n": 5}});
    let flag = flag(1, "simple-flag", filters);
    let payload = |flag: &Flag, value: FlagValue| {
        let evaluator = Evaluator::new([flag], [], Tz::UTC);
        evaluator.flags[0].payload(&value).map(str::to_owned)
    };
    let variant = |key: &str| FlagValue::Variant(key.into());
    for (value, text) in [
        (FlagValue::On, Some(r#"{"a":1}"#)),
        (FlagValue::Off, None),
        (variant("v"), None),
        (variant("w"), Some("[1]")),
        (variant("n"), Some("5")),
        (variant("missing"), None),
    ] {
        assert_eq!(payload(&flag, value).as_deref(), text);
    }
    let secret = Flag { has_encrypted_payloads: Some(true), ..flag };
    assert_eq!(payload(&secret, FlagValue::On), None);
}
