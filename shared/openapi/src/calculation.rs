//! Calculations: query nodes, background calculations, and ad-hoc funnels, trends, correlations, retention and paths.

use serde_json::{Value, json};

use crate::calculation_input::{trend, with_fields, with_query_fields, with_request_options};
use crate::funnel_input::{correlation, funnel};
use crate::operation::{Operation, Security};
use crate::path_input::path;
use crate::query_nodes;
use crate::result_schemas::query_status;
use crate::retention_input;
use crate::schema::{any_of, boolean, constant, instant, list_max, nullable, object, schema_ref, text};

const TAG: &str = "Calculation";
const READ: Security = Security::Scope("insight:read");
const QUERY: Security = Security::Scope("query:read");
/// Description of rules that the schema cannot express.
const REFUSED: &str = "The query is invalid; `attr` names the field, if one is the cause. Examples are \
    steps that do not exist, unknown actions and cohorts, expressions and formulas that cannot be parsed, \
    and ranges with too many buckets. Or the response exceeds the maximum size.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    [queries(), funnels(), correlations(), paths(), trends(), retention()].into_iter().flatten().collect()
}

/// The schemas of responses.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("EmptyQueryResponse", empty_query_response()),
        ("FinishedQueryResponse", finished_query_response()),
        ("QueryStatusResponse", query_status_response()),
    ]
}

/// The response to a node without series.
fn empty_query_response() -> Value {
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
fn finished_query_response() -> Value {
    object([("query_status", query_status(nullable(schema_ref("QueryResponse"))))])
}

/// The state of a calculation, or why it failed.
fn query_status_response() -> Value {
    object([("query_status", schema_ref("QueryStatus"))])
}

fn queries() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/query/";
    const ONE: &str = "/api/projects/{project_id}/query/{id}/";
    let query = Operation::new("query", "POST", ALL, TAG, "Calculate a query", QUERY).with_description(
        "Calculates a trend, a funnel or an insight of another kind unless a fresh result is cached. A calculation that \
         takes too long continues in the background, with its state in `query_status`. The result is \
         shared with insights of the same query.",
    );
    let mut query = query_nodes::with_query_options(query).json_body(schema_ref("QueryRequest")).response(
        200,
        "The result, or the state of the calculation.",
        any_of([schema_ref("QueryResponse"), schema_ref("EmptyQueryResponse")]),
    );
    set_response_description(&mut query, 400, REFUSED);
    let follow = Operation::new("getQuery", "GET", ONE, TAG, "Get the state of a calculation", QUERY)
        .with_description("`id` is the caller's `client_query_id`, or the `cache_key`.")
        .response(200, "It has ended with a result.", schema_ref("FinishedQueryResponse"))
        .response(202, "It has not ended.", schema_ref("QueryStatusResponse"))
        .response(
            400,
            "The query is invalid, with the reason in `error_message`, or the response exceeds the maximum \
             size.",
            any_of([schema_ref("QueryStatusResponse"), schema_ref("Error")]),
        )
        .response(500, "It failed.", any_of([schema_ref("QueryStatusResponse"), schema_ref("Error")]));
    vec![
        query,
        follow,
        Operation::new("cancelQuery", "DELETE", ONE, TAG, "Cancel a calculation", QUERY)
            .with_description("It stops unless another request waits for it. An unknown id is a success too.")
            .empty_response(204, "No request waits for it under this id."),
    ]
}

/// Replaces the description of a response.
pub(crate) fn set_response_description(operation: &mut Operation, status: u16, description: &str) {
    for (_, response) in operation.responses.iter_mut().filter(|(known, _)| *known == status) {
        description.clone_into(&mut response.description);
    }
}

/// The response of a path below `insights`, with or without a request body.
pub(crate) fn with_result_response(operation: Operation, body: Option<&str>, schema: Value) -> Operation {
    let operation = with_request_options(operation);
    let operation = match body {
        Some(name) => operation.json_body(schema_ref(name)),
        None => operation.error(400, REFUSED),
    };
    let mut operation = operation.response(200, "The result.", schema);
    set_response_description(&mut operation, 400, REFUSED);
    set_response_description(&mut operation, 404, "There is no such project, or no such response format.");
    operation.with_csv()
}

