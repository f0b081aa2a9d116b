//! Feature flags: records, activity log, evaluation, and the definitions that SDKs poll.

use pennon_core::activity::{LIMIT_DEFAULT, LIMIT_MAX};
use pennon_flag_rules::flag::field_table::{FLAG_FIELDS, FieldKind, sortable_fields};
use pennon_flag_rules::limits;
use serde_json::json;

use crate::limits::quote_choices;
use crate::operation::{Operation, Security};
use crate::schema::{any, any_of, constant, enum_of, list, map, object, page, schema_ref, text, text_max};

const TAG: &str = "Feature flags";
const LIST: &str = "/api/projects/{project_id}/feature_flags/";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{id}/";
const READ: Security = Security::Scope("feature_flag:read");
const WRITE: Security = Security::Scope("feature_flag:write");
const LOG: Security = Security::Scope("activity_log:read");
const THIS: [(&str, &str); 2] = [("project_id", "$request.path.project_id"), ("id", "$response.body#/id")];

/// The operations.
pub fn operations() -> Vec<Operation> {
    [records(), logs(), values(), polls(), made_from_flags()].into_iter().flatten().collect()
}

fn get(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "GET", path, TAG, summary, security)
}

fn post(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "POST", path, TAG, summary, security)
}

/// With a JSON body.
fn with_json_body(operation: Operation, name: &str) -> Operation {
    operation.json_body(schema_ref(name))
}

fn with_links(operation: Operation) -> Operation {
    operation
        .link("get", "getFeatureFlag", &THIS)
        .link("update", "updateFeatureFlag", &THIS)
        .link("replace", "replaceFeatureFlag", &THIS)
        .link("status", "getFeatureFlagStatus", &THIS)
        .link("activity", "listActivityOfFeatureFlag", &THIS)
}

fn records() -> Vec<Operation> {
    let create = post("createFeatureFlag", LIST, "Create a feature flag", WRITE)
        .with_description("Deleted flags with the same key are not changed.")
        .idempotent();
    let create =
        with_json_body(create, "FeatureFlagCreate").response(201, "The flag.", schema_ref("FeatureFlag"));
    let update = Operation::new("updateFeatureFlag", "PATCH", ONE, TAG, "Change a feature flag", WRITE)
        .with_description(
            "Fields that are not sent are unchanged. `deleted: true` deletes a flag, which can be restored \
             with `deleted: false`.",
        );
    let replace = Operation::new("replaceFeatureFlag", "PUT", ONE, TAG, "Change a feature flag", WRITE)
        .with_description("As PATCH, but the key is required. Fields that are not sent are unchanged.");
    let changed = |operation: Operation, body| {
        with_json_body(operation, body)
            .response(200, "The flag.", schema_ref("FeatureFlag"))
            .error(409, "Another request changed the same fields since `original_flag`.")
    };
    vec![
        list_operation(),
        with_links(create),
        get("getFeatureFlag", ONE, "Get a feature flag, also a deleted one", READ).response(
            200,
            "The flag.",
            schema_ref("FeatureFlag"),
        ),
        changed(update, "FeatureFlagUpdate").body_optional(),
        changed(replace, "FeatureFlagReplace"),
        Operation::new(
            "deleteFeatureFlag",
            "DELETE",
            ONE,
            TAG,
            "Not allowed: flags are deleted with PATCH",
            WRITE,
        )
        .empty_response(405, "Always, also for unknown flags. Send `deleted: true` with PATCH."),
    ]
}

/// The values of a field that has one of several values.
fn choices_of(name: &str) -> &'static [&'static str] {
    let field = FLAG_FIELDS.iter().find(|field| field.name == name);
    match field.map(|field| field.kind) {
        Some(FieldKind::OneOf(choices)) => choices,
        _ => &[],
    }
}

