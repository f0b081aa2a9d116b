//! Schemas of feature flags: requests, responses, and the definitions that SDKs poll.

use serde_json::{Value, json};

use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, extend_object, id, input, instant, integer, list,
    list_max, map, nullable, number, object, object_with_optional, schema_ref, text, text_max,
    with_description,
};

/// Description of the time of a flag's latest call.
const LAST_CALLED: &str = "The latest time of an event `$feature_flag_called` with the flag's key, or the time that was set, if later.";

/// The operators that a property may have.
const OPERATORS: [&str; 35] = [
    "exact",
    "is_not",
    "icontains",
    "not_icontains",
    "regex",
    "not_regex",
    "gt",
    "gte",
    "lt",
    "lte",
    "is_set",
    "is_not_set",
    "is_date_exact",
    "is_date_before",
    "is_date_after",
    "in",
    "not_in",
    "flag_evaluates_to",
    "between",
    "not_between",
    "starts_with",
    "not_starts_with",
    "ends_with",
    "not_ends_with",
    "icontains_multi",
    "not_icontains_multi",
    "semver_eq",
    "semver_neq",
    "semver_gt",
    "semver_gte",
    "semver_lt",
    "semver_lte",
    "semver_tilde",
    "semver_caret",
    "semver_wildcard",
];
const CONTEXTS: [&str; 6] =
    ["feature_flags", "experiments", "surveys", "early_access_features", "web_experiments", "product_tours"];
const RUNTIMES: [&str; 3] = ["server", "client", "all"];
const IDENTIFIERS: [&str; 2] = ["distinct_id", "device_id"];

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("FeatureFlag", flag()),
        ("FeatureFlagCreate", sent(&["key"], schema_ref("FlagFiltersCreated"))),
        ("FeatureFlagUpdate", sent(&[], filters_changed())),
        ("FeatureFlagReplace", sent(&["key"], filters_changed())),
        ("FlagBoolean", flag_boolean()),
        ("FlagInteger", flag_integer()),
        ("FlagFilters", filters(any_object())),
        ("FlagFiltersSent", filters(property())),
        ("FlagFiltersCreated", filters_created()),
        ("FeatureFlagStatus", status()),
        ("FeatureFlagUnknown", unknown()),
        ("FeatureFlagValue", any_of([boolean(), text()])),
        ("FeatureFlagEvaluation", evaluation()),
        ("MinimalFlag", minimal()),
        ("FlagDefinitions", definitions()),
        ("FlagCohort", cohort()),
        ("BlastRadiusQuestion", question()),
        ("BlastRadius", radius()),
    ]
}

/// Values that count as booleans in a body.
fn flag_boolean() -> Value {
    let words = r"^\s*([Tt]([Rr][Uu][Ee])?|[Yy]([Ee][Ss])?|[Oo][Nn]|[Ff]([Aa][Ll][Ss][Ee])?|[Nn][Oo]?|[Oo][Ff][Ff]|0|1)\s*$";
    any_of([boolean(), json!({"enum": [0, 1]}), json!({"type": "string", "pattern": words})])
}

/// Values that count as whole numbers in a body.
fn flag_integer() -> Value {
    any_of([integer(), json!({"type": "string", "pattern": r"^\s*[+-]?[0-9]+(\.0*)?\s*$"})])
}

fn percentage() -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 100})
}

/// Filters whose conditions have properties of this schema. Other keys are stored unchanged.
fn filters(property: Value) -> Value {
    let other = || nullable(list_max(1000, input(&[], [("properties", list_max(200, any_object()))])));
    let condition = input(
        &[],
        [
            ("properties", list_max(200, property)),
            ("rollout_percentage", nullable(percentage())),
            ("variant", nullable(text())),
        ],
    );
    let variant =
        input(&["key", "rollout_percentage"], [("key", text()), ("rollout_percentage", percentage())]);
    let variants = input(&["variants"], [("variants", list_max(200, variant))]);
    input(
        &["groups"],
        [
            ("groups", list_max(1000, condition)),
            (
                "multivariate",
                any_of([variants, json!({"type": "null"}), json!({"type": "object", "maxProperties": 0})]),
            ),
            ("payloads", any_object()),
            ("aggregation_group_type_index", nullable(integer())),
            ("super_groups", other()),
            ("holdout_groups", other()),
            ("feature_enrollment", any()),
            ("holdout", nullable(any_object())),
        ],
    )
}

