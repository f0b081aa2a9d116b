//! Capture: events in, in the forms that SDKs send.

use pennon_core::http::{BODY_BYTES_MAX, COMPRESSIONS, CONTENT_ENCODINGS};
use serde_json::{Value, json};

use crate::limits::{capture, group_digits};
use crate::operation::{Operation, Parameter, Security};
use crate::schema::{
    any, any_object, any_of, constant, enum_of, input, instant, list_max, map, nullable, object, schema_ref,
    text, with_description,
};

const TAG: &str = "Capture";
const BODY: &str = "The project token is in the body, in the query string or a bearer token. The body is \
    an event, a list of events, or an object with `batch`; it may be compressed with gzip, encoded as \
    base64 (`compression=base64`), or be a form with JSON or base64 in the field `data`. All events are \
    stored, or none. A body of any content type is parsed as JSON, unless it is such a form.";
/// Why events of a batch are dropped in the newer format.
const DROPPED: [&str; 7] = [
    "missing_event_name",
    "event_name_too_long",
    "missing_distinct_id",
    "distinct_id_too_large",
    "invalid_event_timestamp",
    "malformed_event_properties",
    "invalid_event_when_process_person_profile_is_false",
];

/// The operations.
pub fn operations() -> Vec<Operation> {
    vec![
        capture("captureBatch", "/batch/", "Capture events"),
        capture("capture", "/capture/", "Capture events, an alias of `/batch/`"),
        capture("captureE", "/e/", "Capture events, an alias of `/batch/`"),
        capture("captureV0", "/i/v0/e/", "Capture events, an alias of `/batch/`"),
        analytics(),
        from_query(),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("CaptureBody", body()),
        ("CapturedEvent", event()),
        ("CaptureForm", form()),
        ("AnalyticsBatch", analytics_batch()),
        ("AnalyticsEvent", analytics_event()),
    ]
}

/// A capture operation, with the project token in the query string or a header.
fn capture_operation(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    let mut operation = Operation::new(id, "POST", path, TAG, summary, Security::Open)
        .query_param("token", text(), "The project token, if the body has none; `api_key` is an alias.")
        .query_param("api_key", text(), "As `token`.")
        .query_param("compression", enum_of(&COMPRESSIONS), "The encoding of the body.")
        .error(401, "The token is missing or unknown, or the events have different tokens.");
    operation.parameters.push(Parameter {
        place: "header",
        name: "Content-Encoding",
        description: "`gzip` if the body is compressed; gzip is also detected without the header.".to_owned(),
        schema: enum_of(&CONTENT_ENCODINGS),
        required: false,
    });
    operation
}

fn capture(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    let mut operation = capture_operation(id, path, summary).with_description(BODY).query_param(
        "_",
        text(),
        "The client's clock at the time of sending, in milliseconds since 1970.",
    );
    operation.body = vec![
        ("application/json", schema_ref("CaptureBody")),
        ("application/x-www-form-urlencoded", schema_ref("CaptureForm")),
    ];
    operation.body_required = true;
    with_body_errors(operation).response(
        200,
        "All events are stored.",
        object([("status", constant(json!(1)))]),
    )
}

/// Events in the query string.
fn from_query() -> Operation {
    let mut operation = Operation::new(
        "captureFromQuery",
        "GET",
        "/e/",
        TAG,
        "Capture events in the query string, an option of browser SDKs",
        Security::Open,
    )
    .query_param("compression", enum_of(&COMPRESSIONS), "The encoding of `data`.")
    .query_param("token", text(), "The project token, if `data` has none; `api_key` is an alias.")
    .query_param("api_key", text(), "As `token`.")
    .query_param("_", text(), "The client's clock at the time of sending, in milliseconds since 1970.")
    .error(401, "The token is missing or unknown, or the events have different tokens.");
    operation.parameters.push(Parameter {
        place: "query",
        name: "data",
        description: "The body, as JSON or base64.".to_owned(),
        schema: json!({"type": "string", "minLength": 1}),
        required: true,
    });
    with_body_errors(operation).response(
        200,
        "All events are stored.",
        object([("status", constant(json!(1)))]),
    )
}

/// The refusals of a body.
fn with_body_errors(operation: Operation) -> Operation {
    operation.error(400, "The body cannot be parsed, or an event is invalid; `attr` names the field.").error(
        413,
        format!(
            "The request has more than {} bytes, {} bytes after decompression, {} events, or an event of \
             more than {} KiB.",
            group_digits(BODY_BYTES_MAX),
            group_digits(capture::INFLATED_BYTES_MAX),
            group_digits(capture::EVENTS_MAX),
            capture::EVENT_BYTES_MAX / 1024,
        ),
    )
}

/// A text, a number that is one's text, or nothing.
fn distinct_id() -> Value {
    any_of([
        json!({"type": "string", "pattern": r"\S"}),
        json!({"type": ["number", "boolean", "array", "object"]}),
    ])
}

/// The text of a UUID, or nothing.
fn optional_uuid() -> Value {
    any_of([json!({"type": "null"}), constant(json!("")), json!({"type": "string", "format": "uuid"})])
}

