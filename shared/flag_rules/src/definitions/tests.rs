//! The document as clients read it.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing;

mod flattening;

const MOST: usize = 1 << 20;

fn flag(id: i64, key: &str, filters: Value) -> Flag {
    Flag { id, key: key.to_owned(), filters: testing::object(filters), ..testing::flag() }
}

fn cohort(id: i64, criteria: Value) -> FlagCohort {
    FlagCohort::read(&json!({"id": id, "name": format!("c{id}"), "filters": {"properties": criteria}}))
        .unwrap()
}

fn by_id(cohorts: Vec<FlagCohort>) -> BTreeMap<i64, FlagCohort> {
    cohorts.into_iter().map(|cohort| (cohort.id, cohort)).collect()
}

fn text(flags: &[Flag], cohorts: Vec<FlagCohort>, group_types: &[&str], form: CohortForm) -> String {
    let group_types: Vec<String> = group_types.iter().map(|name| (*name).to_owned()).collect();
    FlagDefinitions::new(7, flags).document(&by_id(cohorts), &group_types, form, MOST).unwrap()
}

fn minimal(flag: &Flag) -> Value {
    FlagDefinitions::new(1, [flag]).minimal(flag, &mut MOST.clone()).unwrap().to_json()
}

fn document(flags: &[Flag], cohorts: Vec<FlagCohort>) -> Value {
    serde_json::from_str(&text(flags, cohorts, &[], CohortForm::Sent)).unwrap()
}

fn person(key: &str, value: &str) -> Value {
    json!({"key": key, "type": "person", "value": value})
}

fn in_cohort(id: i64) -> Value {
    json!({"key": "id", "type": "cohort", "value": id})
}

fn with_properties(properties: Value) -> Value {
    json!({"groups": [{"properties": properties, "rollout_percentage": 20}]})
}

#[test]
fn a_document_to_the_letter() {
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 50}]});
    let mut flag = flag(3, "a", filters);
    flag.name = "Ä".to_owned();
    flag.version = 4;
    let expected = "{\"flags\":[{\"id\":3,\"team_id\":7,\"name\":\"Ä\",\"key\":\"a\",\
        \"filters\":{\"groups\":[{\"properties\":[],\"rollout_percentage\":50}]},\"deleted\":false,\"active\":true,\
        \"ensure_experience_continuity\":false,\"has_encrypted_payloads\":false,\"version\":4,\
        \"evaluation_runtime\":\"all\",\"bucketing_identifier\":\"distinct_id\",\
        \"evaluation_tags\":[],\"evaluation_contexts\":[]}],\
        \"group_type_mapping\":{\"0\":\"organization\",\"1\":\"company\"},\"cohorts\":{}}";
    assert_eq!(text(&[flag], Vec::new(), &["organization", "company"], CohortForm::Sent), expected);
    let nothing = "{\"flags\":[],\"group_type_mapping\":{},\"cohorts\":{}}";
    assert_eq!(text(&[], Vec::new(), &[], CohortForm::Flattened), nothing);
    // A group type that is gone leaves the numbers of the others.
    let document = text(&[], Vec::new(), &["", "company"], CohortForm::Sent);
    assert!(document.contains("\"group_type_mapping\":{\"1\":\"company\"}"), "{document}");
}

