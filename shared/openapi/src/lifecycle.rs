//! Lifecycles: the query node, requests and their results.

use pennon_analytics::kinds::lifecycle::LifecycleStatus;
use pennon_analytics::kinds::lifecycle::limits::SERIES;
use serde_json::{Value, json};

use crate::calculation::with_result_response;
use crate::calculation_input::{
    InputField, common, concat_fields, group_type, query_body, with_example, with_query_fields,
};
use crate::operation::{Operation, Security};
use crate::persons::with_people_response;
use crate::query_nodes::common_node;
use crate::schema::{
    any, boolean, constant, enum_of, instant, list, nullable, number, object, object_with_optional,
    schema_ref, text, with_description,
};

const CALCULATION: &str = "Calculation";
const PERSONS: &str = "Persons";
const READ_INSIGHTS: Security = Security::Scope("insight:read");
const READ_PERSONS: Security = Security::Scope("person:read");

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let events = json!([{"id": "$pageview"}]);
    let point_example = json!({"events": events, "target_date": "2024-01-31", "lifecycle_type": "new"});
    vec![
        ("LifecycleQuery", node()),
        (
            "LifecycleRequest",
            with_example(query_body(common(), SERIES, true), json!({"events": events, "date_from": "-30d"})),
        ),
        (
            "LifecyclePeopleRequest",
            with_example(query_body(concat_fields([common(), point()]), SERIES, false), point_example),
        ),
        ("LifecycleResult", result()),
    ]
}

/// The operations.
pub fn operations() -> Vec<Operation> {
    [results(), people()].into_iter().flatten().collect()
}

fn results() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/lifecycle/";
    const SUMMARY: &str = "Calculate a lifecycle";
    let schema = || {
        object([
            ("result", schema_ref("LifecycleResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
            ("next", constant(Value::Null)),
        ])
    };
    let get = Operation::new("getLifecycle", "GET", PATH, CALCULATION, SUMMARY, READ_INSIGHTS).with_description(
        "How many active persons of each period are new, returning or resurrecting, and how many became dormant. Without \
         series the result is empty.",
    );
    let post = Operation::new("calculateLifecycle", "POST", PATH, CALCULATION, SUMMARY, READ_INSIGHTS)
        .with_description(
            "Fields are accepted in the query string too; the body takes precedence, except for `properties`. In a body \
             lists and objects may be JSON texts.",
        );
    vec![
        with_result_response(with_query_fields(get, common()), None, schema()),
        with_result_response(post, Some("LifecycleRequest"), schema()),
    ]
}

fn people() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/persons/lifecycle/";
    const SUMMARY: &str = "List the persons behind a number of a lifecycle";
    let get = Operation::new("getLifecyclePeople", "GET", PATH, PERSONS, SUMMARY, READ_PERSONS)
        .with_description(
            "The links in results have this target, with the query as a node in `query`. The scope `insight:read` is \
             accepted too.",
        );
    let post = Operation::new("listLifecyclePeople", "POST", PATH, PERSONS, SUMMARY, READ_PERSONS)
        .with_description(
            "The query is a node in `query`, or has the fields of `insights/lifecycle/`. Fields are accepted in the query \
             string too; in a body lists and objects may be JSON texts. The scope `insight:read` is accepted too.",
        );
    vec![
        with_people_response(with_query_fields(get, concat_fields([common(), point()])), None),
        with_people_response(post, Some("LifecyclePeopleRequest")),
    ]
}

fn node() -> Value {
    let group = with_description(group_type(), "Counts groups of this type; 0 is a group type too.");
    common_node(
        "LifecycleQuery",
        SERIES,
        [
            ("aggregation_group_type_index", group),
            ("lifecycleFilter", with_description(any(), "For display, without effect on the result.")),
            ("breakdownFilter", with_description(any(), "Ignored.")),
        ],
    )
}

/// The fields that select a number.
fn point() -> Vec<InputField> {
    vec![
        InputField::json(
            "query",
            any(),
            "A query node of kind `LifecycleQuery`, instead of the other fields of the query.",
        ),
        InputField::text("target_date", "An instant or a day of the period. Required."),
        InputField::choice("lifecycle_type", &LifecycleStatus::NAMES, "The status. Required."),
    ]
}

/// One series for each status, with a number for each period. Numbers of dormant actors are negative.
fn result() -> Value {
    let action = object_with_optional(
        [
            ("id", nullable(text())),
            ("name", text()),
            ("type", enum_of(&["events", "actions"])),
            ("order", constant(json!(0))),
            ("math", constant(json!("total"))),
        ],
        [("custom_name", text())],
    );
    let series = object_with_optional(
        [
            ("action", action),
            ("label", text()),
            ("status", enum_of(&LifecycleStatus::NAMES)),
            ("data", list(number())),
            ("count", number()),
            ("days", list(text())),
            ("labels", list(text())),
        ],
        [
            ("persons_urls", nullable(list(object([("url", text())])))),
            // Only where links were left out: they would be too long, or in lists and tiles.
            ("persons_urls_omitted", text()),
        ],
    );
    list(series)
}
