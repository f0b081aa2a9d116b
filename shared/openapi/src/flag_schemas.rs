//! Schemas of feature flags: requests, responses, and the definitions that SDKs poll.

use pennon_filters::limits::TAGS;
use pennon_flag_rules::evaluate::EvaluationReason;
use pennon_flag_rules::flag::field_table::{
    DefinitionsValue, FLAG_FIELDS, FieldKind, FieldWrite, FlagField, ResponseValue, definition_fields,
};
use pennon_flag_rules::flag::status::Status;
use pennon_flag_rules::limits;
use serde_json::{Value, json};

use crate::limits::flag_operators;
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, id, input, instant, integer, list, list_max, map,
    nullable, number, object, object_with_optional, schema_ref, text, text_max, with_description,
};

/// Description of the time of a flag's latest call.
const LAST_CALLED: &str = "The latest time of an event `$feature_flag_called` with the flag's key, or the time that was set, if later.";

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("FeatureFlag", flag()),
        ("FeatureFlagCreate", flag_input(&["key"], schema_ref("FlagFiltersCreate"))),
        ("FeatureFlagUpdate", flag_input(&[], filters_update())),
        ("FeatureFlagReplace", flag_input(&["key"], filters_update())),
        ("FlagBoolean", flag_boolean()),
        ("FlagInteger", flag_integer()),
        ("FlagFilters", filters(any_object())),
        ("FlagFiltersInput", filters(property())),
        ("FlagFiltersCreate", filters_create()),
        ("FeatureFlagStatus", status()),
        ("FeatureFlagNotFound", flag_not_found()),
        ("FeatureFlagValue", any_of([boolean(), text()])),
        ("FeatureFlagEvaluation", evaluation()),
        ("MinimalFlag", minimal_flag()),
        ("FlagDefinitions", definitions()),
        ("FlagCohort", cohort()),
        ("BlastRadiusRequest", blast_radius_request()),
        ("BlastRadius", blast_radius()),
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
    let other = || {
        nullable(list_max(
            limits::CONDITIONS,
            input(&[], [("properties", list_max(limits::PROPERTIES, any_object()))]),
        ))
    };
    let condition = input(
        &[],
        [
            ("properties", list_max(limits::PROPERTIES, property)),
            ("rollout_percentage", nullable(percentage())),
            ("variant", nullable(text())),
        ],
    );
    let variant =
        input(&["key", "rollout_percentage"], [("key", text()), ("rollout_percentage", percentage())]);
    let variants = input(&["variants"], [("variants", list_max(limits::VARIANTS, variant))]);
    input(
        &["groups"],
        [
            ("groups", list_max(limits::CONDITIONS, condition)),
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
            ("operator", nullable(enum_of(&flag_operators()))),
            ("value", any()),
        ],
    )
}

fn filters_create() -> Value {
    let at_least_one = json!({"properties": {"groups": {"minItems": 1}}});
    json!({"allOf": [schema_ref("FlagFiltersInput"), at_least_one]})
}

/// Filters of an update; without `groups` the stored groups stay.
fn filters_update() -> Value {
    json!({"type": "object", "if": {"required": ["groups"]}, "then": schema_ref("FlagFiltersInput")})
}

/// The fields that a body may have.
fn flag_input(required: &[&str], filters: Value) -> Value {
    let fields = FLAG_FIELDS.iter().filter(|field| !matches!(field.write, FieldWrite::Ignored));
    input(required, fields.map(|field| (field.name, request_value(field, &filters))))
}

/// The schema of a field in a body.
fn request_value(field: &FlagField, filters: &Value) -> Value {
    let schema = match field.kind {
        FieldKind::Boolean => schema_ref("FlagBoolean"),
        FieldKind::Integer | FieldKind::Id => schema_ref("FlagInteger"),
        FieldKind::Text(rule) => any_of([text_max(rule.max_chars), number()]),
        FieldKind::Key => {
            let pattern = format!(r"^\s*[A-Za-z0-9_-]{{1,{}}}\s*$", limits::KEY_CHARS);
            any_of([json!({"type": "string", "pattern": pattern}), integer()])
        }
        FieldKind::Filters => filters.clone(),
        FieldKind::OneOf(choices) => enum_of(choices),
        FieldKind::Instant => instant(),
        FieldKind::CallTime => text(),
        FieldKind::Tags => list(text()),
        FieldKind::Dashboards => list_max(limits::DASHBOARDS, schema_ref("FlagInteger")),
        FieldKind::AnyJson | FieldKind::User | FieldKind::Percentage | FieldKind::EmptyList => any(),
    };
    if field.nullable { nullable(schema) } else { schema }
}

