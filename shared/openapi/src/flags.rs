//! Feature flags: records, activity log, evaluation, and the definitions that SDKs poll.

use pennon_flag_rules::flag::field_table::sortable_fields;
use serde_json::json;

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
fn takes(operation: Operation, name: &str) -> Operation {
    operation.json_body(schema_ref(name))
}

fn linked(operation: Operation) -> Operation {
    operation
        .link("get", "getFeatureFlag", &THIS)
        .link("update", "updateFeatureFlag", &THIS)
        .link("replace", "replaceFeatureFlag", &THIS)
        .link("status", "getFeatureFlagStatus", &THIS)
        .link("activity", "listActivityOfFeatureFlag", &THIS)
}

fn records() -> Vec<Operation> {
    let create = post("createFeatureFlag", LIST, "Create a feature flag", WRITE)
        .with_description("Deleted flags that had the key stay as they are.")
        .idempotent();
    let create = takes(create, "FeatureFlagCreate").response(201, "The flag.", schema_ref("FeatureFlag"));
    let update = Operation::new("updateFeatureFlag", "PATCH", ONE, TAG, "Change a feature flag", WRITE)
        .with_description("`deleted` deletes a flag so that it can be restored.");
    let replace = Operation::new("replaceFeatureFlag", "PUT", ONE, TAG, "Change a feature flag", WRITE)
        .with_description("As PATCH, but the key has to be there. Fields that are not sent stay.");
    let changed = |operation: Operation, body| {
        takes(operation, body)
            .response(200, "The flag.", schema_ref("FeatureFlag"))
            .error(409, "Somebody else changed the same fields since `original_flag`.")
    };
    vec![
        listed(),
        linked(create),
        get("getFeatureFlag", ONE, "Get a feature flag, a deleted one too", READ).response(
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
            "Refused: flags are deleted by a change",
            WRITE,
        )
        .empty_response(
            405,
            "Always, whether there is such a flag or not. Send `deleted: true` in a change.",
        ),
    ]
}

fn listed() -> Operation {
    let fields = sortable_fields().map(|(field, _)| field);
    let orders: Vec<String> = std::iter::once(String::new())
        .chain(fields.flat_map(|field| [field.to_owned(), format!("-{field}")]))
        .collect();
    let number = json!({"type": "string", "pattern": r"^\s*[+-]?[0-9]+\s*$"});
    get("listFeatureFlags", LIST, "List the feature flags that are not deleted", READ)
        .query_param(
            "active",
            text(),
            "`true`, in any case: flags that are on; `STALE`: stale ones; others: those that are off.",
        )
        .query_param("created_by_id", number, "The number of the user who made them.")
        .query_param("search", text_max(200), "What key or name contain; a space stands for any separators.")
        .query_param("key", text(), "The key, in any case.")
        .query_param(
            "type",
            text(),
            "`boolean`, `multivariant`, `experiment` or `remote_config`; others filter nothing.",
        )
        .query_param("evaluation_runtime", text(), "`server`, `client` or `all`; others match nothing.")
        .query_param(
            "tags",
            text(),
            "A JSON list of tags, of which a flag has one at least. Anything else filters nothing.",
        )
        .query_param("excluded_tags", text(), "A JSON list of tags that a flag does not have.")
        .query_param("excluded_properties", text(), "A JSON list of keys of flags that are left out.")
        .query_param(
            "order",
            json!({"type": "string", "enum": orders}),
            "A field, with `-` before it descending; newest first when left out.",
        )
        .paginated()
        .response(200, "A page.", page(schema_ref("FeatureFlag")))
        .error(400, "A parameter is not acceptable, or the page is larger than an answer can be.")
}

/// With the parameters of a log.
pub(crate) fn with_log_parameters(operation: Operation) -> Operation {
    let positive = || json!({"type": "string", "pattern": r"^\s*\+?0*[1-9][0-9]*\s*$"});
    operation
        .query_param("limit", positive(), "Entries of a page: 10 when left out, 1000 at most.")
        .query_param("page", positive(), "Which page, the newest being number 1.")
        .response(200, "A page, newest first.", schema_ref("ActivityPage"))
        .error(400, "A parameter is no positive number, or the page is larger than an answer can be.")
}

fn logs() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/feature_flags/activity/";
    const OF_ONE: &str = "/api/projects/{project_id}/feature_flags/{id}/activity/";
    const STATUS: &str = "/api/projects/{project_id}/feature_flags/{id}/status/";
    let mut status = get("getFeatureFlagStatus", STATUS, "Tell whether a feature flag is in use", READ)
        .response(200, "Its status.", schema_ref("FeatureFlagStatus"));
    for (code, answer) in &mut status.responses {
        if *code == 404 {
            answer.description = "There is no such flag, or no such project.";
            let either = any_of([schema_ref("FeatureFlagUnknown"), schema_ref("Error")]);
            answer.content = vec![("application/json", either)];
        }
    }
    vec![
        with_log_parameters(get("listFeatureFlagActivity", ALL, "List what was done to feature flags", LOG)),
        with_log_parameters(get(
            "listActivityOfFeatureFlag",
            OF_ONE,
            "List what was done to a feature flag",
            LOG,
        ))
        .with_description("Of a flag that is not there the 404 has no body.")
        .may_have_empty_body(404),
        status,
    ]
}

