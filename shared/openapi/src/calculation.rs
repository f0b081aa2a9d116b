//! Calculations: query nodes, background calculations, and ad-hoc funnels, trends and correlations.

use serde_json::{Value, json};

use crate::calculation_input::{trend, with_query_fields, with_request_options};
use crate::funnel_input::{correlation, funnel};
use crate::operation::{Operation, Security};
use crate::query_nodes;
use crate::result_schemas::query_status;
use crate::schema::{any_of, boolean, constant, instant, list_max, nullable, object, schema_ref, text};

const TAG: &str = "Calculation";
const READ: Security = Security::Scope("insight:read");
const QUERY: Security = Security::Scope("query:read");
/// Description of rules that the schema cannot express.
const REFUSED: &str = "The question is not acceptable: `attr` names the field where one is at fault. So are \
    steps that are not there, actions and cohorts that are not known, expressions and formulas that cannot \
    be read, and ranges with too many buckets; or the answer is larger than an answer can be.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    [queries(), funnels(), correlations(), trends()].into_iter().flatten().collect()
}

/// The schemas of responses.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![("QueryNothing", nothing()), ("FinishedQuery", finished()), ("QueryWord", word())]
}

/// The response to a node without series.
fn nothing() -> Value {
    let null = || constant(Value::Null);
    object([
        ("results", list_max(0, json!({}))),
        ("timezone", text()),
        ("is_cached", constant(json!(false))),
        ("last_refresh", instant()),
        ("cache_key", null()),
        ("hasMore", null()),
        ("hogql", null()),
        ("query_status", null()),
    ])
}

/// A successful calculation. `results` is null after its result has expired.
fn finished() -> Value {
    object([("query_status", query_status(nullable(schema_ref("QueryAnswer"))))])
}

/// The state of a calculation, or why it failed.
fn word() -> Value {
    object([("query_status", schema_ref("QueryStatus"))])
}

fn queries() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/query/";
    const ONE: &str = "/api/projects/{project_id}/query/{id}/";
    let ask = Operation::new("query", "POST", ALL, TAG, "Calculate a trend or a funnel", QUERY)
        .with_description(
            "Without a fresh result it is calculated; what takes too long goes on in the background, and \
         `query_status` says so. Its result is shared with insights of the same query.",
        );
    let mut ask = query_nodes::by_query(ask).json_body(schema_ref("QueryRequest")).response(
        200,
        "The result, or word of the calculation.",
        any_of([schema_ref("QueryAnswer"), schema_ref("QueryNothing")]),
    );
    set_response_description(&mut ask, 400, REFUSED);
    let follow = Operation::new("getQuery", "GET", ONE, TAG, "Tell how a calculation goes", QUERY)
        .with_description("`id` is the caller's own name for it, or its `cache_key`.")
        .response(200, "It ended well.", schema_ref("FinishedQuery"))
        .response(202, "It has not ended.", schema_ref("QueryWord"))
        .response(
            400,
            "The question was refused, which `error_message` explains, or the answer is larger than an \
             answer can be.",
            any_of([schema_ref("QueryWord"), schema_ref("Error")]),
        )
        .response(500, "It failed.", any_of([schema_ref("QueryWord"), schema_ref("Error")]));
    vec![
        ask,
        follow,
        Operation::new("cancelQuery", "DELETE", ONE, TAG, "Cancel a calculation", QUERY)
            .with_description(
                "It stops where nobody else waits for it. What is not there is cancelled already.",
            )
            .empty_response(204, "Nobody waits for it under this name."),
    ]
}

/// Replaces the description of a response.
pub(crate) fn set_response_description(operation: &mut Operation, status: u16, description: &'static str) {
    for (_, answer) in operation.responses.iter_mut().filter(|(known, _)| *known == status) {
        answer.description = description;
    }
}

/// The response of a path below `insights`, with or without a request body.
fn answering(operation: Operation, body: Option<&str>, answer: Value) -> Operation {
    let operation = with_request_options(operation);
    let operation = match body {
        Some(name) => operation.json_body(schema_ref(name)),
        None => operation.error(400, REFUSED),
    };
    let mut operation = operation.response(200, "The result.", answer);
    set_response_description(&mut operation, 400, REFUSED);
    set_response_description(&mut operation, 404, "There is no such project, or no such form of an answer.");
    operation.with_csv()
}

fn funnels() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/";
    let answer = || {
        object([
            ("result", schema_ref("FunnelResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getFunnel", "GET", PATH, TAG, "Calculate a funnel", READ)
        .with_description("Without events and actions the result is empty.");
    let post = Operation::new("calculateFunnel", "POST", PATH, TAG, "Calculate a funnel", READ)
        .with_description(
            "Fields may come in the query string too; the body wins, but for `properties`. In a body \
         lists and objects may be JSON texts.",
        );
    vec![
        answering(with_query_fields(get, funnel()), None, answer()),
        answering(post, Some("FunnelQuestion"), answer()),
    ]
}

fn correlations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/correlation/";
    const SUMMARY: &str = "Find what distinguishes those who get through a funnel";
    let answer = || {
        object([
            ("result", schema_ref("CorrelationResult")),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getCorrelation", "GET", PATH, TAG, SUMMARY, READ)
        .with_description("Without events and actions nothing is found.");
    let post = Operation::new("calculateCorrelation", "POST", PATH, TAG, SUMMARY, READ).with_description(
        "Fields may come in the query string too; in a body lists and objects may be JSON texts. \
         Without events and actions nothing is found.",
    );
    vec![
        answering(with_query_fields(get, correlation()), None, answer()),
        answering(post, Some("CorrelationQuestion"), answer()).body_optional(),
    ]
}

fn trends() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/trend/";
    let answer = || {
        object([
            ("result", schema_ref("TrendResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
            ("next", nullable(json!({"type": "string", "format": "uri"}))),
        ])
    };
    let exported = |operation: Operation| {
        operation
            .query_param("export_insight_id", text(), "Of a table: the insight that its first line links to.")
            .query_param("export_name", text(), "Of a table: what its file is called.")
            .query_param(
                "offset",
                text(),
                "How many series come before the page. All are answered whatever it says.",
            )
    };
    let get = Operation::new("getTrend", "GET", PATH, TAG, "Calculate a trend", READ).with_description(
        "Without events and actions the result is empty. A table has a row for each series.",
    );
    let post = Operation::new("calculateTrend", "POST", PATH, TAG, "Calculate a trend", READ).with_description(
        "Fields may come in the query string too; the body wins, but for `properties`. In a body lists and \
         objects may be JSON texts. A table has a row for each series.",
    );
    vec![
        answering(exported(with_query_fields(get, trend())), None, answer()),
        answering(exported(post), Some("TrendQuestion"), answer()),
    ]
}
