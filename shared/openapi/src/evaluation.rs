//! Flag evaluation for one person, and the configuration of browser SDKs. Authorized by a project token.

use pennon_core::http::COMPRESSIONS;
use pennon_flag_rules::evaluate::EvaluationReason;
use serde_json::{Value, json};

use crate::limits::{evaluation, group_digits};
use crate::operation::{Operation, Parameter, Security};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, id, input, integer, list, list_max, map, nullable,
    number, object, object_with_optional, schema_ref, text, text_max, uuid, with_description,
};

const TAG: &str = "Evaluation";
const BODY: &str = "The project token is in the body (`token`, `api_key` or `$token`), in the query string \
    or a bearer token. The body is JSON; it may be compressed with gzip, encoded as base64, or be a form \
    with JSON or base64 in the field `data`. If a flag needs a property that is not in the request, the \
    stored properties of the person are read.";
const OPEN_FEATURE: &str = "OpenFeature's remote evaluation protocol (OFREP). The project token is a \
    bearer token or in `X-API-Key`.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    vec![
        evaluate("evaluateFlags", "/flags/", "Evaluate feature flags for one person"),
        empty_evaluation("getNoFlags", "/flags/"),
        evaluate("decide", "/decide/", "Evaluate feature flags for one person, for legacy SDKs"),
        empty_evaluation("getNoDecision", "/decide/"),
        get("getArrayConfig", "/array/{token}/config/", "Get the configuration of a browser library")
            .response(200, "The configuration.", schema_ref("BrowserConfiguration"))
            .error(404, "No project has this token."),
        get("getArrayConfigScript", "/array/{token}/config.js", "Get the configuration as a script")
            .response_as(200, "The script.", "application/javascript", text())
            .error(404, "No project has this token."),
        empty_list("listSurveys", "/api/surveys/", "List surveys, which are not supported", "surveys"),
        empty_list(
            "listEarlyAccessFeatures",
            "/api/early_access_features/",
            "List early access features, which are not supported",
            "earlyAccessFeatures",
        ),
        ofrep(
            "evaluateOpenFeatureFlags",
            "/ofrep/v1/evaluate/flags/",
            "Evaluate all feature flags for OpenFeature",
        )
        .header_param("If-None-Match", text(), "The `ETag` of the caller's cached response.")
        .response(200, "The flags by key, with an `ETag`.", schema_ref("OpenFeatureFlags"))
        .empty_response(304, "The flags are unchanged since that `ETag`."),
        ofrep(
            "evaluateOpenFeatureFlag",
            "/ofrep/v1/evaluate/flags/{key}/",
            "Evaluate one feature flag for OpenFeature",
        )
        .response(200, "The flag.", schema_ref("OpenFeatureFlag"))
        .response(500, "Data that the flag needs could not be read.", open_feature_refusal()),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("EvaluationRequest", request()),
        ("EvaluatedFlag", evaluated_flag()),
        ("FlagEvaluations", evaluations()),
        ("BrowserConfiguration", browser_configuration()),
        ("OpenFeatureContext", context()),
        ("OpenFeatureFlag", open_feature_flag()),
        ("OpenFeatureFlags", open_feature_flags()),
    ]
}

fn get(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, "GET", path, TAG, summary, Security::Open)
}

fn post(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, "POST", path, TAG, summary, Security::Open)
}

fn versioned(operation: Operation) -> Operation {
    operation
        .query_param(
            "v",
            text(),
            "The version of the response format; a value that is not an integer means 1.",
        )
        .query_param("config", text(), "`true`, `1` or empty adds the configuration of browser SDKs.")
}

fn evaluate(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    let mut operation = versioned(post(id, path, summary))
        .with_description(BODY)
        .query_param("compression", enum_of(&COMPRESSIONS), "The encoding of the body.")
        .query_param(
            "only_evaluate_survey_feature_flags",
            text(),
            "`true` returns only the flags of surveys.",
        )
        .query_param("token", text(), "The project token, if the body has none; `api_key` is an alias.")
        .query_param("api_key", text(), "As `token`.");
    operation.body = vec![("application/json", schema_ref("EvaluationRequest"))];
    operation.body_required = true;
    operation
        .response(200, "The flags, in the response format of the version.", schema_ref("FlagEvaluations"))
        .error(400, "The body cannot be parsed, or a field is invalid; `attr` names it.")
        .error(401, "The token is missing or unknown.")
        .error(413, body_too_large())
        .error(
            500,
            format!("The response is larger than {} bytes.", group_digits(evaluation::RESPONSE_BYTES_MAX)),
        )
}

