//! The OpenAPI document and its HTML viewer.

use crate::operation::{Operation, Security};
use crate::schema::{any_object, enum_of, text};

const TAG: &str = "Reference";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let get = |id, path, summary| Operation::new(id, "GET", path, TAG, summary, Security::Open);
    let known = |operation: Operation| {
        operation
            .header_param("If-None-Match", text(), "The ETag of what the caller has.")
            .empty_response(304, "The caller has it already.")
    };
    let document = get("getSchema", "/api/schema/", "Get this document")
        .with_description("JSON, or YAML for those who ask for it by `format` or `Accept`.")
        .query_param(
            "format",
            enum_of(&["json", "yaml"]),
            "The form; it goes before `Accept`, and others are a 404.",
        )
        .response(200, "The OpenAPI document.", any_object())
        .response_as(200, "", "application/vnd.oai.openapi+json", any_object())
        .response_as(200, "", "application/yaml", any_object())
        .response_as(200, "", "application/vnd.oai.openapi", any_object())
        .error(404, "There is no such format.");
    let page = get("getReference", "/docs/", "Read this document as a page").response_as(
        200,
        "The page.",
        "text/html",
        text(),
    );
    let viewer = get("getReferenceViewer", "/docs/viewer.js", "Get the script of the page").response_as(
        200,
        "The script; packed for those who send `Accept-Encoding: gzip`.",
        "text/javascript",
        text(),
    );
    vec![known(document), known(page), known(viewer)]
}