fn list_operation() -> Operation {
    let fields = sortable_fields().map(|(field, _)| field);
    let orders: Vec<String> = std::iter::once(String::new())
        .chain(fields.flat_map(|field| [field.to_owned(), format!("-{field}")]))
        .collect();
    let number = json!({"type": "string", "pattern": r"^\s*[+-]?[0-9]+\s*$"});
    let runtimes = quote_choices(choices_of("evaluation_runtime"));
    get("listFeatureFlags", LIST, "List feature flags", READ)
        .query_param(
            "active",
            text(),
            "`true` (case-insensitive) selects active flags, `STALE` stale ones, other values inactive ones.",
        )
        .query_param("created_by_id", number, "The id of the user who created them.")
        .query_param(
            "search",
            text_max(limits::SEARCH_CHARS),
            "Text contained in the key or the name; a space matches any separators.",
        )
        .query_param("key", text(), "The key, case-insensitive.")
        .query_param(
            "type",
            text(),
            "`boolean`, `multivariant`, `experiment` or `remote_config`; other values are ignored.",
        )
        .query_param("evaluation_runtime", text(), format!("{runtimes}; other values match no flag."))
        .query_param(
            "tags",
            text(),
            "A JSON list of tags; a flag matches if it has one of them. Other values are ignored.",
        )
        .query_param("excluded_tags", text(), "A JSON list of tags; flags with any of them are excluded.")
        .query_param("excluded_properties", text(), "A JSON list of flag keys to exclude.")
        .query_param(
            "order",
            json!({"type": "string", "enum": orders}),
            "A field; descending with a leading `-`. Default: newest first.",
        )
        .paginated()
        .response(200, "A page.", page(schema_ref("FeatureFlag")))
        .error(400, "A parameter is invalid, or the page exceeds the maximum response size.")
}

/// With the parameters of a log.
pub(crate) fn with_log_parameters(operation: Operation) -> Operation {
    let positive = || json!({"type": "string", "pattern": r"^\s*\+?0*[1-9][0-9]*\s*$"});
    operation
        .query_param(
            "limit",
            positive(),
            format!("Page size, at most {LIMIT_MAX}. Default: {LIMIT_DEFAULT}."),
        )
        .query_param("page", positive(), "The page number; page 1 has the newest entries.")
        .response(200, "A page, newest first.", schema_ref("ActivityPage"))
        .error(400, "A parameter is not a positive number, or the page exceeds the maximum response size.")
}

fn logs() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/feature_flags/activity/";
    const OF_ONE: &str = "/api/projects/{project_id}/feature_flags/{id}/activity/";
    const STATUS: &str = "/api/projects/{project_id}/feature_flags/{id}/status/";
    let mut status = get("getFeatureFlagStatus", STATUS, "Get the usage status of a feature flag", READ)
        .response(200, "Its status.", schema_ref("FeatureFlagStatus"));
    for (code, response) in &mut status.responses {
        if *code == 404 {
            "There is no such flag, or no such project.".clone_into(&mut response.description);
            let either = any_of([schema_ref("FeatureFlagNotFound"), schema_ref("Error")]);
            response.content = vec![("application/json", either)];
        }
    }
    vec![
        with_log_parameters(get(
            "listFeatureFlagActivity",
            ALL,
            "List the activity log of feature flags",
            LOG,
        )),
        with_log_parameters(get(
            "listActivityOfFeatureFlag",
            OF_ONE,
            "List the activity log of a feature flag",
            LOG,
        ))
        .with_description("For an unknown flag the 404 has no body.")
        .may_have_empty_body(404),
        status,
    ]
}

fn values() -> Vec<Operation> {
    const MINE: &str = "/api/projects/{project_id}/feature_flags/my_flags/";
    const REASONS: &str = "/api/projects/{project_id}/feature_flags/evaluation_reasons/";
    const CONFIG: &str = "/api/projects/{project_id}/feature_flags/{key}/remote_config/";
    const RADIUS: &str = "/api/projects/{project_id}/feature_flags/user_blast_radius/";
    const GROUPS: &str = "A JSON object of group keys by group type.";
    let reasons = get("listEvaluationReasons", REASONS, "Evaluate all feature flags for a person", READ)
        .query_param(
            "distinct_id",
            json!({"type": "string", "pattern": r"\S"}),
            "The person. Default: the owner of the key. An unknown person has no properties.",
        )
        .query_param("groups", text(), GROUPS)
        .query_param(
            "flag_keys",
            text(),
            "Keys of the flags to evaluate, separated by commas; may be repeated.",
        )
        .query_param("flag_keys[]", text(), "An alias of `flag_keys`.")
        .response(200, "The values by flag key.", map(schema_ref("FeatureFlagEvaluation")))
        .error(400, "A parameter is invalid, or the flags or the response are too large.");
    let mine =
        object([("feature_flag", schema_ref("MinimalFlag")), ("value", schema_ref("FeatureFlagValue"))]);
    vec![
        get("listMyFlags", MINE, "Evaluate all feature flags for the owner of the key", READ)
            .query_param("groups", text(), GROUPS)
            .response(200, "The flags, newest first.", list(mine))
            .error(400, "`groups` is not a JSON object, or the flags or the response are too large."),
        reasons,
        get("getRemoteConfig", CONFIG, "Get the payload of a remote configuration", READ)
            .with_description("`key` is the flag's key or id. For an unknown flag the 404 has no body.")
            .may_have_empty_body(404)
            .response(200, "The stored payload, decrypted; null if there is none.", any())
            .error(500, "The payload cannot be decrypted."),
        with_json_body(
            post("getUserBlastRadius", RADIUS, "Count the persons or groups that a condition matches", READ),
            "BlastRadiusRequest",
        )
        .body_optional()
        .with_description(
            "Counts the matches of `condition`, or without it of all conditions of `filters`, where a \
             person that matches several counts once. Without both, all persons match. `feature_enrollment` and \
             `holdout` of `filters` are applied before its conditions; `feature_enrollment` needs `key`, the key of \
             the flag.",
        )
        .response(
            200,
            "The number of matches and the total number, under two names each.",
            schema_ref("BlastRadius"),
        ),
    ]
}

