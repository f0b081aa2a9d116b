//! Which roles may edit a feature flag.

use pennon_core::model::AccessLevel;
use serde_json::{Value, json};

use crate::operation::{Operation, Security};
use crate::schema::{constant, id, input, instant, list, nullable, object, page, schema_ref, text, uuid};

const TAG: &str = "Role access";
const LIST: &str = "/api/projects/{project_id}/feature_flags/{feature_flag_id}/role_access/";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{feature_flag_id}/role_access/{id}/";
const READ: Security = Security::Scope("feature_flag:read");
const WRITE: Security = Security::Scope("feature_flag:write");
const THIS: [(&str, &str); 3] = [
    ("project_id", "$request.path.project_id"),
    ("feature_flag_id", "$request.path.feature_flag_id"),
    ("id", "$response.body#/id"),
];

/// The operations.
pub fn operations() -> Vec<Operation> {
    vec![
        Operation::new("listRoleAccess", "GET", LIST, TAG, "List the roles that may edit a flag", READ)
            .with_description("For an unknown flag the page is empty.")
            .paginated()
            .response(200, "A page.", page(schema_ref("RoleAccess")))
            .error(400, "The page exceeds the maximum response size."),
        Operation::new("createRoleAccess", "POST", LIST, TAG, "Grant a role access to a flag", WRITE)
            .idempotent()
            .json_body(schema_ref("RoleAccessCreate"))
            .response(201, "The access.", schema_ref("RoleAccess"))
            .link("get", "getRoleAccess", &THIS)
            .link("delete", "deleteRoleAccess", &THIS),
        Operation::new("getRoleAccess", "GET", ONE, TAG, "Get a role's access to a flag", READ).response(
            200,
            "The access.",
            schema_ref("RoleAccess"),
        ),
        Operation::new("deleteRoleAccess", "DELETE", ONE, TAG, "Revoke a role's access to a flag", WRITE)
            .empty_response(204, "It is gone."),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    // UUIDs are accepted without hyphens, in braces and as URNs too.
    let role_id = json!({"type": "string", "minLength": 32});
    vec![
        ("RoleAccess", access()),
        ("RoleAccessCreate", input(&["role_id"], [("role_id", role_id)])),
        ("Role", role()),
    ]
}

fn access() -> Value {
    object([
        ("id", id()),
        ("feature_flag", schema_ref("FeatureFlag")),
        ("role", nullable(schema_ref("Role"))),
        ("added_at", instant()),
        ("updated_at", instant()),
    ])
}

fn role() -> Value {
    let levels = AccessLevel::ALL.map(u8::from);
    let member = object([
        ("id", uuid()),
        ("role_id", uuid()),
        ("organization_member", schema_ref("OrganizationMember")),
        ("user", schema_ref("User")),
        ("joined_at", instant()),
        ("updated_at", instant()),
    ]);
    object([
        ("id", uuid()),
        ("name", text()),
        ("feature_flags_access_level", json!({"type": "integer", "enum": levels})),
        ("created_at", instant()),
        ("created_by", constant(Value::Null)),
        ("members", list(member)),
    ])
}
