//! The pages that sharing links open, and the sharing settings that insights and dashboards have in common.

use crate::operation::{Operation, Security};
use crate::schema::{enum_of, schema_ref, text, text_min};

const TAG: &str = "Shared pages";
const READ: Security = Security::Scope("sharing_configuration:read");
const WRITE: Security = Security::Scope("sharing_configuration:write");

/// The operations.
pub fn operations() -> Vec<Operation> {
    vec![
        page("getSharedPage", "/shared/{token}/", "Get the page of a sharing link")
            .with_description(format!("{PAGE} Other pages cannot show it in a frame.")),
        page("getEmbeddedPage", "/embedded/{token}/", "Get the page of a sharing link, for a frame")
            .with_description(format!("{PAGE} Other pages can show it in an `<iframe>`.")),
    ]
}

const PAGE: &str = "An insight or a dashboard as HTML, with a table of the numbers. With the suffix `.csv` after the token: the \
    table as CSV, of a dashboard that of the tile with the id `tile`.";

fn page(id: &'static str, path: &'static str, summary: &'static str) -> Operation {
    let mut operation = Operation::new(id, "GET", path, TAG, summary, Security::Open)
        .query_param(
            "theme",
            enum_of(&["light", "dark"]),
            "The colors. Default, also for other values: those that the browser prefers.",
        )
        .query_param("tile", text_min(1), "With `.csv`: the id of a tile of the shared dashboard.")
        .error(400, "The link is of a dashboard and `tile` is missing, or the table is larger than 6 MB.");
    // Errors of pages are pages.
    for (status, response) in &mut operation.responses {
        if !response.content.is_empty() {
            response.content = vec![("text/html", text())];
            if *status == 400 {
                response.content.push(("application/json", schema_ref("Error")));
            }
        }
    }
    operation.response_as(200, "The page.", "text/html", text()).response_as(200, "", "text/csv", text())
}

/// A kind of record with sharing settings.
pub struct SharedKind {
    /// The tag of the kind.
    pub tag: &'static str,
    /// The path of the settings.
    pub settings: &'static str,
    /// The path that replaces the token.
    pub refresh: &'static str,
}

impl SharedKind {
    /// The operations of the settings, by their ids and summaries: get, change, replace the token.
    pub fn operations(&self, texts: [(&'static str, &'static str); 3]) -> Vec<Operation> {
        let [(get, get_summary), (update, update_summary), (refresh, refresh_summary)] = texts;
        let with_settings = |operation: Operation| {
            operation.response(200, "The sharing settings.", schema_ref("Sharing")).with_csv()
        };
        vec![
            with_settings(
                Operation::new(get, "GET", self.settings, self.tag, get_summary, READ)
                    .with_description("The token gives access only while `enabled` is true."),
            ),
            with_settings(
                Operation::new(update, "PATCH", self.settings, self.tag, update_summary, WRITE)
                    .with_description("Unknown settings are ignored.")
                    .json_body(schema_ref("SharingInput"))
                    .body_optional(),
            ),
            with_settings(
                Operation::new(refresh, "POST", self.refresh, self.tag, refresh_summary, WRITE)
                    .with_description("The body is ignored. The previous token becomes invalid."),
            ),
        ]
    }
}
