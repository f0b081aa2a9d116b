//! Flags with conditions on cohorts.

use super::*;

fn dynamic(id: i64, criteria: Value) -> FlagCohort {
    FlagCohort::read(&json!({"id": id, "name": format!("c{id}"), "filters": {"properties": criteria}}))
        .unwrap()
}

fn listed(id: i64) -> FlagCohort {
    FlagCohort::read(&json!({"id": id, "name": "list", "is_static": true, "filters": {}})).unwrap()
}

fn any(values: Value) -> Value {
    json!({"type": "OR", "values": values})
}

fn all(values: Value) -> Value {
    json!({"type": "AND", "values": values})
}

fn member(id: impl Into<Value>, operator: Value, negation: Value) -> Value {
    json!({"key": "id", "type": "cohort", "value": id.into(), "operator": operator, "negation": negation})
}

/// A flag whose only condition is this property.
fn with_property(property: Value, cohorts: Vec<FlagCohort>) -> World {
    World { cohorts, ..simple(json!({"groups": [{"properties": [property]}]})) }
}

impl World {
    fn is_on(&mut self, properties: Value) -> bool {
        self.properties = properties;
        self.evaluate("u")[&1].value.is_on()
    }
}

/// Members of cohort 1 are persons on plan pro.
fn pro() -> FlagCohort {
    dynamic(1, any(json!([person("plan", json!("pro"))])))
}

#[test]
fn operators_and_negation() {
    for (operator, negation, expected) in [
        (json!("in"), json!(false), true),
        (json!("exact"), json!(null), true),
        (json!(null), json!(null), true),
        (json!("not_in"), json!(null), false),
        (json!("in"), json!(true), false),
        (json!("not_in"), json!(true), true),
    ] {
        let property = member(1, operator, negation);
        let mut world = with_property(property.clone(), vec![pro()]);
        assert_eq!(world.is_on(json!({"plan": "pro"})), expected, "{property}");
        assert_eq!(world.is_on(json!({"plan": "free"})), !expected, "{property}");
        let mut world = with_property(property.clone(), vec![listed(1)]);
        assert_eq!(world.is_on(json!({})), !expected, "{property}");
        world.members_of = [1].into();
        assert_eq!(world.is_on(json!({})), expected, "{property}");
    }
    assert!(with_property(member("1", json!("in"), json!(null)), vec![pro()]).is_on(json!({"plan": "pro"})));
}

#[test]
fn cohorts_without_members() {
    let without_members = [
        dynamic(1, json!(null)),
        dynamic(1, json!({})),
        dynamic(1, any(json!([]))),
        dynamic(1, all(json!([]))),
        dynamic(1, all(json!([any(json!([])), null]))),
        dynamic(1, json!([person("plan", json!("pro"))])),
        FlagCohort { deleted: true, ..pro() },
        dynamic(2, any(json!([person("plan", json!("pro"))]))),
    ];
    for cohort in without_members {
        let cohorts = vec![cohort];
        let plan = json!({"plan": "pro"});
        assert!(!with_property(member(1, json!("in"), json!(null)), cohorts.clone()).is_on(plan.clone()));
        assert!(with_property(member(1, json!("not_in"), json!(null)), cohorts.clone()).is_on(plan.clone()));
        // The same from inside of another one.
        let around = dynamic(5, all(json!([member(1, json!("in"), json!(true))])));
        let cohorts = [cohorts, vec![around]].concat();
        assert!(
            with_property(member(5, json!("in"), json!(null)), cohorts).is_on(plan),
            "not in an empty cohort"
        );
    }
    for id in [json!("x"), json!(null), json!([1]), json!(1.5)] {
        assert!(
            !with_property(member(id, json!("in"), json!(null)), vec![pro()]).is_on(json!({"plan": "pro"}))
        );
    }
}

