#![allow(clippy::unwrap_used)]
//! Each row of the table of `filters` rules with its text, on create and on update; what is stored.

use serde_json::json;

use super::*;
use crate::relations::{CohortReference, FlagReference};
use crate::{limits, testing};

fn references() -> References {
    let flag = |key: &str, active| Some(FlagReference { key: key.to_owned(), active, depends_on: vec![] });
    let cohort = |name: &str, has_event_criterion, cohorts: &[i64]| {
        Some(CohortReference { name: name.to_owned(), has_event_criterion, cohorts: cohorts.to_vec() })
    };
    References {
        flags: [(7, flag("on", true)), (8, flag("off", false))].into(),
        cohorts: [
            (1, cohort("good", false, &[])),
            (2, cohort("bad", true, &[])),
            (3, cohort("outer", false, &[1, 4])),
            (4, cohort("inner", false, &[2, 3])),
            (5, None),
        ]
        .into(),
    }
}

fn context(references: &References, write: WriteKind) -> FilterContext<'_> {
    let own = FlagIdentity { id: None, key: "new" };
    FilterContext { write, own, references, linked_to_early_access: false, masked: None }
}

fn parse_input(filters: Value, write: WriteKind) -> Result<Option<Object>, FieldError> {
    parse(Some(&filters), &context(&references(), write))
}

#[track_caller]
fn refused_with(filters: Value, code: &'static str, detail: &str) {
    for write in [WriteKind::Create, WriteKind::Update] {
        let expected = FieldError::new("filters", code, detail);
        assert_eq!(parse_input(filters.clone(), write), Err(expected), "{write:?}");
    }
}

#[track_caller]
fn refused(filters: Value, detail: &str) {
    refused_with(filters, "invalid_input", detail);
}

#[track_caller]
fn accepted(filters: Value) {
    for write in [WriteKind::Create, WriteKind::Update] {
        assert_eq!(parse_input(filters.clone(), write), Ok(filters.as_object().cloned()), "{write:?}");
    }
}

/// Filters of one condition with one property.
fn with_property(property: Value) -> Value {
    json!({"groups": [{"properties": [property]}]})
}

fn with_groups(groups: Value) -> Value {
    json!({"groups": groups})
}

fn with_variants(variants: Value) -> Value {
    json!({"groups": [{}], "multivariate": {"variants": variants}})
}

#[test]
fn rule_1_and_2_presence() {
    refused_with(json!(null), "null", "This field may not be null.");
    refused_with(json!([]), "not_a_dict", "Expected a dictionary of items but got type \"list\".");
    refused_with(json!("{}"), "not_a_dict", "Expected a dictionary of items but got type \"str\".");
    assert_eq!(
        parse_input(json!({"payloads": {"true": "1"}, "multivariate": 5}), WriteKind::Update),
        Ok(None)
    );
    assert_eq!(parse(None, &context(&references(), WriteKind::Create)), Ok(None));
}

#[test]
fn a_create_needs_a_condition_and_an_update_does_not() {
    let detail = "Feature flags must have at least one condition set (group).";
    for filters in [json!({}), json!({"groups": []}), json!({"payloads": {}})] {
        assert_eq!(parse_input(filters, WriteKind::Create), Err(FieldError::invalid("filters", detail)));
    }
    let empty = json!({"groups": []});
    assert_eq!(parse_input(empty.clone(), WriteKind::Update), Ok(empty.as_object().cloned()));
    // It comes before the other rules.
    let also_wrong = json!({"groups": [], "aggregation_group_type_index": "x"});
    assert_eq!(parse_input(also_wrong, WriteKind::Create).unwrap_err().detail, detail);
}

