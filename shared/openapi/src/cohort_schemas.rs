//! Schemas of cohorts: requests and responses.
//!
//! A schema only validates the shape of rules. The server also compiles them, so valid JSON may still be a 400.

use pennon_analytics::{BEHAVIOUR_UNITS, BEHAVIOURS, COHORT_TYPES};
use serde_json::{Value, json};

use crate::limits::{NAME_MAX, insights, operators, presence_operators};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, id, input, instant, list, list_max,
    non_empty_text_max, nullable, number, object, schema_ref, text, text_max, with_description,
};
use crate::workspace_schemas::{empty_value, optional_text_or_number};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let persons =
        json!({"type": "array", "items": person(), "minItems": 1, "maxItems": insights::PERSONS_AT_ONCE});
    vec![
        ("Cohort", cohort()),
        ("CohortCreate", any_of([schema_ref("RuleCohortCreate"), schema_ref("StaticCohortCreate")])),
        ("RuleCohortCreate", rule_cohort_create()),
        ("StaticCohortCreate", static_cohort_create()),
        ("CohortUpdate", cohort_update()),
        ("CohortUpload", cohort_upload(true)),
        ("CohortUploadUpdate", cohort_upload(false)),
        ("CohortRules", rules()),
        ("CohortCriterion", criterion()),
        ("CohortPersons", input(&["person_ids"], [("person_ids", persons)])),
        ("CohortPerson", input(&["person_id"], [("person_id", person())])),
    ]
}

fn cohort() -> Value {
    object([
        ("id", id()),
        ("name", nullable(text())),
        ("description", text()),
        ("groups", list(any())),
        ("deleted", boolean()),
        ("filters", any_object()),
        ("query", constant(Value::Null)),
        ("is_calculating", constant(json!(false))),
        ("created_by", nullable(schema_ref("User"))),
        ("created_at", instant()),
        ("last_calculation", nullable(instant())),
        ("errors_calculating", json!({"type": "integer", "minimum": 0})),
        ("count", nullable(json!({"type": "integer", "minimum": 0}))),
        ("is_static", boolean()),
        ("cohort_type", constant(Value::Null)),
        ("experiment_set", list_max(0, any())),
    ])
}

/// A UUID in any of its spellings.
fn person() -> Value {
    let hyphens = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
    let pattern = format!(r"^ *([0-9a-fA-F]{{32}}|(urn:uuid:)?{hyphens}|\{{{hyphens}\}}) *$");
    json!({"type": "string", "pattern": pattern})
}

/// Values that count as true in a body.
fn true_value() -> Value {
    let words = "^ *([Tt]([Rr][Uu][Ee])?|[Yy]([Ee][Ss])?|[Oo][Nn]|1) *$";
    any_of([constant(json!(true)), constant(json!(1)), json!({"type": "string", "pattern": words})])
}

/// Values that count as false in a body.
fn false_value() -> Value {
    let words = "^ *([Ff]([Aa][Ll][Ss][Ee])?|[Nn][Oo]?|[Oo][Ff][Ff]|0) *$";
    any_of([constant(json!(false)), constant(json!(0)), json!({"type": "string", "pattern": words})])
}

/// The fields that every body of a cohort may have.
fn cohort_input<const N: usize>(required: &[&str], more: [(&str, Value); N]) -> Value {
    let groups = "The legacy form of rules: a person belongs if one entry matches. An entry has \
        `properties`, or an `event_id` or `action_id` with `days`, `count` and `count_operator`.";
    let mut schema = input(
        required,
        [
            ("query", empty_value()),
            ("name", optional_text_or_number(insights::TEXT_CHARS)),
            ("description", optional_text_or_number(insights::DESCRIPTION_CHARS)),
            ("groups", with_description(nullable(list(any())), groups)),
            ("deleted", schema_ref("FlagBoolean")),
        ],
    );
    for (name, field) in more {
        schema["properties"][name] = field;
    }
    schema
}

/// A cohort with rules. Rules of a deleted cohort are not validated.
fn rule_cohort_create() -> Value {
    let none = || list_max(0, any());
    let mut schema = cohort_input(
        &[],
        [
            ("is_static", false_value()),
            ("filters", nullable(input(&["properties"], [("properties", any())]))),
            ("_create_static_person_ids", none()),
            ("distinct_ids", none()),
        ],
    );
    schema["if"] = json!({"properties": {"deleted": true_value()}, "required": ["deleted"]});
    schema["else"] = json!({"properties": {"filters": nullable(schema_ref("CohortRules"))}});
    schema
}

