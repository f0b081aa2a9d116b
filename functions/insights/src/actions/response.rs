//! Actions as JSON of responses.

use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use serde_json::{Map, Value, json};

use super::ActionRecord;
use super::input::STEP_FIELDS;
use crate::resource::access_level;

/// The JSON of an action.
pub fn action_json(action: &ActionRecord, access: &Access) -> Value {
    json!({
        "id": action.id,
        "name": action.name,
        "description": action.description,
        "tags": action.tags,
        "post_to_slack": action.post_to_slack,
        "slack_message_format": action.slack_message_format,
        "steps": action.steps.iter().map(step).collect::<Vec<Value>>(),
        "created_at": timestamp(action.created_at),
        "created_by": action.created_by,
        "deleted": action.deleted,
        "is_calculating": false,
        // Events are matched for each query, so the action is never out of date.
        "last_calculated_at": timestamp(action.created_at),
        "team_id": access.project.id,
        "is_action": true,
        "bytecode_error": null,
        "pinned_at": action.pinned_at.map(timestamp),
        "creation_context": null,
        "user_access_level": access_level(action.created_by.as_ref(), access),
    })
}

/// A step with all fields of steps.
fn step(stored: &Value) -> Value {
    let value = |name: &str| stored.get(name).cloned().unwrap_or(Value::Null);
    let fields: Map<String, Value> =
        STEP_FIELDS.into_iter().map(|name| (name.to_owned(), value(name))).collect();
    Value::Object(fields)
}
