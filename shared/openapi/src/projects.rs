//! Projects, organizations, and the user behind a key.

use pennon_core::model::Level;
use serde_json::{Value, json};

use crate::operation::{Operation, Security};
use crate::schema::{
    any, any_object, boolean, constant, enum_of, extend_object, id, instant, integer, list, nullable, object,
    page, schema_ref, text, uuid,
};

const TAG: &str = "Projects";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let read = Security::Scope("project:read");
    let organizations = Security::Scope("organization:read");
    let get = |id, path, summary, security| Operation::new(id, "GET", path, TAG, summary, security);
    vec![
        get("listProjects", "/api/projects/", "List projects", read.clone()).paginated().response(
            200,
            "The projects that the key has access to.",
            page(schema_ref("ProjectSummary")),
        ),
        get("getProject", "/api/projects/{project_id}/", "Get a project", read.clone()).response(
            200,
            "The project.",
            schema_ref("Project"),
        ),
        get("getUser", "/api/users/@me/", "Get the user behind the key", Security::Scope("user:read"))
            .response(200, "The user.", schema_ref("CurrentUser")),
        get("listOrganizations", "/api/organizations/", "List organizations", organizations.clone())
            .paginated()
            .response(200, "The organizations that the key has access to.", page(schema_ref("Organization"))),
        get(
            "getOrganization",
            "/api/organizations/{organization_id}/",
            "Get an organization",
            organizations.clone(),
        )
        .response(200, "The organization.", schema_ref("Organization")),
        get(
            "listOrganizationMembers",
            "/api/organizations/{organization_id}/members/",
            "List an organization's members",
            Security::Scope("organization_member:read"),
        )
        .paginated()
        .query_param("email", text(), "Only the member with this e-mail address.")
        .response(200, "The active users, by id.", page(schema_ref("OrganizationMember")))
        .error(400, "The response is too large."),
        get(
            "listOrganizationRoles",
            "/api/organizations/{organization_id}/roles/",
            "List an organization's roles",
            organizations,
        )
        .paginated()
        .query_param("name", text(), "Only roles with this name.")
        .response(200, "The roles, by name.", page(schema_ref("Role")))
        .error(400, "The response is too large."),
        get(
            "listOrganizationProjects",
            "/api/organizations/{organization_id}/projects/",
            "List an organization's projects",
            read.clone(),
        )
        .paginated()
        .response(
            200,
            "The projects of the organization that the key has access to.",
            page(schema_ref("ProjectSummary")),
        ),
        get(
            "getOrganizationProject",
            "/api/organizations/{organization_id}/projects/{id}/",
            "Get a project of an organization",
            read,
        )
        .response(200, "The project.", schema_ref("Project")),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("ProjectSummary", summary()),
        ("Project", project()),
        ("Organization", organization()),
        ("OrganizationMember", member()),
        ("CurrentUser", user()),
    ]
}

fn summary() -> Value {
    object([
        ("id", id()),
        ("uuid", uuid()),
        ("organization", uuid()),
        ("project_id", id()),
        ("api_token", text()),
        ("name", text()),
        ("completed_snippet_onboarding", constant(false.into())),
        ("has_completed_onboarding_for", constant(Value::Null)),
        ("ingested_event", boolean()),
        ("is_demo", constant(false.into())),
        ("timezone", text()),
        ("access_control", constant(false.into())),
        ("effective_membership_level", integer()),
    ])
}

fn project() -> Value {
    let group_type = object([
        ("group_type", text()),
        ("group_type_index", integer()),
        ("name_singular", constant(Value::Null)),
        ("name_plural", constant(Value::Null)),
    ]);
    extend_object(
        summary(),
        [
            ("created_at", instant()),
            ("updated_at", instant()),
            ("app_urls", list(text())),
            ("anonymize_ips", boolean()),
            ("test_account_filters", list(any_object())),
            ("test_account_filters_default_checked", constant(Value::Null)),
            ("path_cleaning_filters", list(any_object())),
            ("week_start_day", nullable(integer())),
            ("group_types", list(group_type)),
            ("user_access_level", enum_of(&["admin", "member"])),
            ("session_recording_opt_in", constant(false.into())),
            ("autocapture_opt_out", constant(Value::Null)),
        ],
    )
}

fn organization() -> Value {
    object([
        ("id", uuid()),
        ("name", text()),
        ("slug", text()),
        ("created_at", instant()),
        ("membership_level", integer()),
        ("feature_flags_access_level", integer()),
    ])
}

fn member() -> Value {
    object([
        ("id", uuid()),
        ("user", schema_ref("User")),
        ("level", json!({"type": "integer", "enum": Level::ALL.map(Level::number)})),
        ("joined_at", instant()),
        ("updated_at", instant()),
    ])
}

fn user() -> Value {
    object([
        ("id", id()),
        ("uuid", uuid()),
        ("distinct_id", nullable(text())),
        ("first_name", text()),
        ("last_name", text()),
        ("email", text()),
        ("is_email_verified", nullable(boolean())),
        ("hedgehog_config", any()),
        ("role_at_organization", nullable(text())),
        ("organization", nullable(schema_ref("Organization"))),
        ("organizations", list(schema_ref("Organization"))),
        ("team", nullable(schema_ref("ProjectSummary"))),
    ])
}