fn empty_evaluation(id: &'static str, path: &'static str) -> Operation {
    versioned(get(id, path, "Get the configuration of browser SDKs, without flags")).response(
        200,
        "The configuration, without flags.",
        schema_ref("FlagEvaluations"),
    )
}

fn empty_list(id: &'static str, path: &'static str, summary: &'static str, name: &'static str) -> Operation {
    let mut operation = get(id, path, summary)
        .response(200, "An empty list.", object([(name, list_max(0, any()))]))
        .error(401, "The token is missing or unknown.");
    operation.parameters.push(Parameter {
        place: "query",
        name: "token",
        description: "The project token.".to_owned(),
        schema: text(),
        required: true,
    });
    operation
}

fn ofrep(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    let mut operation = post(id, path, summary).with_description(OPEN_FEATURE).header_param(
        "X-API-Key",
        text(),
        "The project token.",
    );
    operation.body = vec![("application/json", schema_ref("OpenFeatureContext"))];
    operation.body_required = true;
    // Those of the protocol in place of the common ones.
    operation.responses.retain(|(status, _)| ![404, 429].contains(status));
    operation
        .response(400, "The body cannot be parsed, or the context is invalid.", open_feature_refusal())
        .error(401, "The token is missing or unknown.")
        .response(404, "There is no such flag for this caller.", open_feature_refusal())
        .response(413, body_too_large(), open_feature_refusal())
        .response(429, "The project's quota is exceeded.", open_feature_refusal())
}

fn body_too_large() -> String {
    const MIB: usize = 1 << 20;
    format!(
        "The body has more than {} MiB, or {} MiB after decompression.",
        evaluation::BODY_BYTES_MAX / MIB,
        evaluation::INFLATED_BYTES_MAX / MIB,
    )
}

fn distinct_id() -> Value {
    let text_or_number = any_of([text(), number()]);
    let characters = evaluation::DISTINCT_ID_CHARS_MAX;
    with_description(text_or_number, format!("The distinct id, truncated to {characters} characters."))
}

fn identifier(description: &str) -> Value {
    with_description(nullable(text_max(evaluation::ID_CHARS_MAX)), description)
}

fn by_type() -> Value {
    nullable(map(nullable(any_object())))
}

fn request() -> Value {
    let groups = json!({"type": ["object", "null"],
        "additionalProperties": any_of([text_max(evaluation::ID_CHARS_MAX), json!({"type": ["number", "boolean", "null", "array", "object"]})])});
    let keys = json!({"type": ["array", "null"], "items": {"type": "string"}, "maxItems": evaluation::FLAG_KEYS_MAX});
    let contexts = nullable(list(text()));
    let mut request = input(
        &[],
        [
            ("token", with_description(nullable(text()), "The project token.")),
            ("api_key", nullable(text())),
            ("$token", nullable(text())),
            ("distinct_id", distinct_id()),
            ("$anon_distinct_id", identifier("The anonymous distinct id before a login.")),
            ("$device_id", identifier("The device id, for flags that are evaluated by device.")),
            ("groups", with_description(groups, "Keys of groups by group type.")),
            (
                "person_properties",
                with_description(
                    nullable(any_object()),
                    "Properties that take precedence over the stored ones.",
                ),
            ),
            (
                "group_properties",
                with_description(
                    by_type(),
                    "Properties by group type, which take precedence over the stored ones.",
                ),
            ),
            ("flag_keys", with_description(keys, "Only these flags and their dependencies are evaluated.")),
            ("evaluation_contexts", contexts),
            ("evaluation_runtime", with_description(nullable(text()), "`client`, `server` or `all`.")),
            (
                "disable_flags",
                with_description(nullable(boolean()), "Evaluates no flag; `distinct_id` is not required."),
            ),
        ],
    );
    // Without flags the id is not looked at.
    request["anyOf"] = json!([
        {"required": ["distinct_id"]},
        {"required": ["$distinct_id"]},
        {"required": ["disable_flags"], "properties": {"disable_flags": {"const": true}}},
    ]);
    request
}

