//! Operations that dashboards, cohorts and actions have in common.

use crate::flags::with_log_parameters;
use crate::operation::{Operation, Security};
use crate::schema::{page, schema_ref, text};

/// The tag, paths and scopes of a record type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordKind {
    /// Tag of its operations.
    pub(crate) tag: &'static str,
    /// Path of the list.
    pub(crate) list: &'static str,
    /// Path of one record.
    pub(crate) one: &'static str,
    /// Path of the activity log of all records.
    pub(crate) log: &'static str,
    /// Path of the activity log of one record.
    pub(crate) log_of_one: &'static str,
    /// Read scope.
    pub(crate) read: &'static str,
    /// Write scope.
    pub(crate) write: &'static str,
}

/// Link parameters from a created record to its operations.
pub(crate) const THIS: [(&str, &str); 2] =
    [("project_id", "$request.path.project_id"), ("id", "$response.body#/id")];

impl RecordKind {
    fn read_operation(&self, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
        Operation::new(id, "GET", path, self.tag, summary, Security::Scope(self.read))
    }

    pub(crate) fn write_operation(
        &self,
        id: &'static str,
        method: &'static str,
        path: &'static str,
        summary: &'static str,
    ) -> Operation {
        Operation::new(id, method, path, self.tag, summary, Security::Scope(self.write))
    }

    /// The list operation, with search.
    pub(crate) fn list_operation(
        &self,
        id: &'static str,
        summary: &'static str,
        search: &'static str,
        response: &str,
    ) -> Operation {
        self.read_operation(id, self.list, summary)
            .query_param("search", text(), search)
            .paginated()
            .response(200, "A page.", page(schema_ref(response)))
            .error(400, "A parameter is invalid, or the page exceeds the maximum response size.")
    }

    /// The get operation.
    pub(crate) fn get_operation(&self, id: &'static str, summary: &'static str, response: &str) -> Operation {
        self.read_operation(id, self.one, summary).response(200, "The record.", schema_ref(response))
    }

    /// The create operation. The body is optional.
    pub(crate) fn create_operation(
        &self,
        id: &'static str,
        summary: &'static str,
        (request, response): (&str, &str),
    ) -> Operation {
        self.write_operation(id, "POST", self.list, summary)
            .idempotent()
            .json_body(schema_ref(request))
            .body_optional()
            .response(201, "The record.", schema_ref(response))
    }

    /// The update operation. The body is optional.
    pub(crate) fn update_operation(
        &self,
        id: &'static str,
        method: &'static str,
        summary: &'static str,
        (request, response): (&str, &str),
    ) -> Operation {
        self.write_operation(id, method, self.one, summary)
            .json_body(schema_ref(request))
            .body_optional()
            .response(200, "The record.", schema_ref(response))
    }

    /// The delete operation, which always returns 405.
    pub(crate) fn delete_not_allowed(&self, id: &'static str, summary: &'static str) -> Operation {
        self.write_operation(id, "DELETE", self.one, summary)
            .empty_response(405, "Always, also for unknown records. Send `deleted: true` with PATCH.")
    }

    /// The activity log operations of all records and of one record.
    pub(crate) fn activity_logs(
        &self,
        (all, of_all): (&'static str, &'static str),
        (one, of_one): (&'static str, &'static str),
    ) -> [Operation; 2] {
        let log = |id, path, summary| {
            Operation::new(id, "GET", path, self.tag, summary, Security::Scope("activity_log:read"))
        };
        [
            with_log_parameters(log(all, self.log, of_all)),
            with_log_parameters(log(one, self.log_of_one, of_one))
                .with_description("For an unknown record the 404 has no body.")
                .may_have_empty_body(404),
        ]
    }
}
