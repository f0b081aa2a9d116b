//! Stickiness: its query node, its requests and their results.

use pennon_analytics::kinds::stickiness::limits::{INTERVAL_COUNT, SERIES};
use pennon_analytics::kinds::stickiness::{COMPUTED_AS, CountComparison};
use serde_json::{Value, json};

use crate::calculation_input::{InputField, common, query_body, switch, whole};
use crate::insight_endpoints::{InsightEndpoints, people_links};
use crate::limits::patterns;
use crate::operation::Operation;
use crate::query_nodes::{common_node, open_object};
use crate::schema::{
    any, any_of, constant, enum_of, input, list, nullable, object, object_with_optional, text,
    with_description,
};

const ENDPOINTS: InsightEndpoints = InsightEndpoints {
    name: "Stickiness",
    results: ("/api/projects/{project_id}/insights/stickiness/", ["getStickiness", "calculateStickiness"]),
    people: (
        "/api/projects/{project_id}/persons/stickiness/",
        ["getStickinessPeople", "listStickinessPeople"],
    ),
    summaries: ["Calculate stickiness", "List the persons behind a bar of stickiness"],
    description: "How many actors are active in how many intervals of the range. Without series the result is empty.",
    fields,
    point,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("StickinessQuery", node()),
        ("StickinessRequest", query_body(fields(), SERIES, true)),
        ("StickinessPeopleRequest", query_body(ENDPOINTS.people_fields(), SERIES, false)),
        ("StickinessResult", result()),
    ]
}

/// The operations.
pub fn operations() -> Vec<Operation> {
    ENDPOINTS.operations()
}

fn node() -> Value {
    let pattern = "0*([1-9]|[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-5])";
    let count = with_description(
        whole((1, INTERVAL_COUNT), pattern),
        "Units of `interval` in an interval, cut backwards from the end of the range. Without it the intervals are those of \
         the calendar.",
    );
    let criterion = |operators: &[&str], least: i64| {
        let value = json!({"type": "integer", "minimum": least});
        input(&["operator", "value"], [("operator", enum_of(operators)), ("value", value)])
    };
    let (at_least, others) = CountComparison::NAMES.split_at(1);
    let criterion = any_of([json!({"type": "null"}), criterion(at_least, 0), criterion(others, 1)]);
    let computed_as: Vec<&str> = COMPUTED_AS.iter().copied().chain([""]).collect();
    let filter = open_object([
        (
            "computedAs",
            with_description(
                nullable(enum_of(&computed_as)),
                "Whether a bar also holds the actors of later bars.",
            ),
        ),
        (
            "stickinessCriteria",
            with_description(criterion, "How many events make an actor active in an interval. Default: one."),
        ),
    ]);
    let back = with_description(
        any(),
        "Offset of the other period, such as `-1w`. Default: the period directly before.",
    );
    let compare = open_object([("compare", switch()), ("compare_to", back)]);
    common_node(
        "StickinessQuery",
        SERIES,
        [
            ("intervalCount", count),
            ("stickinessFilter", nullable(filter)),
            ("compareFilter", nullable(compare)),
            ("breakdownFilter", with_description(any(), "Ignored.")),
        ],
    )
}

/// The fields of a request.
fn fields() -> Vec<InputField> {
    let mut fields = common();
    fields
        .push(InputField::switch("compare", "Whether each series is followed by one of an earlier period."));
    fields.push(InputField::free(
        "compare_to",
        "Offset of the other period, such as `-1w`. Default: the period directly before.",
    ));
    fields
}

/// The fields that select a bar.
fn point() -> Vec<InputField> {
    let positive = || {
        InputField::whole(
            "stickiness_days",
            (1, i64::MAX),
            "0*[1-9][0-9]{0,17}",
            "The bar, from 1. Required.",
        )
    };
    vec![
        positive(),
        InputField::whole(
            "entity_order",
            (0, SERIES as i64 - 1),
            patterns::SERIES_INDEX,
            "The index of the series. Default: 0.",
        ),
        InputField::choice(
            "stickiness_operator",
            CountComparison::NAMES,
            "How the number of intervals of an actor compares with the bar. Default: `exact`; with cumulative bars always \
             `gte`.",
        ),
    ]
}

/// Series with a number for each bar.
fn result() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let action = object([
        ("order", count()),
        ("type", constant(json!("events"))),
        ("id", nullable(text())),
        ("name", text()),
        ("custom_name", nullable(text())),
    ]);
    let [urls, omitted_urls] = people_links();
    let series = object_with_optional(
        [
            ("label", text()),
            ("count", count()),
            ("data", list(count())),
            ("days", list(count())),
            ("labels", list(text())),
            ("action", action),
        ],
        [
            ("compare", constant(json!(true))),
            ("compare_label", enum_of(&["current", "previous"])),
            urls,
            omitted_urls,
        ],
    );
    list(series)
}
