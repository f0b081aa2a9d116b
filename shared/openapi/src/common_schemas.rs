//! Schemas that several tags use: errors, users, activity log entries.

use pennon_core::error::ERROR_TYPES;
use pennon_core::write_times::activity_log_scopes;
use serde_json::{Value, json};

use crate::schema::{
    any, boolean, constant, enum_of, id, instant, list, nullable, object, object_with_optional, schema_ref,
    text, uuid,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("Error", error()),
        ("User", user()),
        ("ActivityEntry", activity_entry()),
        ("ActivityPage", activity_page()),
    ]
}

/// The body of every error.
fn error() -> Value {
    object([
        ("type", enum_of(&ERROR_TYPES)),
        ("code", text()),
        ("detail", text()),
        ("attr", nullable(text())),
    ])
}

/// The user who created or changed a record.
fn user() -> Value {
    object([
        ("id", id()),
        ("uuid", uuid()),
        ("distinct_id", text()),
        ("first_name", text()),
        ("last_name", text()),
        ("email", text()),
        ("is_email_verified", nullable(boolean())),
        ("hedgehog_config", any()),
        ("role_at_organization", nullable(text())),
    ])
}

/// An activity log entry. `changes` is null for a new record; `field` of a change is null if it is not about a single
/// field.
fn activity_entry() -> Value {
    let change = object([
        ("type", text()),
        ("action", enum_of(&["created", "changed", "deleted"])),
        ("field", nullable(text())),
        ("before", any()),
        ("after", any()),
    ]);
    let detail = object_with_optional(
        [
            ("name", nullable(text())),
            ("short_id", nullable(text())),
            ("type", nullable(text())),
            ("trigger", constant(Value::Null)),
            ("changes", nullable(list(change))),
        ],
        [("id", constant(Value::Null))],
    );
    object([
        ("id", uuid()),
        ("user", object([("first_name", text()), ("email", text())])),
        ("activity", text()),
        ("scope", json!({"type": "string", "enum": activity_log_scopes()})),
        ("item_id", text()),
        ("created_at", instant()),
        ("detail", detail),
    ])
}

/// A page of an activity log; its fields differ from other pages.
fn activity_page() -> Value {
    let link = || nullable(json!({"type": "string", "format": "uri"}));
    object([
        ("results", list(schema_ref("ActivityEntry"))),
        ("next", link()),
        ("previous", link()),
        ("total_count", json!({"type": "integer", "minimum": 0})),
    ])
}
