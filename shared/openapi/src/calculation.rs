//! Calculations: query nodes and calculations in the background, funnels, trends and correlations on demand.

use serde_json::{Value, json};

use crate::calculation_input::{about_the_request, asked_by, trend};
use crate::funnel_input::{correlation, funnel};
use crate::operation::{Operation, Security};
use crate::query_nodes;
use crate::result_schemas::query_status;
use crate::schema::{any_of, boolean, constant, instant, list_to, named, nullable, object, text};

const TAG: &str = "Calculation";
const READ: Security = Security::Scope("insight:read");
const QUERY: Security = Security::Scope("query:read");
/// What a schema cannot say of a question.
const REFUSED: &str = "The question is not acceptable: `attr` names the field where one is at fault. So are \
    steps that are not there, actions and cohorts that are not known, expressions and formulas that cannot \
    be read, and ranges with too many buckets; or the answer is larger than an answer can be.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    [queries(), funnels(), correlations(), trends()].into_iter().flatten().collect()
}

/// The schemas of answers.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![("QueryNothing", nothing()), ("FinishedQuery", finished()), ("QueryWord", word())]
}

/// The answer to a node without series.
fn nothing() -> Value {
    let null = || constant(Value::Null);
    object([
        ("results", list_to(0, json!({}))),
        ("timezone", text()),
        ("is_cached", constant(json!(false))),
        ("last_refresh", instant()),
        ("cache_key", null()),
        ("hasMore", null()),
        ("hogql", null()),
        ("query_status", null()),
    ])
}

/// A calculation that ended well. `results` is null where its result is kept no longer.
fn finished() -> Value {
    object([("query_status", query_status(nullable(named("QueryAnswer"))))])
}

/// How a calculation goes, or why it failed.
fn word() -> Value {
    object([("query_status", named("QueryStatus"))])
}

fn queries() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/query/";
    const ONE: &str = "/api/projects/{project_id}/query/{id}/";
    let ask = Operation::new("query", "POST", ALL, TAG, "Calculate a trend or a funnel", QUERY).described(
        "Without a fresh result it is calculated; what takes too long goes on in the background, and \
         `query_status` says so. Its result is shared with insights of the same query.",
    );
    let mut ask = query_nodes::by_query(ask).takes(named("QueryRequest")).gives(
        200,
        "The result, or word of the calculation.",
        any_of([named("QueryAnswer"), named("QueryNothing")]),
    );
    say(&mut ask, 400, REFUSED);
    let follow = Operation::new("getQuery", "GET", ONE, TAG, "Tell how a calculation goes", QUERY)
        .described("`id` is the caller's own name for it, or its `cache_key`.")
        .gives(200, "It ended well.", named("FinishedQuery"))
        .gives(202, "It has not ended.", named("QueryWord"))
        .gives(
            400,
            "The question was refused, which `error_message` explains, or the answer is larger than an \
             answer can be.",
            any_of([named("QueryWord"), named("Error")]),
        )
        .gives(500, "It failed.", any_of([named("QueryWord"), named("Error")]));
    vec![
        ask,
        follow,
        Operation::new("cancelQuery", "DELETE", ONE, TAG, "Cancel a calculation", QUERY)
            .described("It stops where nobody else waits for it. What is not there is cancelled already.")
            .empty(204, "Nobody waits for it under this name."),
    ]
}

/// Another text for a status.
pub(crate) fn say(operation: &mut Operation, status: u16, description: &'static str) {
    for (_, answer) in operation.answers.iter_mut().filter(|(known, _)| *known == status) {
        answer.description = description;
    }
}

/// What a path below the insights answers, with or without a body.
fn answering(operation: Operation, body: Option<&str>, answer: Value) -> Operation {
    let operation = about_the_request(operation);
    let operation = match body {
        Some(name) => operation.takes(named(name)),
        None => operation.refuses(400, REFUSED),
    };
    let mut operation = operation.gives(200, "The result.", answer);
    say(&mut operation, 400, REFUSED);
    say(&mut operation, 404, "There is no such project, or no such form of an answer.");
    operation.tables()
}

fn funnels() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/";
    let answer = || {
        object([
            ("result", named("FunnelResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getFunnel", "GET", PATH, TAG, "Calculate a funnel", READ)
        .described("Without events and actions the result is empty.");
    let post = Operation::new("calculateFunnel", "POST", PATH, TAG, "Calculate a funnel", READ).described(
        "Fields may come in the query string too; the body wins, but for `properties`. In a body \
         lists and objects may be JSON texts.",
    );
    vec![
        answering(asked_by(get, funnel()), None, answer()),
        answering(post, Some("FunnelQuestion"), answer()),
    ]
}

fn correlations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/funnel/correlation/";
    const SUMMARY: &str = "Find what distinguishes those who get through a funnel";
    let answer = || {
        object([
            ("result", named("CorrelationResult")),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
        ])
    };
    let get = Operation::new("getCorrelation", "GET", PATH, TAG, SUMMARY, READ)
        .described("Without events and actions nothing is found.");
    let post = Operation::new("calculateCorrelation", "POST", PATH, TAG, SUMMARY, READ).described(
        "Fields may come in the query string too; in a body lists and objects may be JSON texts. \
         Without events and actions nothing is found.",
    );
    vec![
        answering(asked_by(get, correlation()), None, answer()),
        answering(post, Some("CorrelationQuestion"), answer()).body_optional(),
    ]
}

fn trends() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/insights/trend/";
    let answer = || {
        object([
            ("result", named("TrendResult")),
            ("timezone", text()),
            ("last_refresh", instant()),
            ("is_cached", boolean()),
            ("next", nullable(json!({"type": "string", "format": "uri"}))),
        ])
    };
    let exported = |operation: Operation| {
        operation
            .query("export_insight_id", text(), "Of a table: the insight that its first line links to.")
            .query("export_name", text(), "Of a table: what its file is called.")
            .query(
                "offset",
                text(),
                "How many series come before the page. All are answered whatever it says.",
            )
    };
    let get = Operation::new("getTrend", "GET", PATH, TAG, "Calculate a trend", READ)
        .described("Without events and actions the result is empty. A table has a row for each series.");
    let post = Operation::new("calculateTrend", "POST", PATH, TAG, "Calculate a trend", READ).described(
        "Fields may come in the query string too; the body wins, but for `properties`. In a body lists and \
         objects may be JSON texts. A table has a row for each series.",
    );
    vec![
        answering(exported(asked_by(get, trend())), None, answer()),
        answering(exported(post), Some("TrendQuestion"), answer()),
    ]
}
