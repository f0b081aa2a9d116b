//! Actions: named sets of events.

use crate::operation::Operation;
use crate::workspace::{Kind, THIS};

const ACTIONS: Kind = Kind {
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
    let change = |id, method| ACTIONS.changed(id, method, "Change an action", sent);
    let of_all = ("listActionActivity", "List what was done to actions");
    let of_one = ("listActivityOfAction", "List what was done to an action");
    [
        ACTIONS
            .listed(
                "listActions",
                "List the actions that are not deleted",
                "What the name or a tag contains, in any case.",
                "Action",
            )
            .described("The newest first."),
        ACTIONS
            .created("createAction", "Create an action", sent)
            .described(JUDGED)
            .link("get", "getAction", &THIS)
            .link("update", "updateAction", &THIS)
            .link("replace", "replaceAction", &THIS)
            .link("activity", "listActivityOfAction", &THIS),
        ACTIONS.got("getAction", "Get an action, a deleted one too", "Action"),
        change("updateAction", "PATCH").described(
            "Fields that are not sent stay; steps that are sent take the place of all. `deleted` deletes an \
             action so that it can be restored.",
        ),
        change("replaceAction", "PUT").described("As PATCH."),
        ACTIONS.not_deleted("deleteAction", "Refused: actions are deleted by a change"),
    ]
    .into_iter()
    .chain(ACTIONS.logs(of_all, of_one))
    .collect()
}