/// A property of a condition.
fn property() -> Value {
    let key = any_of([json!({"type": "string", "minLength": 1}), number()]);
    input(
        &["key", "type"],
        [
            ("key", key),
            ("type", enum_of(&["person", "cohort", "flag", "group"])),
            ("operator", nullable(enum_of(&OPERATORS))),
            ("value", any()),
        ],
    )
}

fn filters_created() -> Value {
    let at_least_one = json!({"properties": {"groups": {"minItems": 1}}});
    json!({"allOf": [schema_ref("FlagFiltersSent"), at_least_one]})
}

/// Filters of an update; without `groups` the stored groups stay.
fn filters_changed() -> Value {
    json!({"type": "object", "if": {"required": ["groups"]}, "then": schema_ref("FlagFiltersSent")})
}

/// The fields that a body may have.
fn sent(required: &[&str], filters: Value) -> Value {
    let truth = || schema_ref("FlagBoolean");
    let maybe = || nullable(schema_ref("FlagBoolean"));
    let key = json!({"type": "string", "pattern": r"^\s*[A-Za-z0-9_-]{1,400}\s*$"});
    input(
        required,
        [
            ("name", any_of([text_max(10_000), number()])),
            ("key", any_of([key, integer()])),
            ("filters", filters),
            ("deleted", truth()),
            ("active", truth()),
            ("created_at", instant()),
            ("version", schema_ref("FlagInteger")),
            ("original_flag", any()),
            ("ensure_experience_continuity", maybe()),
            ("rollback_conditions", any()),
            ("performed_rollback", maybe()),
            ("tags", list(text())),
            ("analytics_dashboards", list_max(500, schema_ref("FlagInteger"))),
            ("has_enriched_analytics", maybe()),
            ("creation_context", nullable(enum_of(&CONTEXTS))),
            ("is_remote_configuration", maybe()),
            ("has_encrypted_payloads", maybe()),
            ("evaluation_runtime", nullable(enum_of(&RUNTIMES))),
            ("bucketing_identifier", nullable(enum_of(&IDENTIFIERS))),
            ("last_called_at", nullable(text())),
            ("_should_create_usage_dashboard", truth()),
        ],
    )
}

fn flag() -> Value {
    let none = || list_max(0, any());
    let head = object([
        ("id", id()),
        ("name", text()),
        ("key", text()),
        ("filters", schema_ref("FlagFilters")),
        ("deleted", boolean()),
        ("active", boolean()),
        ("created_by", nullable(schema_ref("User"))),
        ("created_at", instant()),
        ("updated_at", instant()),
        ("version", integer()),
        ("last_modified_by", nullable(schema_ref("User"))),
        ("is_simple_flag", boolean()),
        ("rollout_percentage", nullable(percentage())),
        ("ensure_experience_continuity", nullable(boolean())),
        ("experiment_set", none()),
        ("surveys", none()),
        ("features", none()),
        ("rollback_conditions", any()),
        ("performed_rollback", nullable(boolean())),
    ]);
    extend_object(
        head,
        [
            ("can_edit", boolean()),
            ("tags", list_max(100, text())),
            ("evaluation_tags", none()),
            ("evaluation_contexts", none()),
            ("usage_dashboard", nullable(id())),
            ("analytics_dashboards", list(id())),
            ("has_enriched_analytics", nullable(boolean())),
            ("user_access_level", enum_of(&["manager", "editor", "viewer"])),
            ("creation_context", nullable(enum_of(&CONTEXTS))),
            ("is_remote_configuration", nullable(boolean())),
            ("has_encrypted_payloads", nullable(boolean())),
            ("status", enum_of(&["ACTIVE", "STALE", "DELETED"])),
            ("evaluation_runtime", nullable(enum_of(&RUNTIMES))),
            ("bucketing_identifier", nullable(enum_of(&IDENTIFIERS))),
            ("last_called_at", with_description(nullable(instant()), LAST_CALLED)),
        ],
    )
}

