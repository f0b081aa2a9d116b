//! Property filters: as sent in queries, and as returned in responses.

use pennon_analytics::filter::{EVENT_TYPES, NON_EVENT_TYPES};
use pennon_analytics::{COHORT_TYPES, ELEMENT_EXACT_KEYS, ELEMENT_TEXT_KEYS};
use serde_json::{Value, json};

use crate::limits::{
    GROUP_TYPE_MAX, GROUP_TYPES, NAME_MAX, SESSION_DURATION, duration_operators, operators,
    presence_operators, session_fields_without_duration,
};
use crate::schema::{
    any, any_of, constant, enum_of, id, input, integer_in, list, nullable, object, object_with_optional,
    schema_ref, text,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("EventConditions", conditions()),
        ("EventCondition", condition()),
        ("EventConditionGroup", group()),
        ("EventConditionResponse", condition_response()),
    ]
}

/// One of these texts, or null.
fn null_or(texts: &[&str]) -> Value {
    nullable(enum_of(texts))
}

/// A group type index, as a number or text.
pub(crate) fn group_type() -> Value {
    any_of([
        json!({"type": "null"}),
        integer_in(0, GROUP_TYPE_MAX),
        json!({"type": "string", "pattern": r"^[ \t\r\n]*0*[0-4][ \t\r\n]*$"}),
    ])
}

/// Property filters: a list (AND), a group, a single condition, or the legacy form with values by `key__operator`. Each is
/// accepted as JSON text too.
fn conditions() -> Value {
    let older = json!({
        "type": "object",
        "properties": {"key": false, "values": false, "type": {"not": {"enum": ["AND", "OR"]}}},
    });
    any_of([
        null_or_blank(),
        list(member()),
        schema_ref("EventConditionGroup"),
        schema_ref("EventCondition"),
        older,
    ])
}

/// Null or blank.
pub(crate) fn null_or_blank() -> Value {
    json!({"type": ["null", "string"], "pattern": r"^[ \t\r\n]*$"})
}

fn member() -> Value {
    any_of([schema_ref("EventCondition"), schema_ref("EventConditionGroup")])
}

fn group() -> Value {
    let group = |required: &[&str], kind: Value| {
        let mut group = input(required, [("type", kind), ("values", nullable(list(member())))]);
        group["properties"]["key"] = json!(false);
        group
    };
    any_of([group(&["values"], nullable(enum_of(&["AND", "OR"]))), group(&["type"], enum_of(&["AND", "OR"]))])
}

/// A condition on the object in `type`, by default the event. Incomplete conditions and unknown types are ignored.
fn condition() -> Value {
    let own =
        condition_of_type(null_or(&["event", "events", "feature", "person"]), key(), null_or(&operators()));
    let group_columns = (0..GROUP_TYPES).map(|index| format!("$group_{index}"));
    let columns: Vec<String> = ["event", "distinct_id", "person_id", "timestamp"]
        .into_iter()
        .map(str::to_owned)
        .chain(group_columns)
        .collect();
    let columns = json!({"type": "string", "enum": columns});
    let mut of_group = typed_condition("group", key(), null_or(&operators()));
    of_group["properties"]["group_type_index"] = group_type();
    let mut duration =
        typed_condition("session", constant(json!(SESSION_DURATION)), null_or(&duration_operators()));
    let number = json!({"type": ["number", "null"]});
    duration["properties"]["value"] = any_of([number, list(json!({"type": "number"}))]);
    let expression = json!({"type": ["string", "number", "boolean", "null"]});
    any_of([
        optional_type(own),
        of_group,
        typed_condition("element", enum_of(&ELEMENT_TEXT_KEYS), null_or(&operators())),
        typed_condition("element", enum_of(&ELEMENT_EXACT_KEYS), null_or(&["exact", "is_not"])),
        typed_condition("event_metadata", columns, null_or(&operators())),
        typed_condition("session", enum_of(&session_fields_without_duration()), null_or(&operators())),
        duration,
        cohort_condition(),
        input(&["key", "type"], [("type", constant(json!("hogql"))), ("key", expression)]),
        input(&["key", "type"], [("type", constant(json!("flag")))]),
        condition_without_value(),
        condition_of_unknown_type(),
        condition_without_key(),
    ])
}