#[test]
fn rules_3_to_9_conditions() {
    let index = "aggregation_group_type_index must be an integer or null, got";
    for (value, got) in
        [(json!("0"), "str"), (json!(1.0), "float"), (json!(true), "bool"), (json!([]), "list")]
    {
        let filters = json!({"groups": [{}], "aggregation_group_type_index": value});
        refused(filters, &format!("{index} {got}"));
    }
    refused(with_groups(json!({"a": 1})), "groups must be a list, got dict");
    refused(with_groups(json!("x")), "groups must be a list, got str");
    refused(with_groups(json!([{}, 3])), "groups[1] must be a dictionary, got int");
    refused(with_groups(json!([{"variant": 1}])), "groups[0].variant must be a string or null, got int");
    let rollout = "groups[0].rollout_percentage must be";
    refused(
        with_groups(json!([{"rollout_percentage": "50"}])),
        &format!("{rollout} a number or null, got str"),
    );
    refused(
        with_groups(json!([{"rollout_percentage": true}])),
        &format!("{rollout} a number or null, got bool"),
    );
    refused(
        with_groups(json!([{"rollout_percentage": -1}])),
        &format!("{rollout} between 0 and 100, got -1"),
    );
    refused(
        with_groups(json!([{"rollout_percentage": 100.5}])),
        &format!("{rollout} between 0 and 100, got 100.5"),
    );
    refused(with_groups(json!([{"properties": {}}])), "groups[0].properties must be a list, got dict");
    refused(with_groups(json!([{"properties": null}])), "groups[0].properties must be a list, got NoneType");
    let detail = "groups[1].properties[0] must be a dictionary, got str";
    refused(with_groups(json!([{}, {"properties": ["x"]}])), detail);
    accepted(with_groups(json!([{"properties": [], "rollout_percentage": 0, "variant": null}, {}])));
    accepted(with_groups(json!([{"rollout_percentage": 12.5}, {"rollout_percentage": null}])));
}

#[test]
fn rules_10_to_13_variants() {
    let filters = |multivariate: Value| json!({"groups": [{}], "multivariate": multivariate});
    refused(filters(json!([])), "multivariate must be a dictionary or null, got list");
    refused(filters(json!({"a": 1})), "multivariate.variants must be a list");
    refused(filters(json!({"variants": {}})), "multivariate.variants must be a list");
    let key = "must be a string";
    refused(
        with_variants(json!([{"rollout_percentage": 100}])),
        &format!("multivariate.variants[0].key {key}"),
    );
    refused(
        with_variants(json!([{"key": "a", "rollout_percentage": 100}, {"key": 1}])),
        &format!("multivariate.variants[1].key {key}"),
    );
    let rollout = "multivariate.variants[0].rollout_percentage must be";
    refused(with_variants(json!([{"key": "a"}])), &format!("{rollout} a number, got null"));
    for (value, wrong) in [
        (json!(null), "a number, got null"),
        (json!("5"), "a number, got str"),
        (json!(101), "between 0 and 100, got 101"),
        (json!(-0.5), "between 0 and 100, got -0.5"),
    ] {
        let variants = json!([{"key": "a", "rollout_percentage": value}]);
        refused(with_variants(variants), &format!("{rollout} {wrong}"));
    }
    for boolean in [json!(null), json!({}), json!({"variants": []})] {
        accepted(filters(boolean));
    }
}

#[test]
fn conditions_outside_of_groups_are_conditions_too() {
    let filters = |key: &str, value: Value| json!({"groups": [{}], key: value});
    refused(filters("super_groups", json!({})), "super_groups must be a list or null, got dict");
    refused(filters("holdout_groups", json!([1])), "holdout_groups[0] must be a dictionary, got int");
    refused(filters("holdout", json!([])), "holdout must be a dictionary or null, got list");
    accepted(filters("super_groups", json!(null)));
    accepted(filters("holdout", json!({"id": 7, "exclusion_percentage": 10})));
    accepted(filters("holdout_groups", json!([{"properties": [], "variant": "holdout-7"}])));
}

