//! The OpenAPI document, and the page that shows it.

use crate::operation::{Operation, Security};
use crate::schema::{any_object, enum_of, text};

const TAG: &str = "Reference";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let get = |id, path, summary| Operation::new(id, "GET", path, TAG, summary, Security::Open);
    let known = |operation: Operation| {
        operation
            .header_param("If-None-Match", text(), "The ETag of the caller's cached response.")
            .empty_response(304, "The document is unchanged since that ETag.")
    };
    let document = get("getSchema", "/api/schema/", "Get this document")
        .with_description("As JSON, or as YAML if `format` or `Accept` requests it.")
        .query_param(
            "format",
            enum_of(&["json", "yaml"]),
            "The format, which takes precedence over `Accept`; other values are a 404.",
        )
        .response(200, "The OpenAPI document.", any_object())
        .response_as(200, "", "application/vnd.oai.openapi+json", any_object())
        .response_as(200, "", "application/yaml", any_object())
        .response_as(200, "", "application/vnd.oai.openapi", any_object())
        .error(404, "The format is unknown.");
    let page = get("getReference", "/docs/", "Get this document as an HTML page").response_as(
        200,
        "The page.",
        "text/html",
        text(),
    );
    vec![known(document), known(page)]
}
