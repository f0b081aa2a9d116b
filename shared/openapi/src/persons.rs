//! Persons of a project, and the actors behind data points of results.

use serde_json::{Value, json};

use crate::calculation::set_response_description;
use crate::calculation_input::{concat_fields, trend, trend_point, with_fields, with_query_fields};
use crate::funnel_input::{correlation, correlation_point, funnel, funnel_point};
use crate::limits::{GROUP_TYPE_MAX, calculation};
use crate::operation::{Operation, Security};
use crate::path_input::path;
use crate::retention_input::{retention, retention_point};
use crate::schema::{
    any_object, any_of, boolean, constant, extend_object, instant, integer_in, list, list_max, nullable,
    object, page, schema_ref, text, text_max, uuid,
};

const TAG: &str = "Persons";
const READ: Security = Security::Scope("person:read");
const REFUSED: &str = "The query or the selection of the number is invalid (named by `attr`), or the page \
    exceeds the maximum response size.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    [
        persons(),
        funnel_people_operations(),
        path_people_operations(),
        trend_people_operations(),
        retention_people_operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let times = || ("matched_times", list(instant()));
    vec![
        ("Person", person()),
        ("PersonActor", extend_object(person(), [times()])),
        ("GroupActor", extend_object(group(), [times()])),
        ("PeoplePage", people_page()),
        ("AppearancesPage", appearances_page()),
    ]
}

/// A person; `name` is a property that names it, else a distinct id.
fn person() -> Value {
    object([
        ("type", constant(json!("person"))),
        ("id", uuid()),
        ("uuid", uuid()),
        ("name", nullable(text())),
        ("distinct_ids", list(text())),
        ("properties", any_object()),
        ("created_at", nullable(instant())),
        ("is_identified", boolean()),
    ])
}

fn group() -> Value {
    object([
        ("type", constant(json!("group"))),
        ("id", text()),
        ("group_type_index", integer_in(0, GROUP_TYPE_MAX)),
        ("group_key", text()),
        ("properties", any_object()),
        ("created_at", constant(Value::Null)),
    ])
}

/// A page of the people behind a number, in a list of one.
fn people_page() -> Value {
    let link = || json!({"type": "string", "format": "uri"});
    let count = || json!({"type": "integer", "minimum": 0});
    let actor = any_of([schema_ref("PersonActor"), schema_ref("GroupActor")]);
    let mut only = list_max(1, object([("people", list(actor)), ("count", count())]));
    only["minItems"] = json!(1);
    object([
        ("results", only),
        ("next", nullable(link())),
        ("previous", nullable(link())),
        ("initial", link()),
        ("total_count", count()),
        ("missing_persons", constant(json!(0))),
        ("last_refresh", instant()),
        ("is_cached", constant(json!(false))),
    ])
}

/// A page of the people of a row of a retention result, with the columns in which each of them counts.
fn appearances_page() -> Value {
    let link = || json!({"type": "string", "format": "uri"});
    let count = || json!({"type": "integer", "minimum": 0});
    let row = object([
        ("person", any_of([schema_ref("PersonActor"), schema_ref("GroupActor")])),
        ("appearance_count", count()),
        ("appearances", list(integer_in(0, 1))),
    ]);
    object([
        ("result", list(row)),
        ("next", nullable(link())),
        ("previous", nullable(link())),
        ("total_count", count()),
        ("missing_persons", constant(json!(0))),
    ])
}

