//! Dashboards and their tiles.

use crate::limits::QUERY_ID_MAX;
use crate::operation::Operation;
use crate::record_operations::{RecordKind, THIS};
use crate::schema::{any_object, json_text, list, text, text_max};
use crate::shared_pages::SharedKind;

const DASHBOARDS: RecordKind = RecordKind {
    tag: "Dashboards",
    list: "/api/projects/{project_id}/dashboards/",
    one: "/api/projects/{project_id}/dashboards/{id}/",
    log: "/api/projects/{project_id}/dashboards/activity/",
    log_of_one: "/api/projects/{project_id}/dashboards/{id}/activity/",
    read: "dashboard:read",
    write: "dashboard:write",
};

const SHARED: SharedKind = SharedKind {
    tag: DASHBOARDS.tag,
    settings: "/api/projects/{project_id}/dashboards/{id}/sharing/",
    refresh: "/api/projects/{project_id}/dashboards/{id}/sharing/refresh/",
};

/// The operations.
pub fn operations() -> Vec<Operation> {
    let of_all = ("listDashboardActivity", "List the activity log of dashboards");
    let of_one = ("listActivityOfDashboard", "List the activity log of a dashboard");
    [list_operation(), create_operation(), get_operation()]
        .into_iter()
        .chain(update_operations())
        .chain([DASHBOARDS
            .delete_not_allowed("deleteDashboard", "Not allowed: dashboards are deleted with PATCH")])
        .chain(DASHBOARDS.activity_logs(of_all, of_one))
        .chain(SHARED.operations([
            ("getDashboardSharing", "Get the sharing settings of a dashboard"),
            ("updateDashboardSharing", "Change the sharing settings of a dashboard"),
            ("refreshDashboardSharing", "Replace the sharing token of a dashboard"),
        ]))
        .collect()
}

fn list_operation() -> Operation {
    DASHBOARDS
        .list_operation(
            "listDashboards",
            "List dashboards",
            "Text contained in the name or in a tag, case-insensitive.",
            "DashboardSummary",
        )
        .with_description(
            "Dashboards that are not deleted, pinned ones first, then by name, without their filters and \
             tiles.",
        )
        .query_param("tags", list(text()), "A tag of the dashboard; repeat it to match any of several tags.")
        .query_param("creation_mode", text(), "`default`, or `template` for generated dashboards.")
        .query_param(
            "exclude_generated",
            text(),
            "`true` excludes dashboards whose name begins with `Generated Dashboard`.",
        )
}

fn create_operation() -> Operation {
    DASHBOARDS
        .create_operation("createDashboard", "Create a dashboard", ("DashboardCreate", "Dashboard"))
        .with_description(
            "The dashboard is empty; insights are added with PATCH of the insight. `tiles` is ignored.",
        )
        .link("get", "getDashboard", &THIS)
        .link("update", "updateDashboard", &THIS)
        .link("replace", "replaceDashboard", &THIS)
        .link("activity", "listActivityOfDashboard", &THIS)
        .link("sharing", "getDashboardSharing", &THIS)
        .link("share", "updateDashboardSharing", &THIS)
}

fn get_operation() -> Operation {
    with_refresh_parameters(DASHBOARDS.get_operation(
        "getDashboard",
        "Get a dashboard with its insights",
        "Dashboard",
    ))
    .with_description(
        "Tiles are in the order of the layout for small screens. The filters of the dashboard and of \
             the request apply to each insight.",
    )
    .error(400, "A parameter is invalid, or the insights are too large for one response.")
}

/// Adds the parameters that control the results of the dashboard's insights.
fn with_refresh_parameters(operation: Operation) -> Operation {
    operation
        .query_param(
            "refresh",
            text(),
            "When to calculate the insights: `force_cache`, `blocking`, `async`, `lazy_async`, \
             `force_blocking`, `force_async` or `async_except_on_cache_miss`. `true` means \
             `force_blocking`; other values mean `force_cache`, which returns cached results only.",
        )
        .query_param(
            "filters_override",
            json_text(any_object()),
            "A JSON object of filters, each of which replaces the dashboard's filter of that key.",
        )
        .query_param("variables_override", json_text(any_object()), "A JSON object, accepted without effect.")
        .query_param(
            "client_query_id",
            text_max(QUERY_ID_MAX),
            "The caller's id of the calculation, by which it can be cancelled.",
        )
}

fn update_operations() -> [Operation; 2] {
    const TEXT: &str = "Fields that are not sent are unchanged. `deleted: true` deletes a dashboard; for \
        30 days `deleted: false` restores it with its tiles, and other changes are a 404. `tiles` changes \
        the position and the colour of existing tiles.";
    let both = ("DashboardUpdate", "DashboardUpdateResponse");
    let change = |id, method| {
        let operation = DASHBOARDS.update_operation(id, method, "Change a dashboard", both);
        with_refresh_parameters(operation).with_description(TEXT)
    };
    [change("updateDashboard", "PATCH"), change("replaceDashboard", "PUT")]
}