#[test]
fn rules_14_and_15_form_of_properties() {
    for property in [json!({"type": "person"}), json!({"key": null}), json!({"key": ""}), json!({"key": 5})] {
        let detail = "groups[0].properties[0].key: a property key is required";
        refused(with_property(property), detail);
    }
    for operator in [json!("like"), json!(1), json!("is_cleaned_path_exact")] {
        let detail = "groups[0].properties[0].operator: unsupported operator for feature flags; operator must be one of \
                      exact, is_not, icontains, not_icontains, regex, not_regex, gt, gte, lt, lte, is_set, \
                      is_not_set, is_date_exact, is_date_before, is_date_after, in, not_in, flag_evaluates_to, \
                      between, not_between, starts_with, not_starts_with, ends_with, not_ends_with, \
                      icontains_multi, not_icontains_multi, semver_eq, semver_neq, semver_gt, semver_gte, \
                      semver_lt, semver_lte, semver_tilde, semver_caret, semver_wildcard";
        refused(with_property(json!({"key": "a", "type": "person", "operator": operator})), detail);
    }
    let names = "exact is_not icontains not_icontains regex not_regex gt gte lt lte is_set is_not_set is_date_exact \
                 is_date_before is_date_after between not_between starts_with not_starts_with ends_with \
                 not_ends_with icontains_multi not_icontains_multi semver_eq semver_neq semver_gt semver_gte \
                 semver_lt semver_lte semver_tilde semver_caret semver_wildcard";
    for operator in names.split_whitespace() {
        accepted(with_property(json!({"key": "a", "type": "person", "value": "-1d", "operator": operator})));
    }
    accepted(with_property(json!({"key": "a", "type": "person", "value": 25, "operator": null})));
}

#[test]
fn rules_16_and_20_types_of_properties() {
    let detail = "Filters are not valid (can only use person, cohort, and flag properties)";
    for property in [json!({"key": "a", "type": "event"}), json!({"key": "a", "type": "group"})] {
        refused(with_property(property), detail);
    }
    for property in [json!({"key": "a"}), json!({"key": "a", "type": null})] {
        refused(with_property(property), &format!("{detail}; add \"type\": \"person\""));
    }
    let on_groups =
        |property: Value| json!({"groups": [{"properties": [property]}], "aggregation_group_type_index": 0});
    let detail = "Filters are not valid (can only use group properties)";
    refused(on_groups(json!({"key": "email", "type": "person", "value": "x"})), detail);
    refused(on_groups(json!({"key": "a", "type": "group", "group_type_index": 3, "value": "x"})), detail);
    refused(on_groups(json!({"key": "a", "type": "group", "value": "x"})), detail);
    accepted(on_groups(json!({"key": "a", "type": "group", "group_type_index": 0, "value": "x"})));
    accepted(json!({"groups": [{"properties": []}], "aggregation_group_type_index": 4}));
}

#[test]
fn rules_17_and_18_dependencies() {
    let on = |key: Value, operator: &str| {
        with_property(json!({"key": key, "type": "flag", "value": true, "operator": operator}))
    };
    refused(on(json!("7"), "exact"), "Flag properties must use the 'flag_evaluates_to' operator");
    refused(
        with_property(json!({"key": "7", "type": "flag", "value": true})),
        "Flag properties must use the 'flag_evaluates_to' operator",
    );
    let detail = "Flag dependency references non-existent flag with ID 99";
    refused(on(json!("99"), "flag_evaluates_to"), detail);
    accepted(on(json!("7"), "flag_evaluates_to"));
    accepted(on(json!(7), "flag_evaluates_to"));
}

#[test]
fn rule_19_early_access() {
    let references = references();
    let linked = FilterContext { linked_to_early_access: true, ..context(&references, WriteKind::Update) };
    let filters = json!({"groups": [{}], "aggregation_group_type_index": 0});
    let detail = "Cannot change this flag to a group-based when linked to an Early Access Feature.";
    assert_eq!(parse(Some(&filters), &linked), Err(FieldError::invalid("filters", detail)));
    assert!(parse(Some(&json!({"groups": [{}]})), &linked).is_ok());
}

