//! Saved insights: records, their log, public links to them, and who viewed them.

use serde_json::{Value, json};

use crate::flags::with_log_parameters;
use crate::limits::{QUERY_ID_MAX, insights};
use crate::operation::{Operation, Security};
use crate::schema::{any_object, any_of, json_text, list_max, page, schema_ref, text, text_max};
use crate::shared_pages::SharedKind;

const TAG: &str = "Insights";
const LIST: &str = "/api/projects/{project_id}/insights/";
const ONE: &str = "/api/projects/{project_id}/insights/{id}/";
const READ: Security = Security::Scope("insight:read");
const WRITE: Security = Security::Scope("insight:write");
const OPEN: Security =
    Security::Or("insight:read", "the token of a public link to the insight, as `sharing_access_token`");
const LOG: Security = Security::Scope("activity_log:read");
const THIS: [(&str, &str); 2] = [("project_id", "$request.path.project_id"), ("id", "$response.body#/id")];

/// The operations.
pub fn operations() -> Vec<Operation> {
    let all = [records(), logs(), links(), views(), calculation_operations()];
    all.into_iter().flatten().collect()
}

fn get(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "GET", path, TAG, summary, security)
}

fn post(id: &'static str, path: &'static str, summary: &'static str, security: Security) -> Operation {
    Operation::new(id, "POST", path, TAG, summary, security)
}

/// Adds the parameters that control when results are calculated.
fn with_refresh_parameters(operation: Operation) -> Operation {
    operation
        .query_param(
            "refresh",
            text(),
            "When to calculate: `force_cache`, `blocking`, `async`, `lazy_async`, `force_blocking`, \
             `force_async` or `async_except_on_cache_miss`. `true` means `force_blocking`; other values \
             mean `force_cache`, which returns cached results only.",
        )
        .query_param(
            "client_query_id",
            text_max(QUERY_ID_MAX),
            format!(
                "The caller's id of the calculation, by which it can be cancelled; at most {QUERY_ID_MAX} \
                 bytes."
            ),
        )
}

/// Adds the parameters that override the insight's filters for this response.
fn with_override_parameters(operation: Operation) -> Operation {
    operation
        .query_param(
            "filters_override",
            json_text(any_object()),
            "A JSON object with `date_from`, `date_to`, `properties` or `breakdown_filter`, for this \
             response only.",
        )
        .query_param("variables_override", json_text(any_object()), "A JSON object, accepted without effect.")
        .query_param(
            "sharing_access_token",
            text(),
            "The token of a public link, instead of a key: gives access to its insight only, as it is \
             stored.",
        )
}

/// With the body of an insight.
fn with_insight_body(operation: Operation) -> Operation {
    operation
        .error(400, "A field is invalid (named by `attr`), or the query cannot be calculated.")
        .json_body(schema_ref("InsightInput"))
        .body_optional()
}

fn records() -> Vec<Operation> {
    let either = || any_of([schema_ref("Insight"), schema_ref("InsightRow")]);
    let create = with_refresh_parameters(post("createInsight", LIST, "Create an insight", WRITE))
        .with_description(
            "A request that is repeated with its `Idempotency-Key` returns the created insight, as GET \
             with the same query string.",
        )
        .idempotent();
    let create = with_insight_body(create)
        .response(201, "The insight.", either())
        .link("get", "getInsight", &THIS)
        .link("update", "updateInsight", &THIS)
        .link("activity", "listActivityOfInsight", &THIS)
        .link("sharing", "getInsightSharing", &THIS)
        .link("share", "updateInsightSharing", &THIS)
        .link("viewed", "noteInsightViewed", &THIS);
    let read = with_refresh_parameters(get("getInsight", ONE, "Get an insight", OPEN))
        .query_param("basic", text(), "Whether to return the short form, which has no results.")
        .query_param("from_dashboard", text(), "The id of a dashboard of the insight, whose filters apply.");
    let read = with_override_parameters(read)
        .response(200, "The insight.", either())
        .error(400, "A parameter is invalid, the query cannot be calculated, or the response is too large.");
    let update = Operation::new("updateInsight", "PATCH", ONE, TAG, "Change an insight", WRITE);
    let update = with_refresh_parameters(update).with_description(
        "Fields that are not sent are unchanged. `deleted: true` deletes an insight and removes it from \
         its dashboards; `deleted: false`, as a boolean, restores it.",
    );
    let update = with_insight_body(update).response(200, "The insight.", schema_ref("Insight"));
    let delete = Operation::new(
        "deleteInsight",
        "DELETE",
        ONE,
        TAG,
        "Not allowed: insights are deleted with PATCH",
        WRITE,
    );
    let never = "Always, also for unknown insights. Send `deleted: true` with PATCH.";
    vec![
        list_operation(),
        create.with_csv(),
        read.with_csv(),
        update.with_csv(),
        delete.empty_response(405, never),
    ]
}

fn list_operation() -> Operation {
    let operation = get("listInsights", LIST, "List insights", OPEN);
    let operation = with_filter_parameters(operation)
        .query_param("basic", text(), "Whether to return the short form, which has no results.")
        .paginated();
    with_override_parameters(with_refresh_parameters(operation))
        .response(
            200,
            "A page, in the full or in the short form.",
            any_of([page(schema_ref("Insight")), page(schema_ref("InsightRow"))]),
        )
        .error(400, "A parameter is invalid, or the page exceeds the maximum response size.")
        .with_csv()
}