fn reason() -> Value {
    // Disabled flags are not in the response.
    let codes = [
        EvaluationReason::ConditionMatch,
        EvaluationReason::NoConditionMatch,
        EvaluationReason::OutOfRolloutBound,
        EvaluationReason::NoGroupType,
        EvaluationReason::SuperConditionValue,
        EvaluationReason::HoldoutConditionValue,
        EvaluationReason::MissingDependency,
        EvaluationReason::StoreUnavailable,
        EvaluationReason::OverrideUnavailable,
    ]
    .map(EvaluationReason::as_str);
    object([("code", enum_of(&codes)), ("condition_index", nullable(integer())), ("description", text())])
}

fn evaluated_flag() -> Value {
    let metadata = object([
        ("id", id()),
        ("version", integer()),
        ("description", constant(Value::Null)),
        ("payload", nullable(text())),
        ("has_experiment", boolean()),
    ]);
    object_with_optional(
        [
            ("key", text()),
            ("enabled", boolean()),
            ("variant", nullable(text())),
            ("reason", reason()),
            ("metadata", metadata),
        ],
        [(
            "failed",
            with_description(constant(json!(true)), "The flag has no value because data could not be read."),
        )],
    )
}

fn configuration() -> [(&'static str, Value); 16] {
    let off = || constant(json!(false));
    [
        ("supportedCompression", constant(json!(["base64"]))),
        ("hasFeatureFlags", constant(json!(true))),
        ("isAuthenticated", off()),
        ("config", object([("enable_collect_everything", boolean())])),
        ("toolbarParams", object([])),
        ("siteApps", list_max(0, any())),
        ("sessionRecording", off()),
        ("surveys", off()),
        ("heatmaps", off()),
        ("capturePerformance", off()),
        ("autocaptureExceptions", off()),
        ("captureDeadClicks", off()),
        ("autocapture_opt_out", off()),
        ("defaultIdentifiedOnly", boolean()),
        ("conversations", off()),
        ("productTours", off()),
    ]
}

fn browser_configuration() -> Value {
    let mut configuration = object_with_optional(configuration(), []);
    configuration["properties"]["token"] = text();
    if let Some(required) = configuration["required"].as_array_mut() {
        required.push("token".into());
    }
    configuration
}

/// A response, with or without the SDK configuration.
fn shape<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut shape = object_with_optional(fields, configuration());
    let common = [("requestId", uuid()), ("evaluatedAt", integer())];
    for (name, schema) in common {
        shape["properties"][name] = schema;
        if let Some(required) = shape["required"].as_array_mut() {
            required.push(name.into());
        }
    }
    shape["properties"]["quotaLimited"] = constant(json!(["feature_flags"]));
    shape
}

fn evaluations() -> Value {
    let values = || map(schema_ref("FeatureFlagValue"));
    any_of([
        shape([("errorsWhileComputingFlags", boolean()), ("flags", map(schema_ref("EvaluatedFlag")))]),
        shape([
            ("errorsWhileComputingFlags", boolean()),
            ("featureFlags", values()),
            ("featureFlagPayloads", map(text())),
        ]),
        shape([("featureFlags", values())]),
        shape([("featureFlags", list(text()))]),
    ])
}

fn context() -> Value {
    let fields = input(
        &["targetingKey"],
        [
            ("targetingKey", any_of([json!({"type": "string", "minLength": 1}), number()])),
            ("groups", request()["properties"]["groups"].clone()),
            ("group_properties", by_type()),
            ("$device_id", identifier("The device id, for flags that are evaluated by device.")),
            ("$anon_distinct_id", identifier("The anonymous distinct id before a login.")),
        ],
    );
    let context = with_description(fields, "All other members are properties of the person.");
    input(&["context"], [("context", context)])
}

fn open_feature_refusal() -> Value {
    object_with_optional([("errorCode", text()), ("errorDetails", text())], [("key", text())])
}

fn open_feature_flag() -> Value {
    let reasons = ["STATIC", "TARGETING_MATCH", "SPLIT", "DISABLED", "UNKNOWN"];
    let metadata = object_with_optional(
        [("id", id()), ("version", integer()), ("reason", text())],
        [("condition_index", integer()), ("payload", text())],
    );
    object_with_optional(
        [("key", text()), ("variant", text()), ("reason", enum_of(&reasons)), ("metadata", metadata)],
        [("value", with_description(any(), "Missing if the client has to use its default value."))],
    )
}

fn open_feature_flags() -> Value {
    let flag = any_of([schema_ref("OpenFeatureFlag"), open_feature_refusal()]);
    object([("flags", list(flag)), ("metadata", object([("flags", integer())]))])
}
