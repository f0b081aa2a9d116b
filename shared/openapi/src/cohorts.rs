//! Cohorts: named sets of persons, by rules or by a list.

use serde_json::json;

use crate::operation::Operation;
use crate::record_operations::{RecordKind, THIS};
use crate::schema::{constant, object, schema_ref, text};

const COHORTS: RecordKind = RecordKind {
    tag: "Cohorts",
    list: "/api/projects/{project_id}/cohorts/",
    one: "/api/projects/{project_id}/cohorts/{id}/",
    log: "/api/projects/{project_id}/cohorts/activity/",
    log_of_one: "/api/projects/{project_id}/cohorts/{id}/activity/",
    read: "cohort:read",
    write: "cohort:write",
};
const ADD: &str = "/api/projects/{project_id}/cohorts/{id}/add_persons_to_static_cohort/";
const REMOVE: &str = "/api/projects/{project_id}/cohorts/{id}/remove_person_from_static_cohort/";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let of_all = ("listCohortActivity", "List the activity log of cohorts");
    let of_one = ("listActivityOfCohort", "List the activity log of a cohort");
    [
        list_operation(),
        create_operation(),
        COHORTS.get_operation("getCohort", "Get a cohort, also a deleted one", "Cohort"),
    ]
    .into_iter()
    .chain(update_operations())
    .chain([COHORTS.delete_not_allowed("deleteCohort", "Not allowed: cohorts are deleted with PATCH")])
    .chain(COHORTS.activity_logs(of_all, of_one))
    .chain(member_operations())
    .collect()
}

fn list_operation() -> Operation {
    COHORTS
        .list_operation(
            "listCohorts",
            "List cohorts",
            "Text contained in the name, case-insensitive.",
            "Cohort",
        )
        .with_description("Records that are not deleted, newest first.")
        .query_param("type", text(), "`static` or `dynamic`; other values are ignored.")
        .query_param(
            "created_by_id",
            json!({"type": "string", "pattern": "^( *[+]?0*[0-9]{1,19} *)?$"}),
            "The id of the user who created them.",
        )
        .query_param(
            "hide_behavioral_cohorts",
            text(),
            "`true` (case-insensitive) excludes cohorts with rules on events, and cohorts that refer to one.",
        )
}

/// With a form, whose file `csv` names members.
fn with_csv_form(mut operation: Operation, form: &str) -> Operation {
    operation.body.push(("multipart/form-data", schema_ref(form)));
    operation
}

fn create_operation() -> Operation {
    let create = COHORTS.create_operation("createCohort", "Create a cohort", ("CohortCreate", "Cohort"));
    with_csv_form(create, "CohortUpload")
        .with_description(
            "A cohort has rules, or with `is_static` a list of members. Rules that cannot be calculated \
             are rejected, such as those with unknown cohorts or only negated criteria. A CSV file has the \
             distinct ids of members in its only column, or in one named `person_id`, `distinct_id` or \
             `email`.",
        )
        .link("get", "getCohort", &THIS)
        .link("update", "updateCohort", &THIS)
        .link("replace", "replaceCohort", &THIS)
        .link("activity", "listActivityOfCohort", &THIS)
        .link("add", "addPersonsToStaticCohort", &THIS)
        .link("remove", "removePersonFromStaticCohort", &THIS)
}

fn update_operations() -> [Operation; 2] {
    let change = |id, method| {
        let change = COHORTS.update_operation(id, method, "Change a cohort", ("CohortUpdate", "Cohort"));
        with_csv_form(change, "CohortUploadUpdate")
    };
    [
        change("updateCohort", "PATCH").with_description(
            "Fields that are not sent are unchanged; members that are sent are added. `is_static` cannot \
             be changed. `deleted: true` deletes a cohort, which can be restored, unless an active flag \
             uses it; the rules of such a cohort cannot be changed to rules on events.",
        ),
        change("replaceCohort", "PUT").with_description("As PATCH."),
    ]
}

fn member_operations() -> [Operation; 2] {
    let done = || object([("success", constant(json!(true)))]);
    [
        COHORTS
            .write_operation("addPersonsToStaticCohort", "PATCH", ADD, "Add persons to a static cohort")
            .with_description("Unknown persons are ignored; if all are unknown, the response is a 400.")
            .json_body(schema_ref("CohortPersons"))
            .response(200, "The persons are members.", done()),
        COHORTS
            .write_operation(
                "removePersonFromStaticCohort",
                "PATCH",
                REMOVE,
                "Remove a person from a static cohort",
            )
            .with_description("The response is a 404 if the person is unknown or not a member.")
            .json_body(schema_ref("CohortPerson"))
            .response(200, "The person is not a member any more.", done()),
    ]
}