#[test]
fn groups_of_criteria() {
    let criteria = any(json!([
        all(
            json!([person("plan", json!("pro")), {"key": "age", "type": "person", "value": "30", "operator": "gt"}])
        ),
        all(json!([{"key": "email", "type": "person", "value": "@x.io", "operator": "icontains"}])),
    ]));
    let mut world = with_property(member(1, json!("in"), json!(null)), vec![dynamic(1, criteria)]);
    for (properties, on) in [
        (json!({"plan": "pro", "age": 31}), true),
        (json!({"plan": "pro", "age": 30}), false),
        (json!({"email": "a@X.io"}), true),
        (json!({"age": 31}), false),
        (json!({}), false),
    ] {
        assert_eq!(world.is_on(properties.clone()), on, "{properties}");
    }
}

#[test]
fn negated_criteria() {
    let negated = |mut property: Value| {
        property["negation"] = json!(true);
        property
    };
    let criteria = all(json!([person("a", json!(1)), negated(person("b", json!(2)))]));
    let mut world = with_property(member(1, json!("in"), json!(null)), vec![dynamic(1, criteria)]);
    for (properties, on) in [
        (json!({"a": 1}), true),
        (json!({"a": 1, "b": 3}), true),
        (json!({"a": 1, "b": 2}), false),
        (json!({"b": 3}), false),
    ] {
        assert_eq!(world.is_on(properties.clone()), on, "{properties}");
    }
    // A criterion that cannot be evaluated does not match when negated either.
    for criterion in [
        json!({"key": "$pageview", "type": "behavioral", "value": "performed_event"}),
        json!({"key": "a", "type": "person", "value": "(", "operator": "regex"}),
        json!({"key": "a", "type": "person", "value": "x", "operator": "gt"}),
    ] {
        let cohorts = vec![dynamic(1, all(json!([negated(criterion.clone())])))];
        assert!(
            !with_property(member(1, json!("in"), json!(null)), cohorts).is_on(json!({"a": 1})),
            "{criterion}"
        );
    }
}

#[test]
fn cohorts_inside_cohorts() {
    let cohorts = vec![
        // Members of 3 are those of 2 who are not on the list 4; members of 2 those of 1, or of age 50.
        dynamic(
            3,
            all(json!([member(2, json!(null), json!(null)), member(4, json!("not_in"), json!(null))])),
        ),
        dynamic(2, any(json!([member(1, json!("in"), json!(false)), person("age", json!(50))]))),
        listed(4),
        pro(),
    ];
    let mut world = with_property(member(3, json!("in"), json!(null)), cohorts);
    assert_eq!(world.evaluator().static_cohorts(), [4].into());
    assert_eq!(world.evaluator().plan(1).unwrap().static_cohorts(), [4].into());
    assert!(world.is_on(json!({"plan": "pro"})) && world.is_on(json!({"age": 50})));
    assert!(!world.is_on(json!({"age": 51})));
    world.members_of = [4].into();
    assert!(!world.is_on(json!({"plan": "pro"})));
}

#[test]
fn static_cohorts_that_affect_a_result() {
    let cohorts =
        vec![listed(1), listed(2), listed(3), dynamic(4, any(json!([member(2, json!("in"), json!(null))])))];
    let in_cohort = |id: i64| json!({"groups": [{"properties": [member(id, json!("in"), json!(null))]}]});
    let mut early = in_cohort(4);
    early["super_groups"] = json!([{"properties": [member(3, json!("in"), json!(null))]}]);
    let mut world =
        world(vec![flag(1, "a", in_cohort(1)), flag(2, "b", early), flag(3, "c", json!({"groups": [{}]}))]);
    world.cohorts = cohorts;
    let evaluator = world.evaluator();
    assert_eq!(evaluator.static_cohorts(), [1, 2, 3].into());
    let of = |id: i64| evaluator.plan(id).unwrap().static_cohorts();
    assert_eq!((of(1), of(2), of(3)), ([1].into(), [2, 3].into(), BTreeSet::new()));
}

