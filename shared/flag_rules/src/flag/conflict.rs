//! Detects edit conflicts: an update based on an older version than the stored one, on a field that was changed since.
//!
//! Must stay true: an older version alone is no conflict; there is one only when the client and another user changed
//! the same field to different values.

use pennon_filters::body::json::{self, Object};
use serde_json::Value;

use super::field_table::{FLAG_FIELDS, FieldKind, FieldWrite, FlagField};
use super::{Flag, FlagInput};
use crate::conditions::filters;

/// The detail of the 409 response, if the update in `body` (parsed as `input`) conflicts with the stored flag.
pub fn detect(body: &Object, input: &FlagInput, stored: &Flag) -> Option<String> {
    let base_version = input.version?;
    let original = body.get("original_flag")?.as_object().filter(|original| !original.is_empty())?;
    if base_version == stored.version {
        return None;
    }
    let is_stored = |field: &&FlagField| matches!(field.write, FieldWrite::Stored { .. });
    let mut sent_fields = FLAG_FIELDS.iter().filter(is_stored).filter(|field| input.is_sent(field.name));
    if !sent_fields.any(|field| is_changed_by_both(field, input, original, stored)) {
        return None;
    }
    let email =
        stored.last_modified_by.as_ref().map(|user| user.email.as_str()).filter(|email| !email.is_empty());
    let editor = email.unwrap_or("another user");
    Some(format!(
        "The feature flag was updated by {editor} since you started editing it. Please refresh and try again."
    ))
}

/// Whether the client and another user changed the field to different values.
fn is_changed_by_both(field: &FlagField, input: &FlagInput, original: &Object, stored: &Flag) -> bool {
    let Some(original) = original.get(field.name) else { return false };
    let original = without_cohort_names(field.kind, original);
    let sent = (field.stored)(&input.values).to_json();
    let current = match field.kind {
        // As reads render them.
        FieldKind::Filters if stored.filters.is_empty() => Value::Object(filters::default_filters()),
        _ => (field.stored)(stored).to_json(),
    };
    !json::same(&sent, &original) && !json::same(&current, &original) && !json::same(&sent, &current)
}

/// A value of the client's original in comparable form: without the cohort names that reads add.
fn without_cohort_names(kind: FieldKind, value: &Value) -> Value {
    match (kind, value) {
        (FieldKind::Filters, Value::Object(object)) => {
            let mut plain = object.clone();
            filters::drop_cohort_names(&mut plain);
            Value::Object(plain)
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests;
