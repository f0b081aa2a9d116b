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
const JUDGED: &str = "Steps that no calculation could ask about are refused, such as patterns that are none \
    or cohorts that are not there; so is the name of another action.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let sent = ("ActionSent", "Action");
    let change = |id, method| ACTIONS.update_operation(id, method, "Change an action", sent);
    let of_all = ("listActionActivity", "List what was done to actions");
    let of_one = ("listActivityOfAction", "List what was done to an action");
    [
        ACTIONS
            .list_operation(
                "listActions",
                "List the actions that are not deleted",
                "What the name or a tag contains, in any case.",
                "Action",
            )
            .with_description("The newest first."),
        ACTIONS
            .create_operation("createAction", "Create an action", sent)
            .with_description(JUDGED)
            .link("get", "getAction", &THIS)
            .link("update", "updateAction", &THIS)
            .link("replace", "replaceAction", &THIS)
            .link("activity", "listActivityOfAction", &THIS),
        ACTIONS.get_operation("getAction", "Get an action, a deleted one too", "Action"),
        change("updateAction", "PATCH").with_description(
            "Fields that are not sent stay; steps that are sent take the place of all. `deleted` deletes an \
             action so that it can be restored.",
        ),
        change("replaceAction", "PUT").with_description("As PATCH."),
        ACTIONS.delete_not_allowed("deleteAction", "Refused: actions are deleted by a change"),
    ]
    .into_iter()
    .chain(ACTIONS.activity_logs(of_all, of_one))
    .collect()
}
