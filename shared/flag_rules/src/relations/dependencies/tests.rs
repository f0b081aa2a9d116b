//! Each refusal of a dependency with its text.

use serde_json::json;

use super::super::FlagReference;
use super::*;
use crate::testing;

fn found(flags: &[(i64, &str, bool, &[i64])]) -> References {
    let entry = |(id, key, active, depends_on): &(i64, &str, bool, &[i64])| {
        let flag = FlagReference { key: (*key).to_owned(), active: *active, depends_on: depends_on.to_vec() };
        (*id, Some(flag))
    };
    References { flags: flags.iter().map(entry).collect(), ..References::default() }
}

fn on(keys: &[&str]) -> Object {
    let property =
        |key: &&str| json!({"type": "flag", "key": key, "operator": "flag_evaluates_to", "value": true});
    let properties: Vec<Value> = keys.iter().map(property).collect();
    testing::object(json!({"groups": [{"properties": properties}]}))
}

const A: FlagIdentity<'_> = FlagIdentity { id: Some(1), key: "a" };

#[track_caller]
fn refuses(filters: &Object, own: FlagIdentity<'_>, found: &References, detail: &str) {
    assert_eq!(check(filters, own, found), Err(FieldError::invalid("filters", detail)));
}

#[test]
fn a_dependency_is_named_by_id() {
    let detail =
        "Flag dependencies must reference flag IDs (integers), not flag keys. Invalid reference: 'beta'";
    refuses(&on(&["beta"]), A, &found(&[]), detail);
}

#[test]
fn a_dependency_exists_and_is_active() {
    refuses(&on(&["9"]), A, &found(&[]), "Flag dependency references non-existent flag with ID 9");
    let mut deleted = found(&[]);
    deleted.flags.insert(9, None);
    refuses(&on(&["9"]), A, &deleted, "Flag dependency references non-existent flag with ID 9");
    let detail = "Cannot create dependency on disabled flag 'off' (ID: 9). \
                  Flag dependencies must reference active flags only.";
    refuses(&on(&["9"]), A, &found(&[(9, "off", false, &[])]), detail);
    assert_eq!(check(&on(&["9"]), A, &found(&[(9, "on", true, &[])])), Ok(()));
}

#[test]
fn a_flag_does_not_depend_on_itself() {
    refuses(&on(&["1"]), A, &found(&[(1, "a", true, &[])]), "Feature flag 'a' cannot depend on itself");
}

#[test]
fn a_dependency_does_not_lead_back() {
    let flags = found(&[(1, "a", true, &[]), (2, "b", true, &[1])]);
    refuses(&on(&["2"]), A, &flags, "Circular dependency detected: a → b → a");
    let flags = found(&[(2, "b", true, &[3]), (3, "c", true, &[1]), (4, "d", true, &[])]);
    refuses(&on(&["4", "2"]), A, &flags, "Circular dependency detected: a → b → c → a");
    let created = FlagIdentity { id: None, key: "new" };
    assert_eq!(check(&on(&["2"]), created, &flags), Ok(()));
    let elsewhere = found(&[(2, "b", true, &[3]), (3, "c", true, &[2])]);
    assert_eq!(check(&on(&["2"]), A, &elsewhere), Ok(()));
}

#[test]
fn a_long_chain_is_walked() {
    let last = 100_000;
    let mut flags = References::default();
    for id in 2..=last {
        let next = if id == last { 1 } else { id + 1 };
        let flag = FlagReference { key: format!("k{id}"), active: true, depends_on: vec![next] };
        flags.flags.insert(id, Some(flag));
    }
    assert!(check(&on(&["2"]), A, &flags).is_err());
}

#[test]
fn five_are_named_and_the_rest_counted() {
    let related = |id| RelatedFlag { key: format!("k{id}"), id };
    let seven: Vec<RelatedFlag> = (1..=7).map(related).collect();
    assert_eq!(
        format_flags(&seven),
        "k1 (ID: 1), k2 (ID: 2), k3 (ID: 3), k4 (ID: 4), k5 (ID: 5), and 2 more"
    );
    assert_eq!(format_flags(&seven[..5]), "k1 (ID: 1), k2 (ID: 2), k3 (ID: 3), k4 (ID: 4), k5 (ID: 5)");
}
