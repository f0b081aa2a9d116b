//! Saved insights: records, their log, public links to them, and who viewed them.

use serde_json::{Value, json};

use crate::flags::with_log_parameters;
use crate::operation::{Operation, Security};
use crate::schema::{any_object, any_of, json_text, list_max, page, schema_ref, text, text_max};

const TAG: &str = "Insights";
const LIST: &str = "/api/projects/{project_id}/insights/";
const ONE: &str = "/api/projects/{project_id}/insights/{id}/";
const READ: Security = Security::Scope("insight:read");
const WRITE: Security = Security::Scope("insight:write");
const OPEN: Security =
    Security::Or("insight:read", "the token of a public link to the insight, as `sharing_access_token`");
const LOG: Security = Security::Scope("activity_log:read");
const SHARED: Security = Security::Scope("sharing_configuration:read");
const SHARE: Security = Security::Scope("sharing_configuration:write");
const THIS: [(&str, &str); 2] = [("project_id", "$request.path.project_id"), ("id", "$response.body#/id")];

/// The operations.
pub fn operations() -> Vec<Operation> {
    let all = [records(), logs(), links(), views(), about_calculations()];
    all.into_iter().flatten().collect()
}

fn get(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "GET", path, TAG, summary, security)
}

fn post(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "POST", path, TAG, summary, security)
}

/// Adds the parameters that control when results are calculated.
fn calculated(operation: Operation) -> Operation {
    operation
        .query_param(
            "refresh",
            text(),
            "When to calculate: `force_cache`, `blocking`, `async`, `lazy_async`, `force_blocking`, \
             `force_async` or `async_except_on_cache_miss`. `true` means `force_blocking`; others mean \
             `force_cache`: only what is stored is shown.",
        )
        .query_param(
            "client_query_id",
            text_max(1000),
            "The caller's own name for the calculation, by which it can be cancelled; at most 1000 bytes.",
        )
}

/// Adds the parameters that override the insight's filters for this response.
fn overridden(operation: Operation) -> Operation {
    operation
        .query_param(
            "filters_override",
            json_text(any_object()),
            "A JSON object: `date_from`, `date_to`, `properties`, `breakdown_filter` for this answer alone.",
        )
        .query_param(
            "variables_override",
            json_text(any_object()),
            "A JSON object, without effect on numbers.",
        )
        .query_param(
            "sharing_access_token",
            text(),
            "The token of a public link, in place of a key: its insight alone is shown, as it is stored.",
        )
}

/// With the body of an insight.
fn takes(operation: Operation) -> Operation {
    operation
        .error(400, "A field is not acceptable, which `attr` names, or the question cannot be calculated.")
        .json_body(schema_ref("InsightInput"))
        .body_optional()
}

fn records() -> Vec<Operation> {
    let either = || any_of([schema_ref("Insight"), schema_ref("InsightRow")]);
    let create = calculated(post("createInsight", LIST, "Create an insight", WRITE))
        .with_description(
            "Repeated under its `Idempotency-Key`, it is answered as a read of the insight that it made, in \
             the form that its query asks for.",
        )
        .idempotent();
    let create = takes(create)
        .response(201, "The insight.", either())
        .link("get", "getInsight", &THIS)
        .link("update", "updateInsight", &THIS)
        .link("activity", "listActivityOfInsight", &THIS)
        .link("sharing", "getInsightSharing", &THIS)
        .link("share", "updateInsightSharing", &THIS)
        .link("viewed", "noteInsightViewed", &THIS);
    let read = calculated(get("getInsight", ONE, "Get an insight", OPEN))
        .query_param("basic", text(), "Whether the short form is wanted, which has no numbers.")
        .query_param(
            "from_dashboard",
            text(),
            "The number of a dashboard that the insight is on: it is shown as it stands there.",
        );
    let read = overridden(read).response(200, "The insight.", either()).error(
        400,
        "A parameter is not acceptable, the question cannot be calculated, or the answer is too large.",
    );
    let update = Operation::new("updateInsight", "PATCH", ONE, TAG, "Change an insight", WRITE);
    let update = calculated(update).with_description(
        "`deleted: true` deletes an insight and takes it off its dashboards; `deleted: false`, as a boolean, \
         brings a deleted one back.",
    );
    let update = takes(update).response(200, "The insight.", schema_ref("Insight"));
    let delete = Operation::new(
        "deleteInsight",
        "DELETE",
        ONE,
        TAG,
        "Refused: insights are deleted by a change",
        WRITE,
    );
    let never = "Always, whether there is such an insight or not. Send `deleted: true` in a change.";
    vec![listed(), create.with_csv(), read.with_csv(), update.with_csv(), delete.empty_response(405, never)]
}

fn listed() -> Operation {
    let operation = get("listInsights", LIST, "List the insights that are not deleted", OPEN);
    let operation = filtered(operation)
        .query_param("basic", text(), "Whether the short form is wanted, which has no numbers.")
        .paginated();
    overridden(calculated(operation))
        .response(
            200,
            "A page, in the full or in the short form.",
            any_of([page(schema_ref("Insight")), page(schema_ref("InsightRow"))]),
        )
        .error(400, "A parameter is not acceptable, or the page is larger than an answer can be.")
        .with_csv()
}