fn flag() -> Value {
    let fields = FLAG_FIELDS.iter().filter(|field| !matches!(field.response, ResponseValue::Absent));
    object(fields.map(|field| (field.name, response_value(field))))
}

/// The schema of a field in a response.
fn response_value(field: &FlagField) -> Value {
    let schema = match field.kind {
        FieldKind::Boolean => boolean(),
        FieldKind::Integer => integer(),
        FieldKind::Id => id(),
        FieldKind::Percentage => percentage(),
        FieldKind::Text(_) | FieldKind::Key => text(),
        FieldKind::OneOf(choices) => enum_of(choices),
        FieldKind::Instant => instant(),
        FieldKind::CallTime => with_description(instant(), LAST_CALLED),
        FieldKind::AnyJson => any(),
        FieldKind::User => schema_ref("User"),
        FieldKind::Filters => schema_ref("FlagFilters"),
        FieldKind::Tags => list_max(TAGS, text()),
        FieldKind::Dashboards => list(id()),
        FieldKind::EmptyList => list_max(0, any()),
    };
    if field.nullable { nullable(schema) } else { schema }
}

fn status() -> Value {
    let statuses = [Status::Active, Status::Stale, Status::Deleted].map(Status::endpoint_value);
    let rollout = object([
        ("effectively_full_rollout", boolean()),
        ("has_targeting_conditions", boolean()),
        ("max_rollout_percentage", nullable(percentage())),
        ("is_multivariate", boolean()),
    ]);
    object([
        ("status", enum_of(&statuses)),
        ("reason", text()),
        ("reason_states_rollout", boolean()),
        ("rollout", rollout),
    ])
}

/// The 404 of a status: status and error fields in one object.
fn flag_not_found() -> Value {
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
        EvaluationReason::ConditionMatch,
        EvaluationReason::NoConditionMatch,
        EvaluationReason::OutOfRolloutBound,
        EvaluationReason::NoGroupType,
        EvaluationReason::SuperConditionValue,
        EvaluationReason::HoldoutConditionValue,
        EvaluationReason::Disabled,
        EvaluationReason::MissingDependency,
    ]
    .map(EvaluationReason::as_str);
    let evaluation = object([
        ("reason", enum_of(&reasons)),
        ("condition_index", nullable(json!({"type": "integer", "minimum": 0}))),
        ("description", text()),
    ]);
    object([("value", schema_ref("FeatureFlagValue")), ("evaluation", evaluation)])
}

fn minimal_flag() -> Value {
    let (optional, required): (Vec<_>, Vec<_>) =
        definition_fields().iter().copied().partition(|(_, value)| *value == DefinitionsValue::OmittedIfNull);
    let schema = |(field, value): (&'static FlagField, DefinitionsValue)| {
        let schema = match value {
            DefinitionsValue::AlwaysFalse => constant(json!(false)),
            DefinitionsValue::OmittedIfNull | DefinitionsValue::FalseIfNull => {
                response_value(&FlagField { nullable: false, ..*field })
            }
            DefinitionsValue::Stored
            | DefinitionsValue::Filters
            | DefinitionsValue::Project
            | DefinitionsValue::EmptyList => response_value(field),
        };
        (field.name, schema)
    };
    object_with_optional(required.into_iter().map(schema), optional.into_iter().map(schema))
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

fn blast_radius_request() -> Value {
    let property = input(&[], [("operator", nullable(enum_of(&flag_operators())))]);
    let condition = input(&[], [("properties", nullable(list_max(limits::PROPERTIES, property)))]);
    let index = json!({"allOf": [schema_ref("FlagInteger"), {"not": {"type": "integer", "maximum": -1}}, {"not": {"type": "string", "pattern": "-"}}]});
    let filters = input(
        &[],
        [
            ("groups", list_max(limits::CONDITIONS, condition.clone())),
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

fn blast_radius() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    object([("users_affected", count()), ("total_users", count()), ("affected", count()), ("total", count())])
}