#[test]
fn cohorts_of_flags_that_a_flag_depends_on() {
    let in_cohort = |id: i64| json!({"groups": [{"properties": [member(id, json!("in"), json!(null))]}]});
    let on = |id: &str| {
        let property = json!({"key": id, "type": "flag", "value": true, "operator": "flag_evaluates_to"});
        json!({"groups": [{"properties": [property]}]})
    };
    let flags = vec![
        flag(1, "a", on("2")),
        flag(2, "b", on("3")),
        flag(3, "c", in_cohort(5)),
        flag(4, "d", in_cohort(9)),
    ];
    let mut world = world(flags);
    let criteria = json!([member(9, json!("in"), json!(null)), person("plan", json!("pro"))]);
    world.cohorts = vec![dynamic(5, all(criteria)), listed(9)];
    assert_eq!(world.evaluator().plan(1).unwrap().static_cohorts(), [9].into());
    assert!(!world.is_on(json!({"plan": "pro"})));
    world.members_of = [9].into();
    assert!(world.is_on(json!({"plan": "pro"})) && !world.is_on(json!({"plan": "free"})));
}

#[test]
fn a_cohort_that_leads_back_to_itself_has_no_members() {
    let circle = |id: i64, next: i64| {
        dynamic(id, any(json!([member(next, json!("in"), json!(null)), person("plan", json!("pro"))])))
    };
    let cohorts = vec![circle(1, 2), circle(2, 1), circle(3, 3), circle(4, 1)];
    for (id, on) in [(1, false), (2, false), (3, false), (4, true)] {
        // In any order.
        for reversed in [false, true] {
            let mut cohorts = cohorts.clone();
            if reversed {
                cohorts.reverse();
            }
            let mut world = with_property(member(id, json!("in"), json!(null)), cohorts);
            assert_eq!(world.is_on(json!({"plan": "pro"})), on, "{id}");
        }
    }
}

#[test]
fn ten_thousand_cohorts_inside_each_other() {
    let mut cohorts = vec![dynamic(10_000, any(json!([person("plan", json!("pro"))])))];
    cohorts.extend(
        (1..10_000).map(|id| dynamic(id, any(json!([member(id + 1, json!("not_in"), json!(null))])))),
    );
    let mut world = with_property(member(1, json!("in"), json!(null)), cohorts);
    // 9,999 times the opposite.
    assert!(!world.is_on(json!({"plan": "pro"})));
    assert!(world.is_on(json!({})));
}

#[test]
fn the_older_form_of_a_cohort() {
    let read = |groups: Value| {
        FlagCohort::read(&json!({"id": "1", "name": "old", "filters": {}, "groups": groups})).unwrap()
    };
    let cohort = read(json!([
        {"properties": [person("plan", json!("pro")), person("age", json!(30))]},
        {"properties": {"email__icontains": "@x.io", "beta": true}},
        {"properties": {"type": "AND", "values": [person("vip", json!("yes"))]}},
        {"action_id": 3, "days": 7},
    ]));
    let mut world = with_property(member(1, json!("in"), json!(null)), vec![cohort]);
    for (properties, on) in [
        (json!({"plan": "pro", "age": 30}), true),
        (json!({"plan": "pro"}), false),
        (json!({"email": "A@x.io", "beta": true}), true),
        (json!({"email": "A@x.io"}), false),
        (json!({"vip": "yes"}), true),
        (json!({}), false),
    ] {
        assert_eq!(world.is_on(properties.clone()), on, "{properties}");
    }
    // Criteria of the newer form come first; a static cohort has none.
    let both = json!({"id": 1, "filters": {"properties": any(json!([person("a", json!(1))]))}, "groups": [{"properties": []}]});
    assert_eq!(FlagCohort::read(&both).unwrap().criteria().unwrap()["values"][0]["key"], json!("a"));
    let fixed =
        json!({"id": 1, "is_static": true, "filters": {"properties": any(json!([person("a", json!(1))]))}});
    assert_eq!(FlagCohort::read(&fixed).unwrap().criteria(), None);
    assert_eq!(FlagCohort::read(&json!({"name": "no id"})), None);
}