fn status() -> Value {
    let rollout = object([
        ("effectively_full_rollout", boolean()),
        ("has_targeting_conditions", boolean()),
        ("max_rollout_percentage", nullable(percentage())),
        ("is_multivariate", boolean()),
    ]);
    object([
        ("status", enum_of(&["active", "stale", "deleted"])),
        ("reason", text()),
        ("reason_states_rollout", boolean()),
        ("rollout", rollout),
    ])
}

/// The 404 of a status: status and error fields in one object.
fn unknown() -> Value {
    object([
        ("status", constant(json!("unknown"))),
        ("reason", text()),
        ("type", constant(json!("invalid_request"))),
        ("code", constant(json!("not_found"))),
        ("detail", text()),
        ("attr", constant(Value::Null)),
    ])
}

fn evaluation() -> Value {
    let reasons = [
        "condition_match",
        "no_condition_match",
        "out_of_rollout_bound",
        "no_group_type",
        "super_condition_value",
        "holdout_condition_value",
        "disabled",
        "missing_dependency",
    ];
    let evaluation = object([
        ("reason", enum_of(&reasons)),
        ("condition_index", nullable(json!({"type": "integer", "minimum": 0}))),
        ("description", text()),
    ]);
    object([("value", schema_ref("FeatureFlagValue")), ("evaluation", evaluation)])
}

fn minimal() -> Value {
    object_with_optional(
        [
            ("id", id()),
            ("team_id", id()),
            ("name", text()),
            ("key", text()),
            ("filters", schema_ref("FlagFilters")),
            ("deleted", constant(json!(false))),
            ("active", boolean()),
            ("ensure_experience_continuity", nullable(boolean())),
            ("has_encrypted_payloads", boolean()),
            ("version", integer()),
            ("evaluation_tags", list_max(0, any())),
            ("evaluation_contexts", list_max(0, any())),
        ],
        [("evaluation_runtime", enum_of(&RUNTIMES)), ("bucketing_identifier", enum_of(&IDENTIFIERS))],
    )
}

fn definitions() -> Value {
    object([
        ("flags", list(schema_ref("MinimalFlag"))),
        ("group_type_mapping", map(text())),
        ("cohorts", map(any_object())),
    ])
}

fn cohort() -> Value {
    object([
        ("id", id()),
        ("name", text()),
        ("description", constant(json!(""))),
        ("groups", list_max(0, any())),
        ("deleted", constant(json!(false))),
        ("filters", object([("properties", json!({"type": "object", "maxProperties": 0}))])),
        ("query", constant(Value::Null)),
        ("is_calculating", constant(json!(false))),
        ("created_by", schema_ref("User")),
        ("created_at", instant()),
        ("last_calculation", instant()),
        ("errors_calculating", constant(json!(0))),
        ("count", json!({"type": "integer", "minimum": 0})),
        ("is_static", constant(json!(true))),
        ("experiment_set", list_max(0, any())),
    ])
}

fn question() -> Value {
    let property = input(&[], [("operator", nullable(enum_of(&OPERATORS)))]);
    let condition = input(&[], [("properties", nullable(list_max(200, property)))]);
    let index = json!({"allOf": [schema_ref("FlagInteger"), {"not": {"type": "integer", "maximum": -1}}, {"not": {"type": "string", "pattern": "-"}}]});
    let filters = input(
        &[],
        [
            ("groups", list_max(1000, condition.clone())),
            ("feature_enrollment", any()),
            ("holdout", nullable(any_object())),
        ],
    );
    input(
        &[],
        [
            ("condition", nullable(condition)),
            ("group_type_index", nullable(index)),
            ("filters", nullable(filters)),
        ],
    )
}

fn radius() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    object([("users_affected", count()), ("total_users", count()), ("affected", count()), ("total", count())])
}
