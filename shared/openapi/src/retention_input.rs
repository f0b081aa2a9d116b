//! Request fields of retention, its query node, and the selection of a row of people.

use pennon_analytics::kinds::retention::{AggregationType, RetentionType, TimeWindowMode};
use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, InputField, any_case, breakdown, concat_fields, fields_body, group_type, optional_text,
    spelled, switch, whole,
};
use crate::conditions::null_or_blank;
use crate::limits::{BRACKETS, COLUMNS, NAME_MAX, patterns};
use crate::query_nodes::date_range;
use crate::schema::{
    any, any_of, constant, enum_of, id, input, list_max, nullable, schema_ref, text, with_description,
};

const PERIODS: [&str; 4] = ["hour", "day", "week", "month"];
const TOTAL: (i64, i64) = (0, COLUMNS as i64);
const TYPES: &str = "Recurring: each period in which an actor starts. First time: its first starting event of all time. \
    First ever occurrence: its first event of the target's name or action, if that one passes the target's filters.";
const WINDOWS: &str = "Periods of the calendar, or windows from the start of each actor.";
const BRACKETS_TEXT: &str = "Numbers of periods, one for each column after the first; fractions are cut off.";
const MINIMUM: &str = "Returning events that a period needs. Default, also for numbers below: 1.";
const CUMULATIVE: &str = "Whether an actor counts in all columns up to its last return.";
const AGGREGATION: &str = "What is added beside the number of actors.";

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let people = any_of([fields_body(concat_fields([retention(), retention_point()])), point_of_node()]);
    vec![
        ("RetentionRequest", fields_body(retention())),
        ("RetentionPeopleRequest", people),
        ("RetentionEntity", entity()),
        ("RetentionQuery", node()),
    ]
}

