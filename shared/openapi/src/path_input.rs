//! Paths: the query node, the fields of legacy requests, and the selection of persons.

use pennon_analytics::kinds::paths::limits::{EXCLUDED_ITEMS, GROUPINGS};
use pennon_analytics::kinds::paths::{EventType, FunnelPathType};
use serde_json::{Value, json};

use crate::calculation_input::{
    InputField, concat_fields, fields_body, filters_and_dates, optional_text, switch, whole,
};
use crate::limits::NAME_MAX;
use crate::schema::{
    any, any_object, any_of, constant, enum_of, input, list, list_max, nullable, object, schema_ref, text,
    with_description,
};

/// Bounds of limits and weights.
const COUNT: (i64, i64) = (0, i64::MAX);
const COUNT_TEXT: &str = "[+]?[0-9]{1,18}";

const EVENT_TYPES: &str = "The events of the paths; none for all events. `$pageview` is named by its URL, `$screen` by \
    its screen; `custom_event` are events whose name does not begin with `$`; with `hogql`, other events are named by the \
    expression.";
const EXPRESSION: &str = "An SQL expression that names events.";
const EXCLUDED: &str = "Names that are left out.";
const REPLACEMENTS: &str = "Whether the project's `path_cleaning_filters` are applied.";
const CLEANING: &str = "Path cleaning filters of this query, applied after those of the project.";
const GROUPED: &str = "Patterns with `*` for any text; a name that one matches becomes the pattern.";
const START: &str = "The name where paths begin.";
const END: &str = "The name where paths end.";
const STEPS: &str = "The number of steps of a session that are kept. Default, also for 0: 5.";
const EDGES: &str = "The number of edges of the result. Default, also for 0: 50.";
const LEAST: &str = "The minimum value of an edge.";
const MOST: &str = "The maximum value of an edge.";
const START_KEY: &str =
    "For a list of persons: the key of the first step of an edge, or of a step that others follow.";
const END_KEY: &str = "For a list of persons: the key of the second step of an edge, or of a step.";
const DROPOFF_KEY: &str =
    "For a list of persons: the key of the last step of sessions. Wins over the other two keys.";

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("PathsQuery", node()),
        ("PathRequest", fields_body(path())),
        ("PathPeopleRequest", fields_body(path())),
        ("PathCleaningFilter", cleaning_filter()),
        ("PathResult", list(edge())),
    ]
}

/// One step after another, `<number>_<name>` each; the time is the mean in milliseconds.
fn edge() -> Value {
    object([
        ("source", text()),
        ("target", text()),
        ("value", json!({"type": "integer", "minimum": 1})),
        ("average_conversion_time", json!({"type": "number", "minimum": 0})),
    ])
}

/// Replaces all matches of an RE2 pattern by the alias, in which `\\0` to `\\9` are the match and its groups.
fn cleaning_filter() -> Value {
    input(&[], [("alias", optional_text()), ("regex", optional_text())])
}

/// A list; in a legacy request also its JSON text.
fn names(most: usize) -> Value {
    list_max(most, json!({"type": ["string", "number", "boolean"], "maxLength": NAME_MAX}))
}

fn count() -> Value {
    whole(COUNT, COUNT_TEXT)
}

/// A list, its JSON text, or missing.
fn list_or_text(of: Value) -> Value {
    any_of([of, json!({"type": ["string", "null"]})])
}

fn event_types() -> Value {
    list(enum_of(&EventType::names()))
}

fn node() -> Value {
    let described = |schema: Value, text: &str| with_description(schema, text);
    let filter = input(
        &[],
        [
            ("includeEventTypes", described(nullable(event_types()), EVENT_TYPES)),
            ("pathsHogQLExpression", described(optional_text(), EXPRESSION)),
            ("excludeEvents", described(nullable(names(EXCLUDED_ITEMS)), EXCLUDED)),
            ("pathReplacements", described(switch(), REPLACEMENTS)),
            (
                "localPathCleaningFilters",
                described(nullable(list(schema_ref("PathCleaningFilter"))), CLEANING),
            ),
            ("pathGroupings", described(nullable(names(GROUPINGS)), GROUPED)),
            ("startPoint", described(optional_text(), START)),
            ("endPoint", described(optional_text(), END)),
            ("stepLimit", described(count(), STEPS)),
            ("edgeLimit", described(count(), EDGES)),
            ("minEdgeWeight", described(count(), LEAST)),
            ("maxEdgeWeight", described(count(), MOST)),
            ("pathStartKey", described(optional_text(), START_KEY)),
            ("pathEndKey", described(optional_text(), END_KEY)),
            ("pathDropoffKey", described(optional_text(), DROPOFF_KEY)),
        ],
    );
    let step = "The actors that reached this step, from 1; a negative number selects those that reached only the step \
        before it.";
    let funnel = input(
        &["funnelPathType", "funnelSource", "funnelStep"],
        [
            ("funnelPathType", enum_of(&FunnelPathType::names())),
            ("funnelSource", schema_ref("FunnelsQuery")),
            ("funnelStep", with_description(json!({"type": ["integer", "string"]}), step)),
        ],
    );
    let dates = input(
        &[],
        [("date_from", optional_text()), ("date_to", optional_text()), ("explicitDate", switch())],
    );
    input(
        &["kind"],
        [
            ("kind", constant(json!("PathsQuery"))),
            ("pathsFilter", nullable(filter)),
            ("funnelPathsFilter", nullable(funnel)),
            ("properties", schema_ref("EventConditions")),
            ("filterTestAccounts", switch()),
            ("dateRange", nullable(dates)),
            ("breakdownFilter", with_description(nullable(any_object()), "Paths have no breakdown.")),
        ],
    )
}

/// The fields of a request for paths or for the persons behind a step.
pub(crate) fn path() -> Vec<InputField> {
    let text_list = |name: &'static str, most: usize, description: &str| {
        InputField::json(name, list_or_text(names(most)), description)
    };
    let whole =
        |name: &'static str, description: &str| InputField::whole(name, COUNT, COUNT_TEXT, description);
    let own = vec![
        InputField::json(
            "query",
            any_of([json!({"type": ["string", "null"]}), schema_ref("QueryNode")]),
            "A PathsQuery node, instead of the other fields.",
        ),
        InputField::json("include_event_types", list_or_text(event_types()), EVENT_TYPES),
        InputField::text("paths_hogql_expression", EXPRESSION),
        text_list("exclude_events", EXCLUDED_ITEMS, EXCLUDED),
        InputField::switch("path_replacements", REPLACEMENTS),
        InputField::json(
            "local_path_cleaning_filters",
            list_or_text(list(schema_ref("PathCleaningFilter"))),
            CLEANING,
        ),
        text_list("path_groupings", GROUPINGS, GROUPED),
        InputField::text("start_point", START),
        InputField::text("end_point", END),
        whole("step_limit", STEPS),
        whole("edge_limit", EDGES),
        whole("min_edge_weight", LEAST),
        whole("max_edge_weight", MOST),
        InputField::text("path_start_key", START_KEY),
        InputField::text("path_end_key", END_KEY),
        InputField::text("path_dropoff_key", DROPOFF_KEY),
        InputField::free(
            "funnel_paths",
            "With `funnel_filter`: `funnel_path_after_step`, `funnel_path_before_step` or `funnel_path_between_steps`.",
        ),
        InputField::json(
            "funnel_filter",
            any(),
            "The fields of a funnel, and `funnel_step`: the paths are those of its actors.",
        ),
    ];
    concat_fields([filters_and_dates(), own])
}
