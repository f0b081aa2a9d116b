//! Actions: named sets of events.

use crate::operation::Operation;
use crate::record_operations::{RecordKind, THIS};

const ACTIONS: RecordKind = RecordKind {
    tag: "Actions",
    list: "/api/projects/{project_id}/actions/",
    one: "/api/projects/{project_id}/actions/{id}/",
    log: "/api/projects/{project_id}/actions/activity/",
    log_of_one: "/api/projects/{project_id}/actions/{id}/activity/",
    read: "action:read",
    write: "action:write",
};
const VALIDATION: &str = "Steps that cannot be calculated are rejected, such as those with invalid patterns or \
    unknown cohorts; so is the name of another action.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let schemas = ("ActionInput", "Action");
    let change = |id, method| ACTIONS.update_operation(id, method, "Change an action", schemas);
    let of_all = ("listActionActivity", "List the activity log of actions");
    let of_one = ("listActivityOfAction", "List the activity log of an action");
    [
        ACTIONS
            .list_operation(
                "listActions",
                "List actions",
                "Text contained in the name or in a tag, case-insensitive.",
                "Action",
            )
            .with_description("Records that are not deleted, newest first."),
        ACTIONS
            .create_operation("createAction", "Create an action", schemas)
            .with_description(VALIDATION)
            .link("get", "getAction", &THIS)
            .link("update", "updateAction", &THIS)
            .link("replace", "replaceAction", &THIS)
            .link("activity", "listActivityOfAction", &THIS),
        ACTIONS.get_operation("getAction", "Get an action, also a deleted one", "Action"),
        change("updateAction", "PATCH").with_description(
            "Fields that are not sent are unchanged; `steps` replaces all steps. `deleted: true` deletes \
             an action, which can be restored with `deleted: false`.",
        ),
        change("replaceAction", "PUT").with_description("As PATCH."),
        ACTIONS.delete_not_allowed("deleteAction", "Not allowed: actions are deleted with PATCH"),
    ]
    .into_iter()
    .chain(ACTIONS.activity_logs(of_all, of_one))
    .collect()
}
