//! Schemas that several groups use: errors, users, entries of a log.

use serde_json::{Value, json};

use crate::schema::{
    any, boolean, constant, id, instant, list, named, nullable, object, one_of, record, text, uuid,
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

/// Every error.
fn error() -> Value {
    object([
        (
            "type",
            one_of(&[
                "authentication_error",
                "invalid_request",
                "server_error",
                "throttled_error",
                "validation_error",
            ]),
        ),
        ("code", text()),
        ("detail", text()),
        ("attr", nullable(text())),
    ])
}

/// Who made or changed something.
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

/// An entry of an activity log. `field` of a change is null where it is about more than a field.
fn activity_entry() -> Value {
    let change = object([
        ("type", text()),
        ("action", one_of(&["created", "changed", "deleted"])),
        ("field", nullable(text())),
        ("before", any()),
        ("after", any()),
    ]);
    let detail = record(
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
        ("scope", one_of(&["FeatureFlag", "Insight", "Cohort", "Action", "Dashboard"])),
        ("item_id", text()),
        ("created_at", instant()),
        ("detail", detail),
    ])
}

/// A page of an activity log, which counts otherwise than pages of records.
fn activity_page() -> Value {
    let link = || nullable(json!({"type": "string", "format": "uri"}));
    object([
        ("results", list(named("ActivityEntry"))),
        ("next", link()),
        ("previous", link()),
        ("total_count", json!({"type": "integer", "minimum": 0})),
    ])
}