/// Adds the filter and order parameters of the insight list.
fn filtered(operation: Operation) -> Operation {
    const NUMBER: &str = r"(0|[1-9][0-9]{0,14})";
    const STRING: &str = r#""([^"\\\x00-\x1f]|\\["\\/bfnrt])*""#;
    let several = |of: &str| format!(r" *\[ *({of} *(, *{of} *)*)?\] *");
    let (ids, strings) = (several(NUMBER), several(STRING));
    let matching = |pattern: String| json!({"type": "string", "pattern": pattern});
    operation
        .query_param(
            "created_by",
            matching(format!("^( *{NUMBER} *|{ids})?$")),
            "The number of the user who made them, or a JSON list of numbers; each has to be a user's.",
        )
        .query_param("user", text(), "If it is there, with any value: those of the key's owner.")
        .query_param("short_id", text(), "The short id.")
        .query_param(
            "saved",
            text(),
            "True: saved ones and those on a dashboard; other values: those not saved.",
        )
        .query_param("favorited", text(), "If it is there, with any value: favourites.")
        .query_param("search", text_max(400), "What names, description or a tag contain, in any case.")
        .query_param(
            "insight",
            text(),
            "`TRENDS`, `FUNNELS`, `RETENTION`, `PATHS`, `STICKINESS`, `LIFECYCLE`, `JSON` or `SQL`.",
        )
        .query_param(
            "dashboards",
            matching(format!("^({ids})?$")),
            "A JSON list of dashboards: on all of them.",
        )
        .query_param("tags", matching(format!("^({strings})?$")), "A JSON list of tags: with one at least.")
        .query_param(
            "date_from",
            text(),
            "Content last changed after this date, which may be relative (`-7d`).",
        )
        .query_param("date_to", text(), "Content last changed before this date.")
        .query_param("feature_flag", text(), "The key of a flag that they mention.")
        .query_param("order", orders(), "A field, with `-` before it descending; `order` when left out.")
}

/// The values of `order`.
fn orders() -> Value {
    let fields = [
        "id",
        "short_id",
        "name",
        "order",
        "created_at",
        "updated_at",
        "last_modified_at",
        "favorited",
        "saved",
        "last_viewed_at",
        "created_by",
    ];
    let orders: Vec<String> = std::iter::once(String::new())
        .chain(fields.iter().flat_map(|field| [(*field).to_owned(), format!("-{field}")]))
        .collect();
    json!({"type": "string", "enum": orders})
}

fn logs() -> Vec<Operation> {
    const ALL: &str = "/api/projects/{project_id}/insights/activity/";
    const OF_ONE: &str = "/api/projects/{project_id}/insights/{id}/activity/";
    vec![
        with_log_parameters(get("listInsightActivity", ALL, "List what was done to insights", LOG))
            .with_csv(),
        with_log_parameters(get("listActivityOfInsight", OF_ONE, "List what was done to an insight", LOG))
            .with_description("Of an insight that is not there the 404 has no body.")
            .may_have_empty_body(404)
            .with_csv(),
    ]
}

fn links() -> Vec<Operation> {
    const LINK: &str = "/api/projects/{project_id}/insights/{id}/sharing/";
    const REFRESH: &str = "/api/projects/{project_id}/insights/{id}/sharing/refresh/";
    let change =
        |operation: Operation| operation.response(200, "How it is shared.", schema_ref("Sharing")).with_csv();
    vec![
        get("getInsightSharing", LINK, "Tell how an insight is shared", SHARED)
            .with_description("The token opens the insight only while `enabled` is true.")
            .response(200, "How it is shared.", schema_ref("Sharing"))
            .with_csv(),
        change(
            Operation::new(
                "updateInsightSharing",
                "PATCH",
                LINK,
                TAG,
                "Change how an insight is shared",
                SHARE,
            )
            .with_description("Settings that are not known are dropped.")
            .json_body(schema_ref("SharingInput"))
            .body_optional(),
        ),
        change(
            post("refreshInsightSharing", REFRESH, "Give an insight another sharing token", SHARE)
                .with_description("A body has no meaning. The token before opens nothing any more."),
        ),
    ]
}

fn views() -> Vec<Operation> {
    const ONE_VIEWED: &str = "/api/projects/{project_id}/insights/{id}/viewed/";
    const VIEWED: &str = "/api/projects/{project_id}/insights/viewed/";
    const MINE: &str = "/api/projects/{project_id}/insights/my_last_viewed/";
    vec![
        post("noteInsightViewed", ONE_VIEWED, "Note that the key's owner views an insight", READ)
            .with_description("A body has no meaning.")
            .empty_response(200, "It is noted.")
            .with_csv(),
        post("noteInsightsViewed", VIEWED, "Note that the key's owner views insights", READ)
            .json_body(schema_ref("ViewedInsights"))
            .empty_response(200, "It is noted.")
            .with_csv(),
        get("listMyLastViewedInsights", MINE, "List what the key's owner viewed last", READ)
            .response(200, "Five insights at most, the latest first.", list_max(5, schema_ref("InsightRow")))
            .error(400, "The answer is too large as a table.")
            .with_csv(),
    ]
}

fn about_calculations() -> Vec<Operation> {
    const CANCEL: &str = "/api/projects/{project_id}/insights/cancel/";
    const TIMING: &str = "/api/projects/{project_id}/insights/timing/";
    vec![
        post("cancelInsightCalculation", CANCEL, "Cancel a calculation in the background", READ)
            .json_body(schema_ref("CancelledCalculation"))
            .body_optional()
            .with_description("Without `client_query_id` nothing is cancelled.")
            .empty_response(200, "Nothing of that name is calculated any more, if anything was.")
            .with_csv(),
        post("noteInsightTiming", TIMING, "Log how long a client waited", READ)
            .error(413, "The body is larger than 32 KiB.")
            .json_body(any_object())
            .body_optional()
            .empty_response(200, "It is logged.")
            .with_csv(),
    ]
}
