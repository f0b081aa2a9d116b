//! Dashboards and their tiles.

use crate::operation::Operation;
use crate::record_operations::{RecordKind, THIS};
use crate::schema::{any_object, json_text, list, text, text_max};

const DASHBOARDS: RecordKind = RecordKind {
    tag: "Dashboards",
    list: "/api/projects/{project_id}/dashboards/",
    one: "/api/projects/{project_id}/dashboards/{id}/",
    log: "/api/projects/{project_id}/dashboards/activity/",
    log_of_one: "/api/projects/{project_id}/dashboards/{id}/activity/",
    read: "dashboard:read",
    write: "dashboard:write",
};

/// The operations.
pub fn operations() -> Vec<Operation> {
    let of_all = ("listDashboardActivity", "List what was done to dashboards");
    let of_one = ("listActivityOfDashboard", "List what was done to a dashboard");
    [listed(), created(), got()]
        .into_iter()
        .chain(changed())
        .chain([
            DASHBOARDS.delete_not_allowed("deleteDashboard", "Refused: dashboards are deleted by a change")
        ])
        .chain(DASHBOARDS.activity_logs(of_all, of_one))
        .collect()
}

fn listed() -> Operation {
    DASHBOARDS
        .list_operation(
            "listDashboards",
            "List the dashboards that are not deleted",
            "What the name or a tag contains, in any case.",
            "DashboardSummary",
        )
        .with_description("Pinned ones first, then by name; without their filters and tiles.")
        .query_param(
            "tags",
            list(text()),
            "A tag that a dashboard has; may be repeated, and then one is enough.",
        )
        .query_param(
            "creation_mode",
            text(),
            "`default`, or `template` for those that a part of the product made.",
        )
        .query_param(
            "exclude_generated",
            text(),
            "`true` leaves out those whose name begins with `Generated Dashboard`.",
        )
}

fn created() -> Operation {
    DASHBOARDS
        .create_operation("createDashboard", "Create a dashboard", ("DashboardCreate", "Dashboard"))
        .with_description(
            "It is empty: insights are put on it by a change of theirs. `tiles` has no meaning here.",
        )
        .link("get", "getDashboard", &THIS)
        .link("update", "updateDashboard", &THIS)
        .link("replace", "replaceDashboard", &THIS)
        .link("activity", "listActivityOfDashboard", &THIS)
}

fn got() -> Operation {
    calculated(DASHBOARDS.get_operation("getDashboard", "Get a dashboard with its insights", "Dashboard"))
        .with_description(
            "Tiles come in the order in which they stand on a small screen, each insight as the filters of \
             the dashboard and of the request make it.",
        )
        .error(400, "A parameter is not acceptable, or the insights are too large for one answer.")
}

/// Adds the parameters that control the results of the dashboard's insights.
fn calculated(operation: Operation) -> Operation {
    operation
        .query_param(
            "refresh",
            text(),
            "When to calculate the insights: `force_cache`, `blocking`, `async`, `lazy_async`, \
             `force_blocking`, `force_async` or `async_except_on_cache_miss`. `true` means `force_blocking`; \
             others mean `force_cache`: only what is stored is shown.",
        )
        .query_param(
            "filters_override",
            json_text(any_object()),
            "A JSON object of filters that are laid over the dashboard's own, key by key.",
        )
        .query_param("variables_override", json_text(any_object()), "A JSON object. It has no effect.")
        .query_param("client_query_id", text_max(1000), "Names the calculation, so that it can be cancelled.")
}

fn changed() -> [Operation; 2] {
    const TEXT: &str = "Fields that are not sent stay. `deleted` deletes a dashboard; for 30 days a change \
        with `deleted: false` brings it back with its tiles, and other changes of it are a 404. `tiles` \
        moves and colours tiles that are on it.";
    let both = ("DashboardUpdate", "DashboardChanged");
    let change = |id, method| {
        let operation = DASHBOARDS.update_operation(id, method, "Change a dashboard", both);
        calculated(operation).with_description(TEXT)
    };
    [change("updateDashboard", "PATCH"), change("replaceDashboard", "PUT")]
}