#[test]
fn rules_21_and_22_variants() {
    let detail = "Invalid variant definitions: Variant rollout percentages must sum to 100.";
    let of = |a: f64, b: f64| json!([{"key": "a", "rollout_percentage": a}, {"key": "b", "rollout_percentage": b}]);
    refused(with_variants(of(50.0, 40.0)), detail);
    refused(with_variants(of(50.0, 50.00001)), detail);
    accepted(with_variants(of(33.3, 66.7)));
    let detail = "Filters are not valid (variant override does not exist)";
    refused(with_groups(json!([{"variant": "a"}])), detail);
    let mut filters = with_variants(of(50.0, 50.0));
    filters["groups"] = json!([{"variant": "c"}]);
    refused(filters.clone(), detail);
    filters["groups"] = json!([{"variant": "b"}]);
    accepted(filters);
}

#[test]
fn rule_23_long_lists() {
    let property = |count| json!({"key": "email", "type": "person", "value": vec!["x"; count]});
    let detail = "Property group expressions of type email cannot contain more than 1000 values.";
    refused(with_property(property(1001)), detail);
    accepted(with_property(property(1000)));
}

#[test]
fn rules_24_and_25_cohorts() {
    let cohort = |value: Value| with_property(json!({"key": "id", "type": "cohort", "value": value}));
    for (value, printed) in
        [(json!(5), "5"), (json!(99), "99"), (json!("x"), "x"), (json!([1]), "[1]"), (json!(null), "None")]
    {
        refused_with(
            cohort(value),
            "cohort_does_not_exist",
            &format!("Cohort with id {printed} does not exist"),
        );
    }
    let detail = "Cohort 'bad' with filters on events cannot be used in feature flags.";
    for value in [2, 3, 4] {
        refused_with(cohort(json!(value)), "behavioral_cohort_found", detail);
    }
    accepted(cohort(json!(1)));
    accepted(cohort(json!("1")));
}

#[test]
fn rules_26_to_28_values_of_operators() {
    let property = |operator: &str, value: Value| {
        with_property(json!({"key": "email", "type": "person", "value": value, "operator": operator}))
    };
    for operator in ["is_date_before", "is_date_after"] {
        refused_with(property(operator, json!("soon")), "invalid_date", "Invalid date value: soon");
        refused_with(property(operator, json!(["-1d"])), "invalid_date", "Invalid date value: ['-1d']");
        accepted(property(operator, json!("-14d")));
        accepted(property(operator, json!("2022-05-01")));
    }
    for operator in ["regex", "not_regex", "icontains", "not_icontains", "gt", "gte", "lt", "lte"] {
        let detail = format!("Invalid value for operator {operator}: ['@posthog.com']");
        refused_with(property(operator, json!(["@posthog.com"])), "invalid_value", &detail);
        let detail = format!("Invalid value for operator {operator}: 30");
        refused_with(property(operator, json!(30)), "invalid_value", &detail);
        accepted(property(operator, json!("[\"@posthog.com\"]")));
    }
    for operator in ["in", "not_in"] {
        let detail = format!(
            "The '{operator}' operator is only valid for cohort properties, not 'person' properties."
        );
        refused_with(property(operator, json!(["x"])), "invalid_operator", &detail);
        accepted(with_property(json!({"key": "id", "type": "cohort", "value": 1, "operator": operator})));
    }
}

#[test]
fn rules_of_values_run_condition_by_condition() {
    let filters = json!({"groups": [
        {"properties": [{"key": "a", "type": "person", "value": 1, "operator": "gt"}]},
        {"variant": "nope", "properties": []},
    ]});
    refused_with(filters, "invalid_value", "Invalid value for operator gt: 1");
}

