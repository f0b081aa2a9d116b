//! The OpenAPI 3.1 document of the whole API.
//!
//! There is one module per tag, with its operations and schemas; [`document`] assembles them.
//!
//! Must stay true: the operations are exactly the routes of the route tables, which a test in `tests/` compares; response
//! schemas are strict (fields that are always present are required, unknown fields are invalid), because the black-box
//! tests validate every response against them.
//!
//! Paths have a trailing slash, as clients send them; paths without it are served too. The alias
//! `/api/environments/{project_id}/` and the suffixes `.json` and `.csv` are documented in the description, and are not
//! separate operations.

mod actions;
mod api_keys;
mod calculation;
mod calculation_input;
mod capture;
mod cohort_schemas;
mod cohorts;
pub mod common_schemas;
mod conditions;
mod dashboards;
mod deprecated;
mod document;
mod evaluation;
mod event_lists;
mod examples;
mod flag_impact;
mod flag_schemas;
mod flags;
mod funnel_input;
mod insight_endpoints;
mod insight_query;
mod insight_schemas;
mod insights;
mod lifecycle;
mod limits;
mod operation;
mod path_input;
mod persons;
mod projects;
mod query_nodes;
mod record_operations;
mod reference;
mod result_schemas;
mod retention_input;
mod role_access;
pub mod schema;
mod shared_pages;
mod stickiness;
mod workspace_schemas;

pub use document::document;
pub use operation::{Operation, Parameter, Response, Security};

/// All operations, in the order of the document.
pub fn operations() -> Vec<Operation> {
    [
        flags::operations(),
        flag_impact::operations(),
        role_access::operations(),
        evaluation::operations(),
        calculation::operations(),
        persons::operations(),
        stickiness::operations(),
        lifecycle::operations(),
        insights::operations(),
        dashboards::operations(),
        shared_pages::operations(),
        cohorts::operations(),
        actions::operations(),
        event_lists::operations(),
        capture::operations(),
        projects::operations(),
        api_keys::operations(),
        reference::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// All named schemas.
pub fn components() -> Vec<(&'static str, serde_json::Value)> {
    [
        common_schemas::components(),
        projects::components(),
        api_keys::components(),
        flag_schemas::components(),
        flag_impact::components(),
        role_access::components(),
        workspace_schemas::components(),
        cohort_schemas::components(),
        insight_query::components(),
        insight_schemas::components(),
        conditions::components(),
        calculation_input::components(),
        funnel_input::components(),
        retention_input::components(),
        path_input::components(),
        query_nodes::components(),
        stickiness::components(),
        lifecycle::components(),
        result_schemas::components(),
        calculation::components(),
        persons::components(),
        event_lists::components(),
        capture::components(),
        evaluation::components(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