fn funnels() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/";
    let schema = || {
        object([
            ("result", schema_ref("FunnelResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getFunnel", "GET", PATH, TAG, "Calculate a funnel", READ)
        .with_description("Without series the result is empty.");
    let post = Operation::new("calculateFunnel", "POST", PATH, TAG, "Calculate a funnel", READ)
        .with_description(
            "Fields are accepted in the query string too; the body takes precedence, except for \
             `properties`. In a body lists and objects may be JSON texts.",
        );
    vec![
        with_result_response(with_query_fields(get, funnel()), None, schema()),
        with_result_response(post, Some("FunnelRequest"), schema()),
    ]
}

fn correlations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/correlation/";
    const SUMMARY: &str = "Calculate the correlation of a funnel";
    let schema = || {
        object([
            ("result", schema_ref("CorrelationResult")),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getCorrelation", "GET", PATH, TAG, SUMMARY, READ).with_description(
        "Events and properties that are more or less frequent among persons who convert. Without series \
         the result is empty.",
    );
    let post = Operation::new("calculateCorrelation", "POST", PATH, TAG, SUMMARY, READ).with_description(
        "Fields are accepted in the query string too; in a body lists and objects may be JSON texts. \
         Without series the result is empty.",
    );
    vec![
        with_result_response(with_query_fields(get, correlation()), None, schema()),
        with_result_response(post, Some("CorrelationRequest"), schema()).body_optional(),
    ]
}

fn paths() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/path/";
    let schema = || {
        object([
            ("result", schema_ref("PathResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getPaths", "GET", PATH, TAG, "Calculate paths", READ)
        .with_description("What people do one after the other within a session, as edges between steps.");
    let post = Operation::new("calculatePaths", "POST", PATH, TAG, "Calculate paths", READ).with_description(
        "Fields are accepted in the query string too; the body takes precedence, except for `properties`. \
         In a body lists and objects may be JSON texts.",
    );
    vec![
        with_result_response(with_fields(get, path()), None, schema()),
        with_result_response(post, Some("PathRequest"), schema()).body_optional(),
    ]
}

fn trends() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/trend/";
    let schema = || {
        object([
            ("result", any_of(["TrendResult", "StickinessResult", "LifecycleResult"].map(schema_ref))),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
            ("next", nullable(json!({"type": "string", "format": "uri"}))),
        ])
    };
    let exported = |operation: Operation| {
        operation
            .query_param(
                "export_insight_id",
                text(),
                "For CSV: the id of the insight that the first line links to.",
            )
            .query_param("export_name", text(), "For CSV: the file name.")
            .query_param("offset", text(), "Accepted without effect: the response has all series.")
    };
    let get = Operation::new("getTrend", "GET", PATH, TAG, "Calculate a trend", READ)
        .with_description("Without series the result is empty. CSV has a row per series.");
    let post = Operation::new("calculateTrend", "POST", PATH, TAG, "Calculate a trend", READ).with_description(
        "Fields are accepted in the query string too; the body takes precedence, except for `properties`. \
         In a body lists and objects may be JSON texts. CSV has a row per series.",
    );
    vec![
        with_result_response(exported(with_query_fields(get, trend())), None, schema()),
        with_result_response(exported(post), Some("TrendRequest"), schema()),
    ]
}

fn retention() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/retention/";
    let schema = || {
        object([
            ("result", schema_ref("RetentionResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getRetention", "GET", PATH, TAG, "Calculate retention", READ).with_description(
        "How many actors start in each period, and how many of them return in the periods after it.",
    );
    let post = Operation::new("calculateRetention", "POST", PATH, TAG, "Calculate retention", READ)
        .with_description(
            "Fields are accepted in the query string too; the body takes precedence, except for `properties`. \
             In a body lists and objects may be JSON texts.",
        );
    vec![
        with_result_response(with_fields(get, retention_input::retention()), None, schema()),
        with_result_response(post, Some("RetentionRequest"), schema()).body_optional(),
    ]
}