fn persons() -> Vec<Operation> {
    const LIST: &str = "/api/projects/{project_id}/persons/";
    const ONE: &str = "/api/projects/{project_id}/persons/{id}/";
    let none = json!({"type": "string", "pattern": r"^[ \t\r\n]*$"});
    let conditions = json!({"type": "string", "contentMediaType": "application/json"});
    let mut one = Operation::new("getPerson", "GET", ONE, TAG, "Get a person", READ)
        .with_description(
            "The ids of merged persons return the remaining person. The scope `insight:read` is accepted \
             too.",
        )
        .response(200, "The person.", schema_ref("Person"))
        .error(400, "The id is not a UUID, or the response exceeds the maximum size.");
    for parameter in one.parameters.iter_mut().filter(|parameter| parameter.name == "id") {
        let text = "The person's id, a UUID. Use the list with `distinct_id` to look up a distinct id.";
        text.clone_into(&mut parameter.description);
        parameter.schema = uuid();
        // Many readers of the document ignore formats.
        parameter.schema["pattern"] = json!(r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$");
    }
    vec![
        Operation::new("listPersons", "GET", LIST, TAG, "List persons", READ)
            .with_description(
                "A person must match all conditions. The request is rejected if too many persons would \
                 have to be scanned. The scope `insight:read` is accepted too.",
            )
            .query_param(
                "distinct_id",
                text_max(calculation::TEXT_CHARS),
                "The person with this distinct id.",
            )
            .query_param(
                "email",
                text_max(calculation::TEXT_CHARS),
                "The exact value of the property `email`.",
            )
            .query_param(
                "search",
                text_max(calculation::TEXT_CHARS),
                "Text contained in the email or the name, case-insensitive; or an id, or a distinct id.",
            )
            .query_param("properties", conditions, "A JSON list of filters on persons, or a filter group.")
            .query_param("cohort", none, "Not supported: rejected if it is not empty.")
            .paginated()
            .response(200, "A page.", page(schema_ref("Person")))
            .error(
                400,
                "A parameter is invalid, there are too many persons, or the page exceeds the maximum \
                 response size.",
            ),
        one,
    ]
}

/// The responses of a path below `persons`.
pub(crate) fn with_people_response(operation: Operation, body: Option<&str>) -> Operation {
    with_page_response(operation, body, "PeoplePage")
}

fn with_page_response(operation: Operation, body: Option<&str>, page: &str) -> Operation {
    let operation = operation.paginated();
    let operation = match body {
        Some(name) => operation.json_body(schema_ref(name)),
        None => operation.error(400, REFUSED),
    };
    let mut operation = operation.response(200, "A page.", schema_ref(page));
    set_response_description(&mut operation, 400, REFUSED);
    operation
}

fn funnel_people_operations() -> Vec<Operation> {
    const STEPS: &str = "/api/projects/{project_id}/persons/funnel/";
    const CORRELATION: &str = "/api/projects/{project_id}/persons/funnel/correlation/";
    const OF_STEPS: &str = "List the persons behind a number of a funnel";
    const OF_CORRELATION: &str = "List the persons behind a number of a correlation";
    let get = Operation::new("getFunnelPeople", "GET", STEPS, TAG, OF_STEPS, READ).with_description(
        "The links in results have this target. `funnel_step` is required, or for conversion over time \
         `entrance_period_start` and `drop_off`. The scope `insight:read` is accepted too.",
    );
    let post = Operation::new("listFunnelPeople", "POST", STEPS, TAG, OF_STEPS, READ).with_description(
        "Fields are accepted in the query string too; in a body lists and objects may be JSON texts. \
         `funnel_step` is required, or for conversion over time `entrance_period_start` and `drop_off`. \
         The scope `insight:read` is accepted too.",
    );
    let get_correlation =
        Operation::new("getCorrelationPeople", "GET", CORRELATION, TAG, OF_CORRELATION, READ)
            .with_description(
                "The links in results have this target. The scope `insight:read` is accepted too.",
            );
    let post_correlation =
        Operation::new("listCorrelationPeople", "POST", CORRELATION, TAG, OF_CORRELATION, READ)
            .with_description(
                "Fields are accepted in the query string too; in a body lists and objects may be JSON \
                 texts. The event, or the value of the property, is required. The scope `insight:read` is \
                 accepted too.",
            );
    let mut get_correlation =
        with_query_fields(get_correlation, concat_fields([correlation(), correlation_point()]));
    let required = "funnel_correlation_person_converted";
    for parameter in get_correlation.parameters.iter_mut().filter(|parameter| parameter.name == required) {
        parameter.required = true;
    }
    vec![
        with_people_response(with_query_fields(get, concat_fields([funnel(), funnel_point()])), None),
        with_people_response(post, Some("FunnelPeopleRequest")),
        with_people_response(get_correlation, None),
        with_people_response(post_correlation, Some("CorrelationPeopleRequest")),
    ]
}

fn path_people_operations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/persons/path/";
    const SUMMARY: &str = "List the persons behind a step or an edge of paths";
    const KEYS: &str = "The persons with a session that ends with `path_dropoff_key`, has the edge from `path_start_key` \
        to `path_end_key`, has the step `path_end_key`, or goes on after `path_start_key`; without keys all persons with a \
        step. Weights and limits of edges have no effect. The scope `insight:read` is accepted too.";
    let get = Operation::new("getPathPeople", "GET", PATH, TAG, SUMMARY, READ).with_description(KEYS);
    let post = Operation::new("listPathPeople", "POST", PATH, TAG, SUMMARY, READ).with_description(KEYS);
    vec![
        with_people_response(with_fields(get, path()), None),
        with_people_response(post, Some("PathPeopleRequest")).body_optional(),
    ]
}

fn trend_people_operations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/persons/trends/";
    const SUMMARY: &str = "List the persons behind a number of a trend";
    let get = Operation::new("getTrendPeople", "GET", PATH, TAG, SUMMARY, READ).with_description(
        "The links in results have this target: the query with the range of one interval. The scope \
         `insight:read` is accepted too.",
    );
    let post = Operation::new("listTrendPeople", "POST", PATH, TAG, SUMMARY, READ).with_description(
        "Fields are accepted in the query string too; in a body lists and objects may be JSON texts. Lists \
         the persons of the whole range. The scope `insight:read` is accepted too.",
    );
    vec![
        with_people_response(with_query_fields(get, concat_fields([trend(), trend_point()])), None),
        with_people_response(post, Some("TrendPeopleRequest")),
    ]
}

fn retention_people_operations() -> Vec<Operation> {
    const PATH: &str = "/api/projects/{project_id}/persons/retention/";
    const SUMMARY: &str = "List the persons of a row of retention";
    const TEXT: &str = "`selected_interval` is the row. The query is a node in `query`, or in the fields of a legacy request. \
        Persons with most appearances come first. The scope `insight:read` is accepted too.";
    let get = Operation::new("getRetentionPeople", "GET", PATH, TAG, SUMMARY, READ).with_description(TEXT);
    let post = Operation::new("listRetentionPeople", "POST", PATH, TAG, SUMMARY, READ).with_description(TEXT);
    let fields = concat_fields([retention(), retention_point()]);
    const PAGE: &str = "AppearancesPage";
    vec![
        with_page_response(with_fields(get, fields), None, PAGE),
        with_page_response(post, Some("RetentionPeopleRequest"), PAGE).body_optional(),
    ]
}
