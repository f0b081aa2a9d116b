//! Stickiness: its query node, its requests and their results.

use pennon_analytics::kinds::stickiness::limits::{INTERVAL_COUNT, SERIES};
use pennon_analytics::kinds::stickiness::{COMPUTED_AS, CountComparison};
use serde_json::{Value, json};

use crate::calculation::with_result_response;
use crate::calculation_input::{
    InputField, common, concat_fields, query_body, switch, whole, with_example, with_query_fields,
};
use crate::limits::patterns;
use crate::operation::{Operation, Security};
use crate::persons::with_people_response;
use crate::query_nodes::{common_node, open_object};
use crate::schema::{
    any, any_of, boolean, constant, enum_of, input, instant, list, nullable, object, object_with_optional,
    schema_ref, text, with_description,
};

const CALCULATION: &str = "Calculation";
const PERSONS: &str = "Persons";
const READ_INSIGHTS: Security = Security::Scope("insight:read");
const READ_PERSONS: Security = Security::Scope("person:read");

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let events = json!([{"id": "$pageview"}]);
    vec![
        ("StickinessQuery", node()),
        (
            "StickinessRequest",
            with_example(query_body(fields(), SERIES, true), json!({"events": events, "date_from": "-30d"})),
        ),
        (
            "StickinessPeopleRequest",
            with_example(
                query_body(concat_fields([fields(), point()]), SERIES, false),
                json!({"events": events, "stickiness_days": 3}),
            ),
        ),
        ("StickinessResult", result()),
    ]
}

/// The operations.
pub fn operations() -> Vec<Operation> {
    [results(), people()].into_iter().flatten().collect()
}

fn results() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/stickiness/";
    const SUMMARY: &str = "Calculate stickiness";
    let schema = || {
        object([
            ("result", schema_ref("StickinessResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
            ("next", constant(Value::Null)),
        ])
    };
    let get = Operation::new("getStickiness", "GET", PATH, CALCULATION, SUMMARY, READ_INSIGHTS)
        .with_description(
            "How many actors are active in how many intervals of the range. Without series the result is empty.",
        );
    let post = Operation::new("calculateStickiness", "POST", PATH, CALCULATION, SUMMARY, READ_INSIGHTS)
        .with_description(
            "Fields are accepted in the query string too; the body takes precedence, except for `properties`. In a body \
             lists and objects may be JSON texts.",
        );
    vec![
        with_result_response(with_query_fields(get, fields()), None, schema()),
        with_result_response(post, Some("StickinessRequest"), schema()),
    ]
}

fn people() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/persons/stickiness/";
    const SUMMARY: &str = "List the persons behind a bar of stickiness";
    let get = Operation::new("getStickinessPeople", "GET", PATH, PERSONS, SUMMARY, READ_PERSONS)
        .with_description(
            "The links in results have this target, with the query as a node in `query`. The scope `insight:read` is \
             accepted too.",
        );
    let post = Operation::new("listStickinessPeople", "POST", PATH, PERSONS, SUMMARY, READ_PERSONS)
        .with_description(
            "The query is a node in `query`, or has the fields of `insights/stickiness/`. Fields are accepted in the query \
             string too; in a body lists and objects may be JSON texts. The scope `insight:read` is accepted too.",
        );
    vec![
        with_people_response(with_query_fields(get, concat_fields([fields(), point()])), None),
        with_people_response(post, Some("StickinessPeopleRequest")),
    ]
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
        InputField::json(
            "query",
            any(),
            "A query node of kind `StickinessQuery`, instead of the other fields of the query.",
        ),
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
            ("persons_urls", nullable(list(object([("url", text())])))),
            // Only where links were left out: they would be too long, or in lists and tiles.
            ("persons_urls_omitted", text()),
        ],
    );
    list(series)
}
