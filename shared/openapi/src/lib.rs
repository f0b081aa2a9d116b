//! The OpenAPI 3.1 document of the whole API.
//!
//! Every operation is described once, beside those of its group; [`document`] puts them together. Must stay true: there is
//! an operation for each route of the route tables and none besides, which a test in `tests/` compares; schemas
//! of answers are strict (every field that is always shown is required, no others are let through), because every answer of
//! the black-box tests is validated against them.
//!
//! Paths are written with their trailing slash, as clients send them; both spellings are served. The alias
//! `/api/environments/{project_id}/` and the endings `.json` and `.csv` are told in the document's text and are no
//! operations of their own.

mod actions;
mod calculation;
mod calculation_input;
mod capture;
mod cohort_schemas;
mod cohorts;
mod conditions;
mod dashboards;
mod deprecated;
mod document;
mod evaluation;
mod event_lists;
mod flag_schemas;
mod flags;
mod funnel_input;
mod insight_query;
mod insight_schemas;
mod insights;
mod operation;
mod people;
mod projects;
mod query_nodes;
mod reference;
mod result_schemas;
mod role_access;
pub mod schema;
pub mod shared;
mod workspace;
mod workspace_schemas;

pub use document::document;
pub use operation::{Answer, Operation, Parameter, Security};

/// Every operation, in the order of the document.
pub fn operations() -> Vec<Operation> {
    [
        projects::operations(),
        flags::operations(),
        role_access::operations(),
        insights::operations(),
        dashboards::operations(),
        cohorts::operations(),
        actions::operations(),
        calculation::operations(),
        people::operations(),
        event_lists::operations(),
        capture::operations(),
        evaluation::operations(),
        reference::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every schema that operations refer to by name.
pub fn components() -> Vec<(&'static str, serde_json::Value)> {
    [
        shared::components(),
        projects::components(),
        flag_schemas::components(),
        role_access::components(),
        workspace_schemas::components(),
        cohort_schemas::components(),
        insight_query::components(),
        insight_schemas::components(),
        conditions::components(),
        calculation_input::components(),
        funnel_input::components(),
        query_nodes::components(),
        result_schemas::components(),
        calculation::components(),
        people::components(),
        event_lists::components(),
        capture::components(),
        evaluation::components(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