fn values() -> Vec<Operation> {
    const MINE: &str = "/api/projects/{project_id}/feature_flags/my_flags/";
    const REASONS: &str = "/api/projects/{project_id}/feature_flags/evaluation_reasons/";
    const CONFIG: &str = "/api/projects/{project_id}/feature_flags/{key}/remote_config/";
    const RADIUS: &str = "/api/projects/{project_id}/feature_flags/user_blast_radius/";
    const GROUPS: &str = "A JSON object of groups' keys by the names of their types.";
    let reasons = get("listEvaluationReasons", REASONS, "Evaluate all feature flags for a person", READ)
        .query_param(
            "distinct_id",
            json!({"type": "string", "pattern": r"\S"}),
            "The person; left out: the owner of the key. One who is not known has no properties.",
        )
        .query_param("groups", text(), GROUPS)
        .query_param(
            "flag_keys",
            text(),
            "Keys of the flags that are wanted, with commas between; may be repeated.",
        )
        .query_param("flag_keys[]", text(), "As `flag_keys`.")
        .response(200, "By key of the flag.", map(schema_ref("FeatureFlagEvaluation")))
        .error(400, "A parameter is not acceptable, or the flags or the answer are too large.");
    let mine =
        object([("feature_flag", schema_ref("MinimalFlag")), ("value", schema_ref("FeatureFlagValue"))]);
    vec![
        get("listMyFlags", MINE, "Evaluate all feature flags for the owner of the key", READ)
            .query_param("groups", text(), GROUPS)
            .response(200, "The flags, newest first.", list(mine))
            .error(400, "`groups` is no JSON object, or the flags or the answer are too large."),
        reasons,
        get("getRemoteConfig", CONFIG, "Get the payload of a remote configuration", READ)
            .with_description("`key` is the flag's key or number. Of a flag that is not there the 404 has no body.")
            .may_have_empty_body(404)
            .response(200, "The payload as it is stored, decrypted; null when there is none.", any())
            .error(500, "The payload cannot be decrypted."),
        takes(
            post("getUserBlastRadius", RADIUS, "Count the persons or groups that a condition reaches", READ),
            "BlastRadiusQuestion",
        )
        .body_optional()
        .with_description(
            "Of `condition`; without it of all conditions of `filters`, where whoever matches several counts once. \
             With neither, everybody is reached. `feature_enrollment` and `holdout` of `filters` decide before its \
             conditions; `feature_enrollment` needs `key`, the key of the flag.",
        )
        .response(200, "How many, and of how many; under two names each.", schema_ref("BlastRadius")),
    ]
}

fn polls() -> Vec<Operation> {
    const OF_PROJECT: &str = "/api/projects/{project_id}/feature_flags/local_evaluation/";
    const COHORTS: &str =
        "Whether cohorts are sent; `false`, `0` or left out: not, and conditions of one are spelled out.";
    let with_cohorts = |operation: Operation| operation.query_param("send_cohorts", text(), COHORTS);
    vec![
        with_cohorts(poll(get("getLocalEvaluation", OF_PROJECT, "Get the definitions to evaluate", READ))),
        with_cohorts(poll(get(
            "getLocalEvaluationOfToken",
            "/api/feature_flag/local_evaluation/",
            "Get the definitions to evaluate, of the project of a token or the key",
            READ,
        ))),
        poll(get(
            "getFlagDefinitions",
            "/flags/definitions/",
            "Get the definitions to evaluate, with cohorts, of the project of a token or the key",
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
        .query_param("token", text(), "The token of a project, which is then meant.")
        .header_param("If-None-Match", text(), "The `ETag` of the document that is known.")
        .response(200, "The document, with its `ETag`.", schema_ref("FlagDefinitions"))
        .empty_response(304, "The document is the one that is known.")
        .response(402, "The project's quota is used up.", quota)
        .error(400, "The document is larger than an answer can be.")
        .error(404, "There is no such project, or the key reaches none.")
        .response(500, "The document could not be made.", failure)
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
            "Make a cohort of the persons for whom a flag is on",
            WRITE,
        )
        .with_description("A body has no meaning.")
        .response(201, "The cohort, with its members.", object([("cohort", schema_ref("FlagCohort"))]))
        .error(400, "The flags, or the persons, are more than what is read for one answer."),
        post("createFeatureFlagDashboard", DASHBOARD, "Make a dashboard of a feature flag's use", WRITE)
            .with_description(
                "A body has no meaning. Each call makes a new dashboard and points the flag at it.",
            )
            .response(200, "It is made.", done())
            .response(400, too_large, any_of([refusal(), schema_ref("Error")])),
        post("enrichUsageDashboard", ENRICH, "Add insights to a feature flag's usage dashboard", WRITE)
            .with_description("A body has no meaning.")
            .response(200, "They are added.", done())
            .response(
                400,
                "There is nothing to add, or nothing to add to.",
                any_of([enrichable, schema_ref("Error")]),
            ),
    ]
}
