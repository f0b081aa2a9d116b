//! Lifecycles: the query node, requests and their results.

use pennon_analytics::kinds::lifecycle::LifecycleStatus;
use pennon_analytics::kinds::lifecycle::limits::SERIES;
use serde_json::{Value, json};

use crate::calculation_input::{InputField, common, group_type, query_body};
use crate::insight_endpoints::{InsightEndpoints, people_links};
use crate::operation::Operation;
use crate::query_nodes::common_node;
use crate::schema::{
    any, constant, enum_of, list, nullable, number, object_with_optional, text, with_description,
};

const ENDPOINTS: InsightEndpoints = InsightEndpoints {
    name: "Lifecycle",
    results: ("/api/projects/{project_id}/insights/lifecycle/", ["getLifecycle", "calculateLifecycle"]),
    people: ("/api/projects/{project_id}/persons/lifecycle/", ["getLifecyclePeople", "listLifecyclePeople"]),
    summaries: ["Calculate a lifecycle", "List the persons behind a number of a lifecycle"],
    description: "How many active persons of each period are new, returning or resurrecting, and how many became dormant. \
        Without series the result is empty.",
    fields: common,
    point,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("LifecycleQuery", node()),
        ("LifecycleRequest", query_body(common(), SERIES, true)),
        ("LifecyclePeopleRequest", query_body(ENDPOINTS.people_fields(), SERIES, false)),
        ("LifecycleResult", result()),
    ]
}

/// The operations.
pub fn operations() -> Vec<Operation> {
    ENDPOINTS.operations()
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
        people_links(),
    );
    list(series)
}
