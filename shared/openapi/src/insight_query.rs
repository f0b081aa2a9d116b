//! Query nodes of insights, as sent in requests.
//!
//! Must stay true: the schema validates the fields that a write validates: the known fields of trends and funnels. Nodes of
//! other kinds are stored unchanged. Conditions and wrapped nodes are validated one level deep; a write validates all
//! levels, so a body that matches the schema may still be rejected.

use pennon_analytics::kinds::funnels::StepOrder;
use pennon_analytics::kinds::trends::DISPLAYS;
use pennon_analytics::kinds::{BREAKDOWN_TYPES, CONDITION_TYPES, INTERVALS};
use serde_json::{Value, json};

use crate::limits::operators;
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, input, integer_in, list, nullable, number,
    schema_ref, text, with_description,
};

const WRAPPERS: [&str; 3] = ["InsightVizNode", "DataTableNode", "DataVisualizationNode"];
const VALIDATED_KINDS: [&str; 2] = ["TrendsQuery", "FunnelsQuery"];

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("InsightQuery", node()),
        ("InsightQueryShown", shown()),
        ("InsightQueryOfEvents", event_query()),
        ("InsightQueryWrapped", wrapped()),
        ("InsightQueryOther", other()),
        ("InsightSeries", series()),
        ("InsightCondition", condition()),
    ]
}

/// A node as it may be written.
fn node() -> Value {
    any_of([
        schema_ref("InsightQueryOfEvents"),
        schema_ref("InsightQueryWrapped"),
        schema_ref("InsightQueryOther"),
    ])
}

/// A node as it is stored, and perhaps with the filters of the request or of a dashboard laid over it.
fn shown() -> Value {
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

/// An object inside a node.
fn part<const N: usize>(fields: [(&str, Value); N]) -> Value {
    nullable(input(&[], fields))
}

/// Trends and funnels.
fn event_query() -> Value {
    let date_range = part([
        ("date_from", nullable(text())),
        ("date_to", nullable(text())),
        ("explicitDate", nullable(boolean())),
    ]);
    let breakdown = part([
        ("breakdown_type", nullable(enum_of(BREAKDOWN_TYPES))),
        ("breakdowns", nullable(list(any()))),
        ("breakdown_limit", nullable(whole())),
    ]);
    let compare = part([("compare", nullable(boolean())), ("compare_to", nullable(text()))]);
    input(
        &["kind", "series"],
        [
            ("kind", enum_of(&VALIDATED_KINDS)),
            ("series", list(schema_ref("InsightSeries"))),
            ("dateRange", date_range),
            ("interval", nullable(enum_of(INTERVALS))),
            ("filterTestAccounts", nullable(boolean())),
            ("properties", any_of([conditions(), schema_ref("InsightCondition"), json!({"type": "null"})])),
            ("aggregation_group_type_index", nullable(whole())),
            ("samplingFactor", nullable(number())),
            ("breakdownFilter", breakdown),
            ("compareFilter", compare),
            ("trendsFilter", trends_filter()),
            ("funnelsFilter", funnels_filter()),
        ],
    )
}

fn trends_filter() -> Value {
    part([
        ("display", nullable(enum_of(DISPLAYS))),
        ("formula", nullable(text())),
        ("smoothingIntervals", nullable(whole())),
        ("showLegend", nullable(boolean())),
        ("yAxisScaleType", nullable(enum_of(&["linear", "log10"]))),
    ])
}

fn funnels_filter() -> Value {
    let word = |words: &[&str]| nullable(enum_of(words));
    part([
        ("funnelVizType", word(&["steps", "trends", "time_to_convert", "flow"])),
        ("funnelOrderType", word(&StepOrder::names())),
        ("funnelWindowInterval", nullable(whole())),
        ("funnelWindowIntervalUnit", word(INTERVALS)),
        ("funnelFromStep", nullable(whole())),
        ("funnelToStep", nullable(whole())),
        ("funnelStepReference", word(&["total", "previous"])),
        ("layout", word(&["horizontal", "vertical"])),
        ("breakdownAttributionType", word(&["first_touch", "last_touch", "all_events", "step"])),
        ("breakdownAttributionValue", nullable(whole())),
        ("binCount", nullable(whole())),
        ("exclusions", nullable(list(any()))),
    ])
}

/// A series of trends, or a step of a funnel. Without a kind it is of an event.
fn series() -> Value {
    let fields = || {
        let more = [
            ("event", nullable(text())),
            ("name", nullable(text())),
            ("custom_name", nullable(text())),
            ("math", nullable(text())),
            ("math_property", nullable(text())),
            ("math_group_type_index", nullable(whole())),
            ("properties", nullable(conditions())),
            ("optionalInFunnel", nullable(boolean())),
        ];
        input(&[], more)
    };
    let mut action = fields();
    action["properties"]["kind"] = constant(json!("ActionsNode"));
    action["properties"]["id"] = json!({"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX});
    action["required"] = json!(["kind", "id"]);
    let mut other = fields();
    other["properties"]["kind"] = enum_of(&["EventsNode", "DataWarehouseNode", "GroupNode"]);
    any_of([action, other])
}

fn conditions() -> Value {
    list(any_of([schema_ref("InsightCondition"), json!({"type": ["null", "boolean", "number", "string"]})]))
}

/// A condition on a property, or a group of conditions.
fn condition() -> Value {
    // It can be stored with an insight, but queries on events do not support it.
    let operators = [&operators()[..], &["flag_evaluates_to"]].concat();
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
fn wrapped() -> Value {
    let source =
        any_of([schema_ref("InsightQueryOfEvents"), schema_ref("InsightQueryOther"), wrapper(any_object())]);
    with_description(wrapper(source), "At most eight levels of wrapper nodes.")
}

fn wrapper(source: Value) -> Value {
    input(&["kind", "source"], [("kind", enum_of(&WRAPPERS)), ("source", source)])
}

/// A node of a kind that is stored but not calculated. Its wrapped node is validated like any node.
fn other() -> Value {
    let known: Vec<&str> = VALIDATED_KINDS.into_iter().chain(WRAPPERS).collect();
    let kind = json!({"type": "string", "pattern": "(Query|Node)$", "not": {"enum": known}});
    let source = any_of([
        schema_ref("InsightQueryOfEvents"),
        wrapper(any_object()),
        input(&["kind"], [("kind", kind.clone())]),
        json!({"type": ["null", "boolean", "number", "string", "array"]}),
    ]);
    input(&["kind"], [("kind", kind), ("source", source)])
}