fn names<T>(names: &[(&'static str, T)]) -> Vec<&'static str> {
    names.iter().map(|(name, _)| *name).collect()
}

/// An event or action; null for the default.
fn entity() -> Value {
    let name = json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX});
    let common = || {
        [
            ("name", optional_text()),
            ("custom_name", optional_text()),
            ("properties", schema_ref("EventConditions")),
        ]
    };
    let of = |required: &[&str], own: [(&str, Value); 2]| {
        let mut entity = input(required, own);
        for (name, schema) in common() {
            entity["properties"][name] = schema;
        }
        entity
    };
    let digits = any_of([id(), json!({"type": "string", "pattern": "^[0-9]{1,15}$"})]);
    any_of([
        json!({"type": "null"}),
        of(&[], [("id", name), ("type", nullable(enum_of(&["events", ""])))]),
        of(&["id", "type"], [("id", digits), ("type", enum_of(&["actions"]))]),
    ])
}

/// A list of numbers of periods.
fn brackets() -> Value {
    let periods = any_of([json!({"type": "number", "minimum": 1}), json!({"type": "string"})]);
    any_of([list_max(BRACKETS, periods), null_or_blank(), json!({"enum": [false, {}]})])
}

/// The query node.
fn node() -> Value {
    let choice = |texts: Vec<&str>, description: &str| {
        let texts: Vec<&str> = texts.into_iter().chain([""]).collect();
        with_description(nullable(enum_of(&texts)), description)
    };
    let filter = input(
        &[],
        [
            ("targetEntity", schema_ref("RetentionEntity")),
            ("returningEntity", schema_ref("RetentionEntity")),
            ("period", nullable(any_case(&PERIODS, ""))),
            (
                "totalIntervals",
                with_description(whole(TOTAL, patterns::COLUMNS), "Number of columns. Default: 8."),
            ),
            ("retentionType", choice(names(&RetentionType::NAMES), TYPES)),
            ("minimumOccurrences", with_description(whole(ANY, ANY_TEXT), MINIMUM)),
            ("cumulative", with_description(switch(), CUMULATIVE)),
            ("retentionCustomBrackets", with_description(brackets(), BRACKETS_TEXT)),
            ("timeWindowMode", choice(names(&TimeWindowMode::NAMES), WINDOWS)),
            ("aggregationType", choice(names(&AggregationType::NAMES), AGGREGATION)),
            ("aggregationProperty", optional_text()),
            ("aggregationPropertyType", choice(vec!["event", "person"], "Whose property it is.")),
        ],
    );
    input(
        &["kind"],
        [
            ("kind", constant(json!("RetentionQuery"))),
            ("retentionFilter", nullable(filter)),
            ("properties", schema_ref("EventConditions")),
            ("filterTestAccounts", switch()),
            ("dateRange", date_range()),
            ("breakdownFilter", schema_ref("BreakdownFilter")),
            (
                "aggregation_group_type_index",
                with_description(group_type(), "Counts groups of this type; 0 is a group type too."),
            ),
        ],
    )
}

/// The fields of a legacy request.
pub(crate) fn retention() -> Vec<InputField> {
    let entity = |name, which: &str| {
        let body = any_of([schema_ref("RetentionEntity"), json!({"type": "string"})]);
        let description = format!("{which}: an object with `id` and `type`. Default: the event `$pageview`.");
        InputField::json(name, body, description)
    };
    let brackets = any_of([brackets(), json!({"type": "string"})]);
    let own = vec![
        InputField::json(
            "properties",
            schema_ref("EventConditions"),
            "Filters of all events. The value in the query string takes precedence.",
        ),
        InputField::switch("filter_test_accounts", "Whether the project's test account filters apply too."),
        InputField::text(
            "date_from",
            "Start of the range, which is extended to whole periods: an instant, a relative date such as `-7d`, or \
             `all`. Default: `total_intervals` periods before the end.",
        ),
        InputField::text("date_to", "End of the range, in the same formats. Default: now."),
        InputField::switch(
            "explicit_date",
            "Accepted as in other queries; a range always has whole periods.",
        ),
        entity("target_entity", "What starts"),
        entity("returning_entity", "What returns"),
        InputField::any_case("period", &PERIODS, "", "The period: Hour, Day (default), Week or Month."),
        InputField::whole("total_intervals", TOTAL, patterns::COLUMNS, "Number of columns. Default: 11."),
        InputField::choice("retention_type", &names(&RetentionType::NAMES), TYPES),
        InputField::whole("minimum_occurrences", ANY, ANY_TEXT, MINIMUM),
        InputField::switch("cumulative", CUMULATIVE),
        InputField::json("retention_custom_brackets", brackets, BRACKETS_TEXT),
        InputField::choice("time_window_mode", &names(&TimeWindowMode::NAMES), WINDOWS),
        InputField::choice("aggregation_type", &names(&AggregationType::NAMES), AGGREGATION),
        InputField::text("aggregation_property", "The property that is added up, for `sum` and `avg`."),
        InputField::choice("aggregation_property_type", &["event", "person"], "Whose property it is."),
        InputField::new(
            "aggregation_group_type_index",
            group_type(),
            spelled("0*[0-4]"),
            "Counts groups of this type; 0 counts persons.",
        ),
        InputField::switch("aggregation_group_types_from_zero", "Whether 0 is a group type index too."),
    ];
    concat_fields([own, breakdown()])
}

/// The fields that select a row of people.
pub(crate) fn retention_point() -> Vec<InputField> {
    let node_or_none = any_of([json!({"type": ["null", "string"]}), query_node()]);
    vec![
        InputField::json("query", node_or_none, "A query node, instead of the fields of a legacy request."),
        InputField::whole("selected_interval", ANY, ANY_TEXT, "The row, counted from 0. Default: 0."),
        InputField::new(
            "breakdown_value",
            any(),
            text(),
            "The value of the breakdown; required if the query has one.",
        ),
        InputField::whole("return_interval", ANY, ANY_TEXT, "Only actors that count in this column."),
    ]
}

/// A selection with a node: the fields of a legacy request are ignored, whatever they contain.
fn point_of_node() -> Value {
    let mut point = fields_body(retention_point());
    point["required"] = json!(["query"]);
    point["properties"]["query"] = query_node();
    point
}

fn query_node() -> Value {
    any_of([schema_ref("RetentionQuery"), json!({"type": "object", "required": ["kind", "source"]})])
}
