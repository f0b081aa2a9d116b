//! What the operations of dashboards, cohorts and actions have in common.

use crate::flags::logged;
use crate::operation::{Operation, Security};
use crate::schema::{named, page, text};

/// A kind of records: where they lie, and what opens them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The heading of its operations.
    pub(crate) tag: &'static str,
    /// The path of all.
    pub(crate) list: &'static str,
    /// The path of one.
    pub(crate) one: &'static str,
    /// The path of the log of all.
    pub(crate) log: &'static str,
    /// The path of the log of one.
    pub(crate) log_of_one: &'static str,
    /// The scope that reads.
    pub(crate) read: &'static str,
    /// The scope that writes.
    pub(crate) write: &'static str,
}

/// The parameters of what a successful create links to.
pub(crate) const THIS: [(&str, &str); 2] =
    [("project_id", "$request.path.project_id"), ("id", "$response.body#/id")];

impl Kind {
    fn reads(&self, id: &'static str, path: &'static str, summary: &'static str) -> Operation {
        Operation::new(id, "GET", path, self.tag, summary, Security::Scope(self.read))
    }

    pub(crate) fn writes(
        &self,
        id: &'static str,
        method: &'static str,
        path: &'static str,
        summary: &'static str,
    ) -> Operation {
        Operation::new(id, method, path, self.tag, summary, Security::Scope(self.write))
    }

    /// The list, which can be searched.
    pub(crate) fn listed(
        &self,
        id: &'static str,
        summary: &'static str,
        search: &'static str,
        shown: &str,
    ) -> Operation {
        self.reads(id, self.list, summary)
            .query("search", text(), search)
            .paged()
            .gives(200, "A page.", page(named(shown)))
            .refuses(400, "A parameter is not acceptable, or the page is larger than an answer can be.")
    }

    /// One record.
    pub(crate) fn got(&self, id: &'static str, summary: &'static str, shown: &str) -> Operation {
        self.reads(id, self.one, summary).gives(200, "The record.", named(shown))
    }

    /// A create, whose body may be left out.
    pub(crate) fn created(
        &self,
        id: &'static str,
        summary: &'static str,
        (sent, shown): (&str, &str),
    ) -> Operation {
        self.writes(id, "POST", self.list, summary).once().takes(named(sent)).body_optional().gives(
            201,
            "The record.",
            named(shown),
        )
    }

    /// A change, whose body may be left out.
    pub(crate) fn changed(
        &self,
        id: &'static str,
        method: &'static str,
        summary: &'static str,
        (sent, shown): (&str, &str),
    ) -> Operation {
        self.writes(id, method, self.one, summary).takes(named(sent)).body_optional().gives(
            200,
            "The record.",
            named(shown),
        )
    }

    /// The deletion that is none.
    pub(crate) fn not_deleted(&self, id: &'static str, summary: &'static str) -> Operation {
        self.writes(id, "DELETE", self.one, summary)
            .empty(405, "Always, whether there is such a record or not. Send `deleted: true` in a change.")
    }

    /// The log of all and that of one, by the names of their operations.
    pub(crate) fn logs(
        &self,
        (all, of_all): (&'static str, &'static str),
        (one, of_one): (&'static str, &'static str),
    ) -> [Operation; 2] {
        let log = |id, path, summary| {
            Operation::new(id, "GET", path, self.tag, summary, Security::Scope("activity_log:read"))
        };
        [
            logged(log(all, self.log, of_all)),
            logged(log(one, self.log_of_one, of_one))
                .described("Of a record that is not there the 404 has no body.")
                .silently(404),
        ]
    }
}