fn key() -> Value {
    json!({"maxLength": NAME_MAX})
}

fn typed_condition(kind: &str, key: Value, operator: Value) -> Value {
    condition_of_type(constant(json!(kind)), key, operator)
}

fn condition_of_type(kind: Value, key: Value, operator: Value) -> Value {
    input(&["key", "type"], [("type", kind), ("key", key), ("operator", operator), ("value", any())])
}

fn optional_type(mut condition: Value) -> Value {
    condition["required"] = json!(["key"]);
    condition
}

/// A cohort condition; negated with `negation` or `not_in`.
fn cohort_condition() -> Value {
    let spelled = json!({"type": "string", "pattern": r"^[ \t\r\n]*[0-9]{1,18}[ \t\r\n]*$"});
    let id = any_of([id(), spelled]);
    let one = json!({"type": "array", "items": id, "minItems": 1, "maxItems": 1});
    let value = any_of([json!({"type": "null"}), id, one]);
    input(&["key", "type"], [("type", enum_of(&COHORT_TYPES)), ("value", value), ("negation", any())])
}

/// A condition of another type without a value, which is ignored.
fn condition_without_value() -> Value {
    let without = presence_operators();
    let operators: Vec<&str> = operators().into_iter().filter(|name| !without.contains(name)).collect();
    let null = || json!({"type": "null"});
    input(
        &["key", "type"],
        [
            ("type", enum_of(&["element", "event_metadata", "session"])),
            ("operator", null_or(&operators)),
            ("value", null()),
            ("values", null()),
        ],
    )
}

/// A condition of an unknown type, which is ignored.
fn condition_of_unknown_type() -> Value {
    let cohorts = COHORT_TYPES.into_iter().filter(|name| !EVENT_TYPES.contains(name));
    let known: Vec<&str> =
        EVENT_TYPES.into_iter().chain(["events", "flag"]).chain(cohorts).chain(NON_EVENT_TYPES).collect();
    let elsewhere = json!({"type": "string", "pattern": "^data_warehouse"});
    let unknown = json!({"type": "string", "not": any_of([json!({"enum": known}), elsewhere])});
    input(&["key", "type"], [("type", unknown)])
}

fn condition_without_key() -> Value {
    let groups_and_elsewhere: Vec<&str> = ["AND", "OR"].into_iter().chain(NON_EVENT_TYPES).collect();
    let kind = json!({"type": ["string", "null"], "not": {"enum": groups_and_elsewhere}});
    let mut condition = input(&[], [("type", kind), ("operator", null_or(&operators()))]);
    condition["properties"]["key"] = json!(false);
    condition["properties"]["values"] = json!(false);
    condition
}

/// Property filters in responses: a list (AND) or a group.
pub(crate) fn conditions_response() -> Value {
    any_of([list(schema_ref("EventConditionResponse")), schema_ref("EventConditionResponse")])
}

fn condition_response() -> Value {
    let kinds: Vec<&str> =
        EVENT_TYPES.into_iter().filter(|name| !["cohort", "hogql"].contains(name)).collect();
    any_of([
        object_with_optional(
            [("key", text()), ("operator", enum_of(&operators())), ("type", enum_of(&kinds))],
            [("group_type_index", integer_in(0, GROUP_TYPE_MAX)), ("value", any())],
        ),
        object([
            ("key", constant(json!("id"))),
            ("operator", enum_of(&["in", "not_in"])),
            ("type", constant(json!("cohort"))),
            ("value", id()),
        ]),
        object([("key", text()), ("type", constant(json!("hogql")))]),
        object([("type", enum_of(&["AND", "OR"])), ("values", list(schema_ref("EventConditionResponse")))]),
    ])
}