#[test]
fn which_flags_and_in_which_order() {
    let with = |id, key, change: fn(&mut Flag)| {
        let mut flag = flag(id, key, json!({"groups": []}));
        change(&mut flag);
        flag
    };
    let flags = [
        with(1, "b", |_| {}),
        with(2, "a", |flag| flag.active = false),
        with(3, "c", |flag| flag.deleted = true),
        with(4, "d", |flag| flag.has_encrypted_payloads = Some(true)),
        with(5, "B", |flag| flag.has_encrypted_payloads = None),
        with(6, "a-b", |flag| flag.ensure_experience_continuity = None),
    ];
    let document = document(&flags, Vec::new());
    let keys: Vec<&str> =
        document["flags"].as_array().unwrap().iter().map(|f| f["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["B", "a", "a-b", "b"]);
    assert_eq!(document["flags"][0]["has_encrypted_payloads"], json!(false));
    assert_eq!(document["flags"][1]["active"], json!(false));
    assert_eq!(document["flags"][2]["ensure_experience_continuity"], Value::Null);
}

#[test]
fn fields_that_were_not_set_are_left_out() {
    let flag = Flag { evaluation_runtime: None, bucketing_identifier: None, ..flag(1, "a", json!({})) };
    let minimal = minimal(&flag);
    assert!(minimal.get("evaluation_runtime").is_none() && minimal.get("bucketing_identifier").is_none());
    assert_eq!(minimal["filters"], json!({"groups": [{"properties": [], "rollout_percentage": null}]}));
}

/// The filters of a flag in the document, as text.
fn shown(filters: Value) -> String {
    let flag = flag(1, "a", filters);
    minimal(&flag)["filters"].to_string()
}

#[test]
fn nulls_that_strict_decoders_reject_are_left_out() {
    let filters = json!({
        "groups": [
            {"properties": null, "rollout_percentage": null, "variant": null},
            null,
            {"properties": [null, {"key": "a", "value": 1, "type": "person", "operator": null, "negation": null}]},
        ],
        "payloads": null, "early_exit": null, "super_groups": null, "holdout_groups": null, "multivariate": null,
        "aggregation_group_type_index": null, "feature_enrollment": null,
    });
    let expected = json!({
        "groups": [
            {"rollout_percentage": null, "variant": null},
            {"properties": [{"key": "a", "value": 1, "type": "person"}]},
        ],
        "multivariate": null, "aggregation_group_type_index": null, "feature_enrollment": null,
    });
    assert_eq!(shown(filters), expected.to_string());
    assert_eq!(shown(json!({"groups": null})), "{}");
}

#[test]
fn every_property_has_a_key_a_type_and_a_value() {
    let properties = json!([
        {"key": "a", "type": "person", "operator": "is_set"},
        {"type": "cohort", "value": 3, "cohort_name": "x"},
        {"key": null, "type": null, "value": null},
    ]);
    let expected = json!([
        {"key": "a", "type": "person", "operator": "is_set", "value": null},
        {"type": "cohort", "value": 3, "key": "id"},
        {"key": "", "value": null, "type": "person"},
    ]);
    for list in ["groups", "super_groups", "holdout_groups"] {
        let shown: Value = serde_json::from_str(&shown(json!({list: [{"properties": properties}]}))).unwrap();
        assert_eq!(shown[list][0]["properties"], expected, "{list}");
    }
}

#[test]
fn numbers_and_everything_else_are_as_sent() {
    let filters = "{\"zeta\":1.0,\"groups\":[{\"variant\":\"b\",\"rollout_percentage\":12.5,\"x\":{\"y\":null}},\
        {\"rollout_percentage\":34},{\"rollout_percentage\":50.0}],\"payloads\":{\"true\":\"{\\\"a\\\": 1}\"},\
        \"holdout\":{\"id\":7,\"exclusion_percentage\":5},\"early_exit\":true}";
    let stored: Value = serde_json::from_str(filters).unwrap();
    assert_eq!(shown(stored), filters);
}

fn needs(id: impl ToString) -> Value {
    let key = id.to_string();
    with_properties(json!([{"key": key, "type": "flag", "value": true, "operator": "flag_evaluates_to"}]))
}

#[test]
fn dependencies_have_chains_of_keys() {
    let both = json!([
        {"key": "2", "type": "flag", "value": true, "operator": "flag_evaluates_to"},
        {"key": "3", "type": "flag", "value": "v", "operator": "flag_evaluates_to"},
    ]);
    let mut secret = flag(9, "secret", json!({"groups": []}));
    secret.has_encrypted_payloads = Some(true);
    let mut gone = flag(10, "gone", json!({"groups": []}));
    gone.deleted = true;
    let flags = [
        flag(1, "one", with_properties(both)),
        flag(2, "two", needs(4)),
        flag(3, "three", needs(4)),
        flag(4, "four", json!({"groups": []})),
        flag(5, "of-missing", needs(404)),
        flag(6, "of-of-missing", needs(5)),
        flag(7, "left", needs(8)),
        flag(8, "right", needs(7)),
        flag(11, "of-secret", needs(9)),
        flag(12, "of-gone", needs(10)),
        flag(13, "of-one", needs(1)),
        flag(14, "by-key", needs("four")),
        secret,
        gone,
    ];
    let document = document(&flags, Vec::new());
    let of = |key: &str, place: usize| {
        let flags = document["flags"].as_array().unwrap();
        let flag = flags.iter().find(|flag| flag["key"] == json!(key)).unwrap();
        let property = &flag["filters"]["groups"][0]["properties"][place];
        (property["key"].clone(), property["dependency_chain"].clone())
    };
    assert_eq!(of("one", 0), (json!("two"), json!(["four", "two"])));
    assert_eq!(of("one", 1), (json!("three"), json!(["four", "three"])));
    assert_eq!(of("two", 0), (json!("four"), json!(["four"])));
    assert_eq!(of("of-one", 0), (json!("one"), json!(["four", "two", "three", "one"])));
    assert_eq!(of("of-secret", 0), (json!("secret"), json!(["secret"])));
    // A cycle or a missing flag, at any depth.
    assert_eq!(of("of-missing", 0), (json!("404"), json!([])));
    assert_eq!(of("of-of-missing", 0), (json!("of-missing"), json!([])));
    assert_eq!(of("left", 0), (json!("right"), json!([])));
    assert_eq!(of("right", 0), (json!("left"), json!([])));
    assert_eq!(of("of-gone", 0), (json!("10"), json!([])));
    assert_eq!(of("by-key", 0), (json!("four"), json!([])));
}

#[test]
fn a_long_chain_of_dependencies() {
    let mut flags = vec![flag(10_000, "f10000", json!({"groups": []}))];
    flags.extend((1..10_000).map(|id| flag(id, &format!("f{id}"), needs(id + 1))));
    let definitions = FlagDefinitions::new(7, &flags);
    let mut left = MOST;
    let minimal = definitions.minimal(&flags[1], &mut left).unwrap().to_json();
    let chain = minimal["filters"]["groups"][0]["properties"][0]["dependency_chain"].as_array().unwrap();
    assert_eq!(chain.len(), 9_999);
    assert_eq!((&chain[0], &chain[9_998]), (&json!("f10000"), &json!("f2")));
    // What it took is gone: six letters at most with two quotes and a comma each.
    assert!((9_999 * 6..9_999 * 9).contains(&(MOST - left)), "{left}");
    assert!(definitions.minimal(&flags[1], &mut 70_000).is_err());
    // All chains together would be 50 million keys.
    let too_large = definitions.document(&BTreeMap::new(), &[], CohortForm::Sent, MOST);
    assert_eq!(too_large, Err(TooLarge));
}

#[test]
fn the_size_has_a_limit() {
    let flags = [flag(1, "a", json!({"groups": []})), flag(2, "b", json!({"groups": []}))];
    let definitions = FlagDefinitions::new(7, &flags);
    let with = |most| definitions.document(&BTreeMap::new(), &["x".to_owned()], CohortForm::Sent, most);
    let size = with(MOST).unwrap().len();
    assert!(with(size).is_ok());
    assert_eq!(with(size - 1), Err(TooLarge));
    assert_eq!(with(100), Err(TooLarge));
}

#[test]
fn cohorts_that_flags_use_at_any_depth() {
    let leaf = json!({"key": "email", "type": "person", "value": "@x.io", "operator": "icontains"});
    let group = |values: Value| json!({"type": "OR", "values": [{"type": "AND", "values": values}]});
    let mut deleted = cohort(6, group(json!([leaf])));
    deleted.deleted = true;
    let cohorts = vec![
        cohort(1, group(json!([in_cohort(2), leaf]))),
        cohort(2, group(json!([in_cohort(3), in_cohort(4), in_cohort(404)]))),
        cohort(3, group(json!([leaf]))),
        FlagCohort { is_static: true, ..cohort(4, group(json!([leaf]))) },
        cohort(5, group(json!([leaf]))),
        deleted,
        cohort(7, json!({"type": "OR", "values": []})),
        cohort(8, group(json!([in_cohort(8), leaf]))),
        cohort(9, group(json!([leaf]))),
    ];
    let mut secret = flag(2, "secret", with_properties(json!([in_cohort(5)])));
    secret.has_encrypted_payloads = Some(true);
    let mut early = json!({"groups": [], "super_groups": [{"properties": [in_cohort(9)]}]});
    early["groups"] =
        with_properties(json!([in_cohort(6), in_cohort(7), in_cohort(8), in_cohort(404)]))["groups"].clone();
    let flags = [flag(1, "a", with_properties(json!([in_cohort(1)]))), secret, flag(3, "b", early)];
    let sent = document(&flags, cohorts)["cohorts"].clone();
    let expected = json!({
        "1": group(json!([in_cohort(2), leaf])),
        "2": group(json!([in_cohort(3), in_cohort(4), in_cohort(404)])),
        "3": group(json!([leaf])),
        "9": group(json!([leaf])),
    });
    assert_eq!(sent.to_string(), expected.to_string());
}

#[test]
fn criteria_are_cleaned() {
    let criteria = json!({"type": "or", "values": [
        null, {"type": null, "values": [{"key": "a", "type": "person", "operator": null, "negation": true}]},
        {"type": "AND", "values": []}, {"type": "OR", "values": null}, "x",
    ], "extra": 1});
    let sent = document(&[flag(1, "a", with_properties(json!([in_cohort(1)])))], vec![cohort(1, criteria)]);
    let expected = json!({"type": "OR", "values": [
        {"type": "AND", "values": [{"key": "a", "type": "person", "negation": true, "value": null}]},
    ]});
    assert_eq!(sent["cohorts"]["1"], expected);
}

#[test]
fn the_older_form_of_a_cohort_is_sent_in_the_newer() {
    let older = json!({"id": 1, "groups": [{"properties": [person("a", "x")]}, {"properties": {"b": "y"}}]});
    let sent = document(
        &[flag(1, "a", with_properties(json!([in_cohort(1)])))],
        vec![FlagCohort::read(&older).unwrap()],
    );
    let expected = json!({"type": "OR", "values": [
        {"type": "AND", "values": [person("a", "x")]}, {"type": "AND", "values": [person("b", "y")]},
    ]});
    assert_eq!(sent["cohorts"]["1"], expected);
}

#[test]
fn the_tag_changes_with_the_content_only() {
    let one = [flag(1, "a", with_properties(json!([in_cohort(1)])))];
    let cohort_a = || vec![cohort(1, json!({"type": "OR", "values": [person("a", "x")]}))];
    let tag = |flags: &[Flag], cohorts, types: &[&str], form| etag(&text(flags, cohorts, types, form));
    let first = tag(&one, cohort_a(), &["x"], CohortForm::Sent);
    assert_eq!(first, tag(&one, cohort_a(), &["x"], CohortForm::Sent));
    let mut touched = one.clone();
    touched[0].updated_at = testing::now() + chrono::TimeDelta::days(1);
    assert_eq!(first, tag(&touched, cohort_a(), &["x"], CohortForm::Sent));
    let renamed = vec![cohort(1, json!({"type": "OR", "values": [person("a", "y")]}))];
    let others = [
        tag(&one, renamed, &["x"], CohortForm::Sent),
        tag(&one, cohort_a(), &["y"], CohortForm::Sent),
        tag(&one, cohort_a(), &["x"], CohortForm::Flattened),
        tag(&[], cohort_a(), &["x"], CohortForm::Sent),
    ];
    assert!(others.iter().all(|other| *other != first));
}
