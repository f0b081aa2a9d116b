//! The document itself, and the page that shows it.

use crate::operation::{Operation, Security};
use crate::schema::{any_object, one_of, text};

const TAG: &str = "Reference";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let get = |id, path, summary| Operation::new(id, "GET", path, TAG, summary, Security::Open);
    let known = |operation: Operation| {
        operation
            .header("If-None-Match", text(), "The ETag of what the caller has.")
            .empty(304, "The caller has it already.")
    };
    let document = get("getSchema", "/api/schema/", "Get this document")
        .described("JSON, or YAML for those who ask for it by `format` or `Accept`.")
        .query(
            "format",
            one_of(&["json", "yaml"]),
            "The form; it goes before `Accept`, and others are a 404.",
        )
        .gives(200, "The OpenAPI document.", any_object())
        .gives_as(200, "", "application/vnd.oai.openapi+json", any_object())
        .gives_as(200, "", "application/yaml", any_object())
        .gives_as(200, "", "application/vnd.oai.openapi", any_object())
        .refuses(404, "There is no such format.");
    let page = get("getReference", "/docs/", "Read this document as a page").gives_as(
        200,
        "The page.",
        "text/html",
        text(),
    );
    let viewer = get("getReferenceViewer", "/docs/viewer.js", "Get the script of the page").gives_as(
        200,
        "The script; packed for those who send `Accept-Encoding: gzip`.",
        "text/javascript",
        text(),
    );
    vec![known(document), known(page), known(viewer)]
}
