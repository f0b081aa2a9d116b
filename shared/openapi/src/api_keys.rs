//! The API keys of the current user.

use serde_json::{Value, json};

use crate::limits::api_keys::{KEYS_PER_USER, LABEL_CHARS, LIST as LIST_MAX};
use crate::operation::{Operation, Security};
use crate::schema::{
    any_of, extend_object, id, input, instant, list, nullable, object, schema_ref, text, uuid,
    with_description,
};

const TAG: &str = "API keys";
const LIST: &str = "/api/personal_api_keys/";
const ONE: &str = "/api/personal_api_keys/{id}/";
/// Management needs more than the scope.
const UNLIMITED: &str = "The key in use must have the scope `*`, and no limit to projects or organizations.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    let manage = |id, method, path, summary| {
        Operation::new(id, method, path, TAG, summary, Security::Scope("*")).with_description(UNLIMITED)
    };
    let current = "/api/personal_api_keys/@current/";
    vec![
        Operation::new("getKey", "GET", current, TAG, "Get the key in use", Security::AnyKey).response(
            200,
            "The key, without its secret.",
            schema_ref("PersonalApiKey"),
        ),
        manage("listKeys", "GET", LIST, "List the user's keys").response(
            200,
            "The keys, newest first, without their secrets.",
            list(schema_ref("ListedApiKey")),
        ),
        manage("createKey", "POST", LIST, "Create a key")
            .with_description(format!(
                "{UNLIMITED} A key expires no later than the key that created it. A user has at most \
                 {KEYS_PER_USER} keys."
            ))
            .json_body(schema_ref("ApiKeyCreate"))
            .response(
                201,
                "The key. Its secret, `value`, is in no other response.",
                schema_ref("CreatedApiKey"),
            ),
        manage("getUserKey", "GET", ONE, "Get a key").response(200, "The key.", schema_ref("ListedApiKey")),
        manage("updateKey", "PATCH", ONE, "Change a key").json_body(schema_ref("ApiKeyUpdate")).response(
            200,
            "The key.",
            schema_ref("ListedApiKey"),
        ),
        manage("deleteKey", "DELETE", ONE, "Revoke a key").empty_response(204, "The key is revoked."),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("PersonalApiKey", extend_object(key(), [("user", id())])),
        ("ListedApiKey", identified(json!({"type": "null"}))),
        ("CreatedApiKey", identified(text())),
        ("ApiKeyCreate", input(&["label", "scopes"], fields())),
        ("ApiKeyUpdate", input(&[], fields())),
    ]
}

fn key() -> Value {
    object([
        ("label", text()),
        ("mask_value", text()),
        ("scopes", list(text())),
        ("scoped_teams", list(id())),
        ("scoped_organizations", list(uuid())),
        ("created_at", instant()),
        ("last_used_at", nullable(instant())),
        ("expires_at", nullable(instant())),
    ])
}

fn identified(secret: Value) -> Value {
    extend_object(key(), [("id", text()), ("value", secret), ("user_id", id())])
}

fn fields() -> Vec<(&'static str, Value)> {
    let limited = |items: Value| json!({"type": ["array", "null"], "items": items, "maxItems": LIST_MAX});
    let label = any_of([
        json!({"type": "string", "pattern": "\\S", "maxLength": LABEL_CHARS}),
        json!({"type": "number"}),
    ]);
    let scope = json!({"type": "string", "pattern": "^(\\*|[a-z_]+:(read|write))$"});
    let scopes = json!({"type": "array", "items": scope, "minItems": 1, "maxItems": LIST_MAX});
    let projects = limited(json!({"type": "integer", "minimum": 1}));
    let end = nullable(json!({"type": "string", "format": "date-time"}));
    vec![
        ("label", with_description(label, "A name, unique among the user's keys.")),
        ("scopes", with_description(scopes, "`object:read`, `object:write`, or `*` for everything.")),
        (
            "scoped_teams",
            with_description(projects, "The projects that the key is limited to. Default: no limit."),
        ),
        (
            "scoped_organizations",
            with_description(
                limited(uuid()),
                "The organizations that the key is limited to. Default: no limit.",
            ),
        ),
        (
            "expires_at",
            with_description(end, "When the key stops working. Default: when the key in use does."),
        ),
    ]
}