/// A static cohort. Its rules are ignored.
fn static_cohort_create() -> Value {
    cohort_input(
        &["is_static"],
        [
            ("is_static", true_value()),
            ("filters", nullable(any_object())),
            ("_create_static_person_ids", with_description(list(person()), "The members, by person id.")),
            ("distinct_ids", distinct_ids()),
        ],
    )
}

fn distinct_ids() -> Value {
    with_description(
        list(non_empty_text_max(insights::DISTINCT_ID_BYTES)),
        format!("The members, by one distinct id each: 1 to {} bytes.", insights::DISTINCT_ID_BYTES),
    )
}

/// Whether there are rules or members is known of the cohort, and has to stay so.
fn cohort_update() -> Value {
    cohort_input(
        &[],
        [
            ("is_static", schema_ref("FlagBoolean")),
            ("filters", nullable(any_object())),
            ("distinct_ids", distinct_ids()),
        ],
    )
}

/// A form: texts, and a table of members as a file. Only a cohort that is there can be known to have members.
fn cohort_upload(is_new: bool) -> Value {
    let file = with_description(
        json!({"type": "string", "format": "binary"}),
        "A CSV file in UTF-8, for static cohorts only.",
    );
    let mut form = input(
        &[],
        [
            ("name", text_max(insights::TEXT_CHARS)),
            ("description", text_max(insights::DESCRIPTION_CHARS)),
            ("is_static", schema_ref("FlagBoolean")),
            ("deleted", schema_ref("FlagBoolean")),
            ("csv", file),
        ],
    );
    if is_new {
        let is_list = json!({"required": ["is_static"], "properties": {"is_static": true_value()}});
        form["dependentSchemas"] = json!({"csv": is_list});
    }
    form
}

/// Rules: a group, whose members are criteria or groups, at any depth.
fn rules() -> Value {
    let kind = || json!({"type": "string", "pattern": "^([Aa][Nn][Dd]|[Oo][Rr])$"});
    let group = |member: Value| {
        let mut group = input(&["type", "values"], [("type", kind()), ("values", list(member))]);
        group["not"] = json!({"required": ["key"]});
        group
    };
    let inner = group(any_of([schema_ref("CohortCriterion"), group(any_object())]));
    let outer = group(any_of([schema_ref("CohortCriterion"), inner]));
    let none = json!({"type": ["object", "string", "number", "boolean", "null"], "maxProperties": 0});
    let none = with_description(
        none,
        "Accepted without effect: the rules are in `groups`; without rules the cohort is empty.",
    );
    input(&["properties"], [("properties", any_of([outer, list(schema_ref("CohortCriterion")), none]))])
}

/// A criterion: a property of the person, another cohort, or what the person did. `negation` takes away whom
/// it meets.
fn criterion() -> Value {
    let key = || any_of([non_empty_text_max(NAME_MAX), number()]);
    let property = |required: &[&str], operator, value| {
        let person = constant(json!("person"));
        input(
            required,
            [("type", person), ("key", key()), ("operator", operator), ("value", value), ("negation", any())],
        )
    };
    let value = json!({"type": ["string", "number", "boolean", "array", "object"]});
    let compared = property(&["key", "value"], nullable(enum_of(&operators())), value);
    let is_there = property(&["key", "operator"], enum_of(&presence_operators()), any());
    let cohort = input(
        &["type", "value"],
        [("type", enum_of(&COHORT_TYPES)), ("value", schema_ref("FlagInteger")), ("negation", any())],
    );
    any_of([compared, is_there, cohort, behaviour()])
}

fn behaviour() -> Value {
    let unit = || enum_of(&BEHAVIOUR_UNITS);
    let times = || schema_ref("FlagInteger");
    let source = || enum_of(&["events", "actions"]);
    input(
        &["type", "key", "value"],
        [
            ("type", constant(json!("behavioral"))),
            ("key", any_of([non_empty_text_max(NAME_MAX), id()])),
            ("event_type", source()),
            ("value", enum_of(&BEHAVIOURS)),
            ("event_filters", nullable(list(any_object()))),
            ("explicit_datetime", nullable(text())),
            ("time_value", times()),
            ("time_interval", unit()),
            ("operator", nullable(enum_of(&["eq", "exact", "gte", "gt", "lte", "lt"]))),
            ("operator_value", nullable(times())),
            ("seq_event", any_of([text(), id()])),
            ("seq_event_type", source()),
            ("seq_time_value", nullable(times())),
            ("seq_time_interval", nullable(unit())),
            ("min_periods", nullable(times())),
            ("total_periods", nullable(times())),
            ("negation", any()),
        ],
    )
}
