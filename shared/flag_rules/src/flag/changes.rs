//! Activity log entries of a write: its kind and the fields that it changed.
//!
//! Must stay true: stored values are compared, not rendered ones; every update has an entry, because every update
//! changes the version; no entry contains a payload of a flag whose payloads are, or were, encrypted.

use pennon_filters::body::json;
use serde_json::{Value, json};

use super::Flag;
use crate::conditions::payloads;

/// The kind of a write in the activity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new flag.
    Created,
    /// Any other change.
    Updated,
    /// Soft deletion.
    Deleted,
    /// A restore after a soft deletion.
    Restored,
}

impl Kind {
    /// The value in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Restored => "restored",
        }
    }
}

/// The kind of a write that left `after`.
pub fn kind(before: Option<&Flag>, after: &Flag) -> Kind {
    match before.map(|flag| flag.deleted) {
        None => Kind::Created,
        Some(false) if after.deleted => Kind::Deleted,
        Some(true) if !after.deleted => Kind::Restored,
        Some(_) => Kind::Updated,
    }
}

/// The changes of an update: `{type, action, field, before, after}`, in the log's order of fields.
pub fn between(before: &Flag, after: &Flag) -> Vec<Value> {
    let mut changes: Vec<Value> = logged(before)
        .into_iter()
        .zip(logged(after))
        .filter_map(|((field, before), (_, after))| change(field, before, after))
        .collect();
    if before.is_encrypted() || after.is_encrypted() {
        changes.iter_mut().for_each(mask);
    }
    if before.tags != after.tags {
        // Lists of linked records are always "changed", even when empty.
        changes.push(entry("changed", "tags", json!(before.tags), json!(after.tags)));
    }
    changes
}

/// Masks payloads.
fn mask(change: &mut Value) {
    if change["field"] == "filters" {
        for side in ["before", "after"] {
            change[side].as_object_mut().into_iter().for_each(payloads::mask);
        }
    }
}

fn change(field: &str, before: Value, after: Value) -> Option<Value> {
    match (json::is_nothing(&before), json::is_nothing(&after)) {
        (true, true) => None,
        (true, false) => Some(entry("created", field, Value::Null, after)),
        (false, true) => Some(entry("deleted", field, before, Value::Null)),
        (false, false) if json::same(&before, &after) => None,
        (false, false) => Some(entry("changed", field, before, after)),
    }
}

fn entry(action: &str, field: &str, before: Value, after: Value) -> Value {
    json!({"type": "FeatureFlag", "action": action, "field": field, "before": before, "after": after})
}

/// The logged scalar fields of a flag, in the log's order.
fn logged(flag: &Flag) -> [(&'static str, Value); 14] {
    [
        ("key", json!(flag.key)),
        ("name", json!(flag.name)),
        ("filters", Value::Object(flag.filters.clone())),
        ("deleted", json!(flag.deleted)),
        ("active", json!(flag.active)),
        ("version", json!(flag.version)),
        ("rollback_conditions", flag.rollback_conditions.clone()),
        ("performed_rollback", json!(flag.performed_rollback)),
        ("ensure_experience_continuity", json!(flag.ensure_experience_continuity)),
        ("has_enriched_analytics", json!(flag.has_enriched_analytics)),
        ("is_remote_configuration", json!(flag.is_remote_configuration)),
        ("has_encrypted_payloads", json!(flag.has_encrypted_payloads)),
        ("evaluation_runtime", json!(flag.evaluation_runtime)),
        ("bucketing_identifier", json!(flag.bucketing_identifier)),
    ]
}

#[cfg(test)]
mod tests;