#[test]
fn rules_29_to_32_payloads() {
    let payloads = |payloads: Value| json!({"groups": [{}], "payloads": payloads});
    refused(payloads(json!([])), "Payloads must be passed as a dictionary");
    refused(payloads(json!(null)), "Payloads must be passed as a dictionary");
    refused(payloads(json!({"true": "not json"})), "Payload value is not valid JSON");
    refused(payloads(json!({"true": "1", "a": "2"})), "Payload keys must be 'true' for boolean flags");
    let variants = |payloads: Value| {
        let mut filters = with_variants(json!([{"key": "a", "rollout_percentage": 100}]));
        filters["payloads"] = payloads;
        filters
    };
    refused(variants(json!({"true": "1"})), "Payload keys must match a variant key for multivariate flags");
    accepted(variants(json!({"a": "{\"x\": 1}"})));
    accepted(payloads(json!({"true": 5})));
    for kept in [json!([1, 2]), json!(null), json!(false), json!("\"text\"")] {
        accepted(payloads(json!({"true": kept})));
    }
}

#[test]
fn caps() {
    let mut deep = json!(1);
    for _ in 0..limits::NESTING {
        deep = json!([deep]);
    }
    refused(json!({"groups": [{}], "x": deep}), "filters must not be nested deeper than 32 levels");
    let large = "x".repeat(limits::FILTERS_BYTES);
    refused(json!({"groups": [{}], "x": large}), "filters must not be larger than 256 KiB as JSON");
    refused(with_groups(json!(vec![json!({}); 1001])), "groups must not have more than 1000 entries");
    let property = json!({"key": "a", "type": "person", "value": "x"});
    let detail = "groups[0].properties must not have more than 200 entries";
    refused(with_groups(json!([{"properties": vec![property; 201]}])), detail);
    let pattern = |text: &str| json!({"key": "a", "type": "person", "operator": "regex", "value": text});
    let detail = "groups[0].properties[0].value: a pattern must not be longer than 4096 bytes";
    refused(with_property(pattern(&"a".repeat(4097))), detail);
    let many = json!({"properties": vec![pattern("a"); 51]});
    refused(
        with_groups(json!([many, many])),
        "A feature flag must not have more than 100 regular expressions",
    );
    let on_many = |kind: &str, key: &str| {
        let properties: Vec<Value> =
            (0..101).map(|n| json!({"key": "k", "type": kind, key: n.to_string()})).collect();
        let more: Vec<Value> =
            (200..301).map(|n| json!({"key": "k", "type": kind, key: n.to_string()})).collect();
        json!([{"properties": properties}, {"properties": more}])
    };
    let detail = "A feature flag must not refer to more than 200 cohorts";
    refused(with_groups(on_many("cohort", "value")), detail);
}

#[test]
fn stored_form() {
    let sent = json!({
        "groups": [{"properties": [
            {"key": "id", "type": "cohort", "value": 1, "cohort_name": "good"},
            {"key": "cohort_name", "type": "person", "value": 25.0},
        ], "rollout_percentage": 50, "note": "kept"}],
        "payloads": {"true": {"key": "value"}},
        "custom": [1, {"a": null}],
    });
    let stored = json!({
        "groups": [{"properties": [
            {"key": "id", "type": "cohort", "value": 1},
            {"key": "cohort_name", "type": "person", "value": 25.0},
        ], "rollout_percentage": 50, "note": "kept"}],
        "payloads": {"true": "{\"key\":\"value\"}"},
        "custom": [1, {"a": null}],
    });
    assert_eq!(parse_input(sent, WriteKind::Create), Ok(stored.as_object().cloned()));
}

#[test]
fn a_mask_keeps_the_stored_payload() {
    let references = references();
    let stored = testing::object(json!({"groups": [{}], "payloads": {"true": "\"secret\""}}));
    let masked = FilterContext { masked: Some(&stored), ..context(&references, WriteKind::Update) };
    let sent = json!({"groups": [{}], "payloads": {"true": "********* (encrypted)"}});
    assert_eq!(parse(Some(&sent), &masked).unwrap().unwrap()["payloads"], json!({"true": "\"secret\""}));
    refused(sent, "Payload value is not valid JSON");
}