/// Adds the filter and order parameters of the insight list.
fn with_filter_parameters(operation: Operation) -> Operation {
    const NUMBER: &str = r"(0|[1-9][0-9]{0,14})";
    const STRING: &str = r#""([^"\\\x00-\x1f]|\\["\\/bfnrt])*""#;
    let several = |of: &str| format!(r" *\[ *({of} *(, *{of} *)*)?\] *");
    let (ids, strings) = (several(NUMBER), several(STRING));
    let matching = |pattern: String| json!({"type": "string", "pattern": pattern});
    operation
        .query_param(
            "created_by",
            matching(format!("^( *{NUMBER} *|{ids})?$")),
            "The id of the user who created them, or a JSON list of ids; each must be the id of a user.",
        )
        .query_param("user", text(), "If present, with any value: only insights of the key's owner.")
        .query_param("short_id", text(), "The short id.")
        .query_param(
            "saved",
            text(),
            "True selects insights that are saved or on a dashboard; other values those that are not saved.",
        )
        .query_param("favorited", text(), "If present, with any value: only favorites.")
        .query_param(
            "search",
            text_max(insights::SEARCH_CHARS),
            "Text contained in a name, the description or a tag, case-insensitive.",
        )
        .query_param(
            "insight",
            text(),
            "`TRENDS`, `FUNNELS`, `RETENTION`, `PATHS`, `STICKINESS`, `LIFECYCLE`, `JSON` or `SQL`.",
        )
        .query_param(
            "dashboards",
            matching(format!("^({ids})?$")),
            "A JSON list of dashboard ids; an insight matches if it is on all of them.",
        )
        .query_param(
            "tags",
            matching(format!("^({strings})?$")),
            "A JSON list of tags; an insight matches if it has one of them.",
        )
        .query_param("date_from", text(), "Last modified after this date, which may be relative (`-7d`).")
        .query_param("date_to", text(), "Last modified before this date.")
        .query_param("feature_flag", text(), "The key of a flag that the query refers to.")
        .query_param("order", orders(), "A field; descending with a leading `-`. Default: `order`.")
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
        with_log_parameters(get("listInsightActivity", ALL, "List the activity log of insights", LOG))
            .with_csv(),
        with_log_parameters(get("listActivityOfInsight", OF_ONE, "List the activity log of an insight", LOG))
            .with_description("For an unknown insight the 404 has no body.")
            .may_have_empty_body(404)
            .with_csv(),
    ]
}

fn links() -> Vec<Operation> {
    const KIND: SharedKind = SharedKind {
        tag: TAG,
        settings: "/api/projects/{project_id}/insights/{id}/sharing/",
        refresh: "/api/projects/{project_id}/insights/{id}/sharing/refresh/",
    };
    KIND.operations([
        ("getInsightSharing", "Get the sharing settings of an insight"),
        ("updateInsightSharing", "Change the sharing settings of an insight"),
        ("refreshInsightSharing", "Replace the sharing token of an insight"),
    ])
}

fn views() -> Vec<Operation> {
    const ONE_VIEWED: &str = "/api/projects/{project_id}/insights/{id}/viewed/";
    const VIEWED: &str = "/api/projects/{project_id}/insights/viewed/";
    const MINE: &str = "/api/projects/{project_id}/insights/my_last_viewed/";
    vec![
        post("noteInsightViewed", ONE_VIEWED, "Record that the key's owner views an insight", READ)
            .with_description("The body is ignored.")
            .empty_response(200, "It is noted.")
            .with_csv(),
        post("noteInsightsViewed", VIEWED, "Record that the key's owner views insights", READ)
            .json_body(schema_ref("ViewedInsightsInput"))
            .empty_response(200, "It is noted.")
            .with_csv(),
        get("listMyLastViewedInsights", MINE, "List the insights that the key's owner viewed last", READ)
            .response(
                200,
                "At most five insights, the latest view first.",
                list_max(5, schema_ref("InsightRow")),
            )
            .error(400, "The response is too large as CSV.")
            .with_csv(),
    ]
}

fn calculation_operations() -> Vec<Operation> {
    const CANCEL: &str = "/api/projects/{project_id}/insights/cancel/";
    const TIMING: &str = "/api/projects/{project_id}/insights/timing/";
    vec![
        post("cancelInsightCalculation", CANCEL, "Cancel a calculation in the background", READ)
            .json_body(schema_ref("CancelCalculationRequest"))
            .body_optional()
            .with_description("Without `client_query_id` the request has no effect.")
            .empty_response(200, "No calculation with that id is running any more.")
            .with_csv(),
        post("noteInsightTiming", TIMING, "Log how long a client waited", READ)
            .error(413, format!("The body is larger than {} KiB.", insights::TIMING_BYTES / 1024))
            .json_body(any_object())
            .body_optional()
            .empty_response(200, "It is logged.")
            .with_csv(),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use pennon_analytics::kinds::stored_kinds;

    #[test]
    fn the_list_has_a_filter_for_every_kind() {
        let document = crate::document("0");
        let parameters = document["paths"][super::LIST]["get"]["parameters"].as_array().unwrap();
        let filter = parameters.iter().find(|parameter| parameter["name"] == "insight").unwrap();
        for (name, _) in stored_kinds() {
            let is_listed = filter["description"].as_str().unwrap().contains(&format!("`{name}`"));
            assert!(is_listed, "the parameter `insight` of the list lacks {name}");
        }
    }
}
