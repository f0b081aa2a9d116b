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
    let of_all = ("listCohortActivity", "List what was done to cohorts");
    let of_one = ("listActivityOfCohort", "List what was done to a cohort");
    [listed(), created(), COHORTS.get_operation("getCohort", "Get a cohort, a deleted one too", "Cohort")]
        .into_iter()
        .chain(changed())
        .chain([COHORTS.delete_not_allowed("deleteCohort", "Refused: cohorts are deleted by a change")])
        .chain(COHORTS.activity_logs(of_all, of_one))
        .chain(members())
        .collect()
}

fn listed() -> Operation {
    COHORTS
        .list_operation(
            "listCohorts",
            "List the cohorts that are not deleted",
            "What the name contains, in any case.",
            "Cohort",
        )
        .with_description("The newest first.")
        .query_param("type", text(), "`static`: lists of members; `dynamic`: rules; others filter nothing.")
        .query_param(
            "created_by_id",
            json!({"type": "string", "pattern": "^( *[+]?0*[0-9]{1,19} *)?$"}),
            "The number of the user who made them.",
        )
        .query_param(
            "hide_behavioral_cohorts",
            text(),
            "`true`, in any case: not those that look at events, nor those that name one that does.",
        )
}

/// With a form, whose file `csv` names members.
fn uploaded(mut operation: Operation, form: &str) -> Operation {
    operation.body.push(("multipart/form-data", schema_ref(form)));
    operation
}

fn created() -> Operation {
    let create = COHORTS.create_operation("createCohort", "Create a cohort", ("CohortCreate", "Cohort"));
    uploaded(create, "CohortUpload")
        .with_description(
            "With rules, or with `is_static` a list of members. Rules that no calculation could ask about \
             are refused, such as cohorts that are not there, or nothing but negated criteria. A file names \
             members by distinct ids in its one column, or in one called `person_id`, `distinct_id` or \
             `email`.",
        )
        .link("get", "getCohort", &THIS)
        .link("update", "updateCohort", &THIS)
        .link("replace", "replaceCohort", &THIS)
        .link("activity", "listActivityOfCohort", &THIS)
        .link("add", "addPersonsToStaticCohort", &THIS)
        .link("remove", "removePersonFromStaticCohort", &THIS)
}

fn changed() -> [Operation; 2] {
    let change = |id, method| {
        let change = COHORTS.update_operation(id, method, "Change a cohort", ("CohortUpdate", "Cohort"));
        uploaded(change, "CohortUploadMore")
    };
    [
        change("updateCohort", "PATCH").with_description(
            "Fields that are not sent stay; members that are sent are added. `is_static` cannot change. \
             `deleted` deletes a cohort so that it can be restored, unless an active flag uses it; such a \
             cohort does not come to look at events either.",
        ),
        change("replaceCohort", "PUT").with_description("As PATCH."),
    ]
}

fn members() -> [Operation; 2] {
    let done = || object([("success", constant(json!(true)))]);
    [
        COHORTS
            .write_operation(
                "addPersonsToStaticCohort",
                "PATCH",
                ADD,
                "Put persons on the list of a static cohort",
            )
            .with_description(
                "Persons of whom nothing is known are passed over; where that is all of them, it is a 400.",
            )
            .json_body(schema_ref("CohortPersons"))
            .response(200, "They are on it.", done()),
        COHORTS
            .write_operation(
                "removePersonFromStaticCohort",
                "PATCH",
                REMOVE,
                "Take a person off the list of a static cohort",
            )
            .with_description("A person who is not known, or not on the list, is a 404.")
            .json_body(schema_ref("CohortPerson"))
            .response(200, "The person is not on it any more.", done()),
    ]
}
