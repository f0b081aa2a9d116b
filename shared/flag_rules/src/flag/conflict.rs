//! Detects edit conflicts: an update based on an older version than the stored one, on a field that was changed since.
//!
//! Must stay true: an older version alone is no conflict; there is one only when the client and another user changed
//! the same field to different values.

use std::collections::BTreeMap;

use pennon_filters::body::json::{self, Object};
use pennon_filters::body::timestamp;
use serde_json::{Value, json};

use super::{Flag, FlagInput};
use crate::conditions::filters;

/// The detail of the 409 response, if the update in `body` (parsed as `input`) conflicts with the stored flag.
pub fn detect(body: &Object, input: &FlagInput, stored: &Flag) -> Option<String> {
    let base_version = input.version?;
    let original = body.get("original_flag")?.as_object().filter(|original| !original.is_empty())?;
    if base_version == stored.version {
        return None;
    }
    let current: BTreeMap<&str, Value> = stored_fields(stored).into_iter().collect();
    let differs = |(field, sent): (&'static str, Value)| {
        let (Some(original), Some(current)) = (original.get(field), current.get(field)) else { return false };
        let original = without_cohort_names(field, original);
        !json::same(&sent, &original) && !json::same(current, &original) && !json::same(&sent, current)
    };
    if !sent_fields(input).into_iter().any(differs) {
        return None;
    }
    let email =
        stored.last_modified_by.as_ref().map(|user| user.email.as_str()).filter(|email| !email.is_empty());
    let editor = email.unwrap_or("another user");
    Some(format!(
        "The feature flag was updated by {editor} since you started editing it. Please refresh and try again."
    ))
}

/// A value of the client's original in comparable form: without the cohort names that reads add.
fn without_cohort_names(field: &str, value: &Value) -> Value {
    match value {
        Value::Object(object) if field == "filters" => {
            let mut plain = object.clone();
            filters::drop_cohort_names(&mut plain);
            Value::Object(plain)
        }
        other => other.clone(),
    }
}

/// The writable fields of the stored flag, as reads render them.
fn stored_fields(flag: &Flag) -> [(&'static str, Value); 18] {
    let filters = if flag.filters.is_empty() { filters::default_filters() } else { flag.filters.clone() };
    [
        ("name", json!(flag.name)),
        ("key", json!(flag.key)),
        ("filters", Value::Object(filters)),
        ("deleted", json!(flag.deleted)),
        ("active", json!(flag.active)),
        ("created_at", json!(timestamp::format(flag.created_at))),
        ("ensure_experience_continuity", json!(flag.ensure_experience_continuity)),
        ("rollback_conditions", flag.rollback_conditions.clone()),
        ("performed_rollback", json!(flag.performed_rollback)),
        ("tags", json!(flag.tags)),
        ("analytics_dashboards", json!(flag.analytics_dashboards)),
        ("has_enriched_analytics", json!(flag.has_enriched_analytics)),
        ("creation_context", json!(flag.creation_context)),
        ("is_remote_configuration", json!(flag.is_remote_configuration)),
        ("has_encrypted_payloads", json!(flag.has_encrypted_payloads)),
        ("evaluation_runtime", json!(flag.evaluation_runtime)),
        ("bucketing_identifier", json!(flag.bucketing_identifier)),
        ("last_called_at", json!(flag.last_called_at.map(timestamp::format))),
    ]
}

/// The fields in the body, as reads would render them.
fn sent_fields(input: &FlagInput) -> Vec<(&'static str, Value)> {
    let fields = [
        ("name", input.name.as_ref().map(|value| json!(value))),
        ("key", input.key.as_ref().map(|value| json!(value))),
        ("filters", input.filters.clone().map(Value::Object)),
        ("deleted", input.deleted.map(Value::from)),
        ("active", input.active.map(Value::from)),
        ("created_at", input.created_at.map(|value| json!(timestamp::format(value)))),
        ("ensure_experience_continuity", input.ensure_experience_continuity.map(Value::from)),
        ("rollback_conditions", input.rollback_conditions.clone()),
        ("performed_rollback", input.performed_rollback.map(Value::from)),
        ("tags", input.tags.as_ref().map(|value| json!(value))),
        ("analytics_dashboards", input.analytics_dashboards.as_ref().map(|value| json!(value))),
        ("has_enriched_analytics", input.has_enriched_analytics.map(Value::from)),
        ("creation_context", input.creation_context.map(Value::from)),
        ("is_remote_configuration", input.is_remote_configuration.map(Value::from)),
        ("has_encrypted_payloads", input.has_encrypted_payloads.map(Value::from)),
        ("evaluation_runtime", input.evaluation_runtime.map(Value::from)),
        ("bucketing_identifier", input.bucketing_identifier.map(Value::from)),
        ("last_called_at", input.last_called_at.map(|value| json!(value.map(timestamp::format)))),
    ];
    fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect()
}

#[cfg(test)]
mod tests;