fn polls() -> Vec<Operation> {
    const OF_PROJECT: &str = "/api/projects/{project_id}/feature_flags/local_evaluation/";
    const COHORTS: &str = "Whether the document has the cohorts. If it is missing, `false` or `0`, a \
        condition on a single cohort is replaced by the cohort's conditions.";
    let with_cohorts = |operation: Operation| operation.query_param("send_cohorts", text(), COHORTS);
    vec![
        with_cohorts(poll(get(
            "getLocalEvaluation",
            OF_PROJECT,
            "Get the flag definitions for local evaluation",
            READ,
        ))),
        with_cohorts(poll(get(
            "getLocalEvaluationOfToken",
            "/api/feature_flag/local_evaluation/",
            "Get the flag definitions for local evaluation, by token or API key",
            READ,
        ))),
        poll(get(
            "getFlagDefinitions",
            "/flags/definitions/",
            "Get the flag definitions for local evaluation with cohorts, by token or API key",
            READ,
        )),
    ]
}

fn poll(operation: Operation) -> Operation {
    let quota = object([
        ("type", constant(json!("quota_limited"))),
        ("detail", text()),
        ("code", constant(json!("payment_required"))),
    ]);
    let failure = object([
        ("type", constant(json!("server_error"))),
        ("code", constant(json!("unexpected_error"))),
        ("detail", text()),
    ]);
    operation
        .query_param("token", text(), "The token of the project; overrides the key's project.")
        .header_param("If-None-Match", text(), "The `ETag` of the caller's cached document.")
        .response(200, "The document, with its `ETag`.", schema_ref("FlagDefinitions"))
        .empty_response(304, "The document is unchanged since that `ETag`.")
        .response(402, "The project's quota is exceeded.", quota)
        .error(400, "The document exceeds the maximum response size.")
        .error(404, "There is no such project, or the key has access to none.")
        .response(500, "The document could not be built.", failure)
}

fn made_from_flags() -> Vec<Operation> {
    const COHORT: &str = "/api/projects/{project_id}/feature_flags/{id}/create_static_cohort_for_flag/";
    const DASHBOARD: &str = "/api/projects/{project_id}/feature_flags/{id}/dashboard/";
    const ENRICH: &str = "/api/projects/{project_id}/feature_flags/{id}/enrich_usage_dashboard/";
    let done = || object([("success", constant(json!(true)))]);
    let refusal = || object([("success", constant(json!(false))), ("error", text())]);
    let too_large = "The flag's record would be too large.";
    let enrichable = object([
        ("success", constant(json!(false))),
        (
            "error",
            enum_of(&[
                "Usage dashboard not found",
                "Usage dashboard already has enriched data",
                "No enriched analytics available for this feature flag",
            ]),
        ),
    ]);
    vec![
        post(
            "createStaticCohortForFlag",
            COHORT,
            "Create a static cohort of the persons for whom a flag is on",
            WRITE,
        )
        .with_description("The body is ignored.")
        .response(201, "The cohort, with its members.", object([("cohort", schema_ref("FlagCohort"))]))
        .error(400, "There are too many flags or persons for one request."),
        post("createFeatureFlagDashboard", DASHBOARD, "Create a usage dashboard of a feature flag", WRITE)
            .with_description(
                "The body is ignored. Each call creates a new dashboard and links the flag to it.",
            )
            .response(200, "It is made.", done())
            .response(400, too_large, any_of([refusal(), schema_ref("Error")])),
        post("enrichUsageDashboard", ENRICH, "Add insights to a feature flag's usage dashboard", WRITE)
            .with_description("The body is ignored.")
            .response(200, "The insights are added.", done())
            .response(
                400,
                "There are no insights to add, or there is no usage dashboard.",
                any_of([enrichable, schema_ref("Error")]),
            ),
    ]
}