/// What an event has in both forms. `timestamp` may be in any form of ISO 8601 and others; one that cannot be
/// read means now.
fn event() -> Value {
    let milliseconds = json!({"type": ["number", "null"], "exclusiveMinimum": -capture::OFFSET_MS_MAX, "exclusiveMaximum": capture::OFFSET_MS_MAX});
    let changes = || with_description(any(), "Stored as a property.");
    let mut event = input(
        &["event"],
        [
            (
                "event",
                with_description(
                    text(),
                    format!("The event's name, truncated to {} characters.", capture::NAME_CHARS_MAX),
                ),
            ),
            (
                "distinct_id",
                with_description(
                    any(),
                    format!(
                        "The distinct id: a text that is not blank, or another value, which is stored as \
                         its JSON text; truncated to {} characters.",
                        capture::DISTINCT_ID_CHARS_MAX,
                    ),
                ),
            ),
            ("$distinct_id", with_description(any(), "An alias of `distinct_id`.")),
            ("properties", any_object()),
            ("timestamp", nullable(text())),
            (
                "offset",
                with_description(
                    milliseconds,
                    "The time between the event and its arrival, in milliseconds.",
                ),
            ),
            (
                "uuid",
                with_description(
                    optional_uuid(),
                    "The id for deduplication: events with the same uuid count once.",
                ),
            ),
            ("$set", changes()),
            ("$set_once", changes()),
            ("$unset", changes()),
        ],
    );
    // It may stand in the properties too.
    let has = |name: &str| json!({"required": [name], "properties": {name: distinct_id()}});
    let inner = json!({"required": ["properties"], "properties": {"properties": has("distinct_id")}});
    event["anyOf"] = json!([has("distinct_id"), has("$distinct_id"), inner]);
    event
}

fn sent_at() -> Value {
    with_description(
        nullable(text()),
        "The client's clock at the time of sending, to correct timestamps for clock skew.",
    )
}

fn body() -> Value {
    let mut events = list_max(capture::EVENTS_MAX, schema_ref("CapturedEvent"));
    events["minItems"] = json!(1);
    let fields =
        || [("api_key", any()), ("token", any()), ("sent_at", sent_at()), ("historical_migration", any())];
    let batch = {
        let mut batch = input(&["batch"], fields());
        batch["properties"]["batch"] = events.clone();
        batch
    };
    let one = {
        let mut one = input(&[], fields());
        one["properties"]["batch"] = json!(false);
        json!({"allOf": [schema_ref("CapturedEvent"), one]})
    };
    any_of([batch, events, one])
}

fn form() -> Value {
    input(
        &["data"],
        [
            ("data", with_description(text(), "The body, as JSON or base64.")),
            ("compression", enum_of(&COMPRESSIONS)),
            ("api_key", text()),
            ("token", text()),
        ],
    )
}

fn analytics() -> Operation {
    let results = map(any_of([
        object([("result", constant(json!("ok")))]),
        object([("result", constant(json!("drop"))), ("details", enum_of(&DROPPED))]),
    ]));
    let mut operation = capture_operation(
        "captureAnalyticsEvents",
        "/i/v1/analytics/events/",
        "Capture events with a result for each",
    )
    .with_description(
        "The project token is a bearer token, in the query string or in the body, which may be compressed \
         with gzip. Every event requires a uuid, under which the response has the outcome: stored, or \
         dropped with a reason.",
    )
    .header_param("PostHog-Request-Timestamp", text(), "The client's clock at the time of sending.")
    .header_param("PostHog-Sdk-Info", text(), "The name of the library, a slash and its version.");
    operation.body = vec![("application/json", schema_ref("AnalyticsBatch"))];
    operation.body_required = true;
    with_body_errors(operation).response(
        200,
        "The outcome of each event, by its uuid.",
        object([("results", results)]),
    )
}

fn analytics_batch() -> Value {
    let mut events = list_max(capture::EVENTS_MAX, schema_ref("AnalyticsEvent"));
    events["minItems"] = json!(1);
    input(
        &["created_at", "batch"],
        [
            ("created_at", with_description(instant(), "The time at which the batch was created.")),
            ("historical_migration", any()),
            ("api_key", any()),
            ("token", any()),
            ("sent_at", sent_at()),
            ("batch", events),
        ],
    )
}

/// An event of the newer form. One that lacks a name, a distinct id or a time that can be read is dropped,
/// not refused.
fn analytics_event() -> Value {
    let options = "The booleans `process_person_profile`, `cookieless_mode` and `disable_skew_correction`.";
    input(
        &["uuid"],
        [
            ("uuid", json!({"type": "string", "format": "uuid"})),
            (
                "event",
                with_description(
                    any(),
                    format!("The event's name, at most {} characters.", capture::NAME_CHARS_MAX),
                ),
            ),
            (
                "distinct_id",
                with_description(
                    any(),
                    format!("The distinct id, at most {} characters.", capture::DISTINCT_ID_CHARS_MAX),
                ),
            ),
            ("timestamp", nullable(text())),
            ("properties", any()),
            ("session_id", any()),
            ("window_id", any()),
            ("options", with_description(any(), options)),
        ],
    )
}
