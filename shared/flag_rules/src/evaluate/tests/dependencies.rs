//! Flags that depend on other flags.

use super::*;

fn needs(id: impl ToString, expected: Value) -> Value {
    let property = json!({
        "key": id.to_string(), "type": "flag", "value": expected, "operator": "flag_evaluates_to",
    });
    json!({"groups": [{"properties": [property]}]})
}

/// A flag with one variant for everyone.
fn base() -> Flag {
    let variants = json!([
        {"key": "control", "rollout_percentage": 100}, {"key": "test", "rollout_percentage": 0},
    ]);
    flag(1, "base", json!({"groups": [{}], "multivariate": {"variants": variants}}))
}

#[test]
fn expected_values_of_the_other_flag() {
    for (expected, on) in [
        (json!(true), true),
        (json!(false), false),
        (json!("control"), true),
        (json!("Control"), false),
        (json!("test"), false),
        (json!("true"), false),
        (json!(1), false),
        (json!(null), false),
    ] {
        let reason = if on { MATCH } else { NONE };
        let world = world(vec![base(), flag(2, "dependent", needs(1, expected))]);
        world.expect("u", 2, json!(on), reason, Some(0));
    }
}

#[test]
fn a_flag_that_is_off() {
    let mut off = base();
    off.active = false;
    for (other, text) in [(off, "disabled"), (flag(1, "off", json!({"groups": []})), "without conditions")] {
        let dependents = [(2, json!(false)), (3, json!(true)), (4, json!("false"))];
        let dependents = dependents.map(|(id, expected)| flag(id, &id.to_string(), needs(1, expected)));
        let world = world([vec![other], dependents.to_vec()].concat());
        let all = world.evaluate("u");
        let values: Vec<&FlagValue> = all.values().map(|evaluation| &evaluation.value).collect();
        assert_eq!(values, [&FlagValue::Off, &FlagValue::On, &FlagValue::Off, &FlagValue::Off], "{text}");
    }
    // A flag that is on is not the text "true".
    let plain = flag(1, "plain", json!({"groups": [{}]}));
    let world =
        world(vec![plain, flag(2, "a", needs(1, json!("true"))), flag(3, "b", needs(1, json!(true)))]);
    world.expect("u", 2, json!(false), NONE, Some(0));
    world.expect("u", 3, json!(true), MATCH, Some(0));
}

#[test]
fn missing_flags_and_cycles() {
    const MISSING: &str = "missing_dependency";
    let mut deleted = flag(9, "deleted", json!({"groups": [{}]}));
    deleted.deleted = true;
    let mut disabled = flag(8, "disabled", needs(404, json!(false)));
    disabled.active = false;
    let world = world(vec![
        base(),
        flag(2, "no-such", needs(404, json!(false))),
        flag(3, "by-key", needs("base", json!(true))),
        flag(4, "of-deleted", needs(9, json!(false))),
        // What depends on one that cannot be resolved cannot be either.
        flag(5, "behind", needs(2, json!(false))),
        flag(6, "left", needs(7, json!(false))),
        flag(7, "right", needs(6, json!(false))),
        disabled,
        deleted,
        flag(10, "itself", needs(10, json!(false))),
        flag(11, "before-circle", needs(6, json!(false))),
        flag(12, "fine", needs(1, json!(true))),
        flag(13, "of-disabled", needs(8, json!(false))),
    ]);
    for id in [2, 3, 4, 5, 6, 7, 10, 11, 13] {
        world.expect("u", id, json!(false), MISSING, None);
    }
    world.expect("u", 8, json!(false), "disabled", None);
    world.expect("u", 12, json!(true), MATCH, Some(0));
}

#[test]
fn a_flag_is_evaluated_for_the_same_subject() {
    // simple-flag is on for user-2 at 50 %, and off for user-1.
    let half = flag(1, "simple-flag", json!({"groups": [{"rollout_percentage": 50}]}));
    let world = world(vec![half, flag(2, "b", needs(1, json!(true))), flag(3, "c", needs(2, json!(false)))]);
    world.expect("user-2", 3, json!(false), NONE, Some(0));
    world.expect("user-1", 3, json!(true), MATCH, Some(0));
}

#[test]
fn a_chain_of_ten_thousand() {
    const COUNT: i64 = 10_000;
    // Each requires the opposite of the one before; ids are in reverse order of evaluation.
    let mut flags = vec![flag(COUNT, "last", json!({"groups": [{}]}))];
    flags.extend((1..COUNT).map(|id| flag(id, &format!("f{id}"), needs(id + 1, json!(false)))));
    let world = world(flags);
    let evaluator = world.evaluator();
    let (properties, static_cohorts) = (Object::new(), BTreeSet::new());
    let subject = Subject::person("u", &properties, &static_cohorts, testing::now());
    let all = evaluator.evaluate_all(&subject);
    assert_eq!(all.len(), 10_000);
    for (id, evaluation) in &all {
        assert_eq!(evaluation.value.is_on(), (COUNT - id) % 2 == 0, "{id}");
    }
    assert_eq!(evaluator.evaluate(1, &subject).unwrap(), all[&1]);
    assert_eq!(evaluator.evaluate(COUNT, &subject).unwrap(), all[&COUNT]);
}
