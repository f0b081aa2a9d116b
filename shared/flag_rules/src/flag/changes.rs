//! Activity log entries of a write: its kind and the fields that it changed.
//!
//! Must stay true: stored values are compared, not rendered ones; every update has an entry, because every update
//! changes the version; no entry contains a payload of a flag whose payloads are, or were, encrypted.

use pennon_filters::body::json;
use serde_json::{Value, json};

use super::Flag;
use super::field_table::{FlagField, LogRule, logged_fields};
use crate::conditions::payloads;

/// The kind of a write in the activity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagActivity {
    /// A new flag.
    Created,
    /// Any other change.
    Updated,
    /// Soft deletion.
    Deleted,
    /// A restore after a soft deletion.
    Restored,
}

impl FlagActivity {
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
pub fn kind(before: Option<&Flag>, after: &Flag) -> FlagActivity {
    match before.map(|flag| flag.deleted) {
        None => FlagActivity::Created,
        Some(false) if after.deleted => FlagActivity::Deleted,
        Some(true) if !after.deleted => FlagActivity::Restored,
        Some(_) => FlagActivity::Updated,
    }
}

/// The changes of an update: `{type, action, field, before, after}`, in the log's order of fields.
pub fn between(before: &Flag, after: &Flag) -> Vec<Value> {
    let mut changes: Vec<Value> =
        logged_fields().iter().filter_map(|field| field_change(field, before, after)).collect();
    if before.is_encrypted() || after.is_encrypted() {
        changes.iter_mut().for_each(mask);
    }
    changes
}

fn field_change(field: &FlagField, before: &Flag, after: &Flag) -> Option<Value> {
    let (before, after) = ((field.stored)(before), (field.stored)(after));
    if before == after {
        return None;
    }
    let (before, after) = (before.to_json(), after.to_json());
    match field.log {
        LogRule::ListAt(_) => Some(entry("changed", field.name, before, after)),
        LogRule::At(_) | LogRule::No => change(field.name, before, after),
    }
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

#[cfg(test)]
mod tests;
