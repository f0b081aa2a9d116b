//! Query nodes of insights, as sent in requests.
//!
//! Must stay true: the schema validates the fields that a write validates: the required and the known fields of the kinds
//! that are calculated, from the table of each kind. Nodes of other kinds are stored unchanged. Conditions and wrapped nodes
//! are validated one level deep; a write validates all levels, so a body that matches the schema may still be rejected.

use pennon_analytics::InsightKind;
use pennon_analytics::kinds::{
    ACTION_SERIES, CONDITION_TYPES, FLAG_OPERATOR, FieldType, SAVED_INSIGHT, SERIES_FIELDS, SERIES_KINDS,
    SavedNodeRules, WRAPPERS,
};
use serde_json::{Value, json};

use crate::limits::operators;
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, input, integer_in, list, nullable, number,
    schema_ref, text, with_description,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("InsightQuery", node()),
        ("InsightQueryResponse", query_response()),
        ("InsightSeriesQuery", calculated_query()),
        ("InsightQueryWrapper", wrapper_query()),
        ("OtherInsightQuery", other_query()),
        ("InsightSeries", series()),
        ("InsightCondition", condition()),
    ]
}

/// A node as it may be written.
fn node() -> Value {
    any_of([
        schema_ref("InsightSeriesQuery"),
        schema_ref("InsightQueryWrapper"),
        schema_ref("OtherInsightQuery"),
    ])
}

/// A node as it is stored, and perhaps with the filters of the request or of a dashboard laid over it.
fn query_response() -> Value {
    with_description(
        input(&["kind"], [("kind", kind())]),
        "The node as it was sent, unknown fields included.",
    )
}

fn kind() -> Value {
    json!({"type": "string", "pattern": "(Query|Node)$"})
}

/// A whole number that is kept as it is.
pub(crate) fn whole() -> Value {
    integer_in(i64::MIN, i64::MAX)
}

/// A node of a kind that is calculated: the fields that are validated when it is stored.
fn calculated_query() -> Value {
    // Kinds with the same rules share a schema.
    let mut schemas: Vec<(Vec<&str>, Value)> = Vec::new();
    for node in InsightKind::nodes() {
        let schema = node_of(&node.saved);
        match schemas.iter_mut().find(|(_, known)| *known == schema) {
            Some((kinds, _)) => kinds.push(node.kind),
            None => schemas.push((vec![node.kind], schema)),
        }
    }
    let with_kinds = |(kinds, mut schema): (Vec<&str>, Value)| {
        schema["properties"]["kind"] = enum_of(&kinds);
        schema
    };
    let mut schemas: Vec<Value> = schemas.into_iter().map(with_kinds).collect();
    if schemas.len() == 1 { schemas.remove(0) } else { any_of(schemas) }
}

/// A node with these rules, of any kind.
fn node_of(rules: &SavedNodeRules) -> Value {
    let required: Vec<&str> =
        std::iter::once("kind").chain(rules.required.iter().map(|(name, _)| *name)).collect();
    let mut node = input(&required, fields_of(rules, ""));
    node["properties"]["kind"] = any();
    for (name, field_type) in rules.required {
        node["properties"][*name] = field_schema(rules, name, *field_type);
    }
    node["properties"]["properties"] =
        any_of([conditions(), schema_ref("InsightCondition"), json!({"type": "null"})]);
    node
}

/// The validated fields of the object `parent` of a node, or of the node itself if it is empty.
fn fields_of(rules: &SavedNodeRules, parent: &str) -> Vec<(&'static str, Value)> {
    let own = rules.validated_fields().filter(|(of, ..)| *of == parent);
    own.map(|(_, field, field_type)| (*field, nullable(field_schema(rules, field, *field_type)))).collect()
}

/// The values of a field of a node.
fn field_schema(rules: &SavedNodeRules, field: &str, field_type: FieldType) -> Value {
    match field_type {
        FieldType::Object => input(&[], fields_of(rules, field)),
        other => type_schema(other),
    }
}

fn type_schema(field_type: FieldType) -> Value {
    match field_type {
        FieldType::String => text(),
        FieldType::Boolean => boolean(),
        FieldType::Integer => whole(),
        FieldType::Number => number(),
        FieldType::Object => any_object(),
        FieldType::List => list(any()),
        FieldType::ListOrObject => any_of([list(any()), any_object()]),
        FieldType::Series => list(schema_ref("InsightSeries")),
        FieldType::OneOf(choices) => enum_of(choices),
    }
}

/// A series of trends, or a step of a funnel. Without a kind it is of an event.
fn series() -> Value {
    let fields = || {
        let fields =
            SERIES_FIELDS.iter().map(|(field, field_type)| (*field, nullable(type_schema(*field_type))));
        let mut series = input(&[], fields);
        series["properties"]["properties"] = nullable(conditions());
        series
    };
    let mut action = fields();
    action["properties"]["kind"] = constant(json!(ACTION_SERIES));
    action["properties"]["id"] = json!({"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX});
    action["required"] = json!(["kind", "id"]);
    let mut other = fields();
    let others = SERIES_KINDS.into_iter().filter(|kind| *kind != ACTION_SERIES).collect::<Vec<_>>();
    other["properties"]["kind"] = enum_of(&others);
    any_of([action, other])
}

fn conditions() -> Value {
    list(any_of([schema_ref("InsightCondition"), json!({"type": ["null", "boolean", "number", "string"]})]))
}

/// A condition on a property, or a group of conditions.
fn condition() -> Value {
    // It can be stored with an insight, but queries on events do not support it.
    let operators = [&operators()[..], &[FLAG_OPERATOR]].concat();
    input(
        &[],
        [
            ("type", nullable(enum_of(CONDITION_TYPES))),
            ("operator", nullable(enum_of(&operators))),
            ("key", any()),
            ("value", any()),
            ("values", with_description(any(), "The conditions of a group, if the type is AND or OR.")),
        ],
    )
}

/// A node around another one.
fn wrapper_query() -> Value {
    let source =
        any_of([schema_ref("InsightSeriesQuery"), schema_ref("OtherInsightQuery"), wrapper(any_object())]);
    with_description(wrapper(source), "At most eight levels of wrapper nodes.")
}

fn wrapper(source: Value) -> Value {
    input(&["kind", "source"], [("kind", enum_of(&wrappers())), ("source", source)])
}

/// Nodes that need a source.
fn wrappers() -> Vec<&'static str> {
    WRAPPERS.into_iter().filter(|kind| *kind != SAVED_INSIGHT).collect()
}

/// A node of a kind that is stored but not calculated. Its wrapped node is validated like any node.
fn other_query() -> Value {
    let known: Vec<&str> = InsightKind::nodes().map(|node| node.kind).chain(wrappers()).collect();
    let kind = json!({"type": "string", "pattern": "(Query|Node)$", "not": {"enum": known}});
    let source = any_of([
        schema_ref("InsightSeriesQuery"),
        wrapper(any_object()),
        input(&["kind"], [("kind", kind.clone())]),
        json!({"type": ["null", "boolean", "number", "string", "array"]}),
    ]);
    input(&["kind"], [("kind", kind), ("source", source)])
}
