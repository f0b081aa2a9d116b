//! Validates the body of a create or an update of a flag.
//!
//! Must stay true: of several invalid fields the first in the order of the contract is reported; rules about several
//! fields run only when each field is valid. Absent, null and present are distinct: an absent field never changes a
//! record.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, Field, TextRule, boolean, choice, datetime};
use pennon_filters::body::json::{self, Object};
use pennon_filters::body::spelling::check_spelling;
use serde_json::Value;

use super::{Flag, known_fields};
use crate::conditions::{filters, properties};
use crate::limits;
use crate::relations::References;
use crate::relations::dependencies::FlagIdentity;

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// A new flag.
    Create,
    /// Changes some fields of a flag (PATCH).
    Update,
    /// Like an update, but the key is required (PUT).
    Replace,
}

/// The stored data that validation needs; see [`crate::relations::body_references`] for what to load.
#[derive(Debug, Clone, Copy)]
pub struct ValidationContext<'a> {
    /// The stored flag; `None` on create.
    pub stored: Option<&'a Flag>,
    /// The id of another live flag of the project that has the requested key.
    pub key_holder: Option<i64>,
    /// The referenced flags and cohorts.
    pub references: &'a References,
    /// The referenced dashboards that exist in the project.
    pub dashboards: &'a BTreeSet<i64>,
    /// Whether an early access feature uses the flag.
    pub linked_to_early_access: bool,
}

/// The fields in a body. `Option<Option<_>>` is a nullable field: the outer `None` means absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the record, documented there")]
pub struct FlagInput {
    pub name: Option<String>,
    pub key: Option<String>,
    /// In stored form; `None` also when an update sent filters without `groups`.
    pub filters: Option<Object>,
    pub deleted: Option<bool>,
    pub active: Option<bool>,
    pub created_at: Option<DateTime<Utc>>,
    /// The version that the client edited. Only the conflict check reads it.
    pub version: Option<i64>,
    pub ensure_experience_continuity: Option<Option<bool>>,
    pub rollback_conditions: Option<Value>,
    pub performed_rollback: Option<Option<bool>>,
    /// Trimmed, lower case, sorted, without duplicates.
    pub tags: Option<Vec<String>>,
    /// Dashboards to add.
    pub analytics_dashboards: Option<Vec<i64>>,
    pub has_enriched_analytics: Option<Option<bool>>,
    pub creation_context: Option<Option<&'static str>>,
    pub is_remote_configuration: Option<Option<bool>>,
    pub has_encrypted_payloads: Option<Option<bool>>,
    pub evaluation_runtime: Option<Option<&'static str>>,
    pub bucketing_identifier: Option<Option<&'static str>>,
    pub last_called_at: Option<Option<DateTime<Utc>>>,
    /// Whether to create a usage dashboard together with the flag.
    pub should_create_usage_dashboard: bool,
}

const CREATION_CONTEXTS: [&str; 6] =
    ["feature_flags", "experiments", "surveys", "early_access_features", "web_experiments", "product_tours"];
const RUNTIMES: [&str; 3] = ["server", "client", "all"];
/// The identifier for bucketing by device.
pub const DEVICE_ID: &str = "device_id";
const BUCKETING_IDENTIFIERS: [&str; 2] = ["distinct_id", DEVICE_ID];
const NAME: TextRule = TextRule { max_chars: limits::NAME_CHARS, blank: true, trim: false };
const KEY: TextRule = TextRule { max_chars: limits::KEY_CHARS, blank: false, trim: true };

impl FlagInput {
    /// Validates a body. Every error is a 400: the first invalid field, or a rule about several fields.
    pub fn parse(
        body: &Object,
        kind: WriteKind,
        context: &ValidationContext<'_>,
    ) -> Result<Self, FieldError> {
        check_spelling(body, &known_fields::WRITABLE_FIELDS, &known_fields::IGNORED_FIELDS)?;
        let field = |name| Field::of(body, name);
        // The order of evaluation is the order in which errors are reported.
        let name = field("name").sent(|name, value| fields::string(name, value, NAME))?;
        let key = parse_key(field("key"), kind, context)?;
        let input = Self {
            name,
            filters: parse_filters(body, key.as_deref(), kind, context)?,
            key,
            deleted: field("deleted").sent(boolean)?,
            active: field("active").sent(boolean)?,
            created_at: field("created_at").sent(datetime)?,
            version: field("version").sent(|name, value| fields::integer(name, value, None))?,
            ensure_experience_continuity: field("ensure_experience_continuity").nullable(boolean)?,
            rollback_conditions: parse_rollback_conditions(body.get("rollback_conditions"))?,
            performed_rollback: field("performed_rollback").nullable(boolean)?,
            tags: field("tags").sent(|name, value| fields::tags(name, value, "A feature flag"))?,
            analytics_dashboards: field("analytics_dashboards")
                .sent(|name, value| parse_dashboards(name, value, context.dashboards))?,
            has_enriched_analytics: field("has_enriched_analytics").nullable(boolean)?,
            creation_context: field("creation_context")
                .nullable(|name, value| choice(name, value, &CREATION_CONTEXTS))?,
            is_remote_configuration: field("is_remote_configuration").nullable(boolean)?,
            has_encrypted_payloads: field("has_encrypted_payloads").nullable(boolean)?,
            evaluation_runtime: field("evaluation_runtime")
                .nullable(|name, value| choice(name, value, &RUNTIMES))?,
            bucketing_identifier: field("bucketing_identifier")
                .nullable(|name, value| choice(name, value, &BUCKETING_IDENTIFIERS))?,
            last_called_at: field("last_called_at").nullable(datetime)?,
            should_create_usage_dashboard: field("_should_create_usage_dashboard")
                .sent(boolean)?
                .unwrap_or(false),
        };
        input.check_encryption(context.stored)?;
        input.check_bucketing(context.stored)?;
        if let (WriteKind::Create, Some(filters)) = (kind, &input.filters) {
            properties::check_patterns(filters)?;
        }
        Ok(input)
    }

    /// Encrypted payloads require a remote configuration.
    fn check_encryption(&self, stored: Option<&Flag>) -> Result<(), FieldError> {
        let touched = self.has_encrypted_payloads.is_some() || self.is_remote_configuration.is_some();
        let encrypted = value_after(self.has_encrypted_payloads, stored, |flag| flag.has_encrypted_payloads);
        let remote = value_after(self.is_remote_configuration, stored, |flag| flag.is_remote_configuration);
        if touched && encrypted && !remote {
            let detail = "Encrypted payloads require the flag to be a remote configuration.";
            return Err(FieldError::general(detail));
        }
        Ok(())
    }

    /// Bucketing by device and experience continuity exclude each other; a flag that already has both keeps them.
    fn check_bucketing(&self, stored: Option<&Flag>) -> Result<(), FieldError> {
        let had_both = stored.is_some_and(|flag| {
            flag.bucketing_identifier.as_deref() == Some(DEVICE_ID)
                && flag.ensure_experience_continuity == Some(true)
        });
        let by_device = match self.bucketing_identifier {
            Some(sent) => sent == Some(DEVICE_ID),
            None => stored.is_some_and(|flag| flag.bucketing_identifier.as_deref() == Some(DEVICE_ID)),
        };
        let continuous =
            value_after(self.ensure_experience_continuity, stored, |flag| flag.ensure_experience_continuity);
        if by_device && continuous && !had_both {
            let detail = "Cannot enable 'persist across authentication steps' when using device ID bucketing. \
                          These features are incompatible.";
            return Err(FieldError::general(detail));
        }
        Ok(())
    }
}

/// The value of a boolean field after the write; null counts as false.
fn value_after(
    sent: Option<Option<bool>>,
    stored: Option<&Flag>,
    field: impl FnOnce(&Flag) -> Option<bool>,
) -> bool {
    sent.unwrap_or_else(|| stored.and_then(field)).unwrap_or(false)
}

/// Whether a flag can have this key: a valid key of a body, or the key that a deleted flag got. Other keys need no
/// look-up; keys that pass fit the key limits of the store.
pub fn is_possible_key(key: &str) -> bool {
    let mut parts = key.split(DELETED);
    let original_key = parts.next().unwrap_or_default();
    let is_id = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let of_body = !original_key.is_empty()
        && original_key.len() <= limits::KEY_CHARS
        && has_key_characters(original_key);
    of_body && key.len() <= 2 * limits::KEY_CHARS && parts.all(is_id)
}

/// Separator in the key of a deleted flag, between its former key and its id.
pub const DELETED: &str = ":deleted:";

fn has_key_characters(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn parse_key(
    field: Field<'_>,
    kind: WriteKind,
    context: &ValidationContext<'_>,
) -> Result<Option<String>, FieldError> {
    let rules = |name: &str, value: &Value| {
        let key = fields::string(name, value, KEY)?;
        if let Some(holder) = context.key_holder {
            let is_deleted = context.stored.is_some_and(|stored| stored.deleted);
            return Err(if is_deleted { key_held_by(holder) } else { key_taken() });
        }
        if !has_key_characters(&key) {
            let detail = "Only letters, numbers, hyphens (-) & underscores (_) are allowed.";
            return Err(FieldError::new(name, "invalid_key", detail));
        }
        Ok(key)
    };
    match kind {
        WriteKind::Update => field.sent(rules),
        WriteKind::Create | WriteKind::Replace => field.required(rules).map(Some),
    }
}

fn parse_filters(
    body: &Object,
    key: Option<&str>,
    kind: WriteKind,
    context: &ValidationContext<'_>,
) -> Result<Option<Object>, FieldError> {
    let sent_encrypted = Field::of(body, "has_encrypted_payloads").nullable(boolean).ok().flatten();
    let encrypted = value_after(sent_encrypted, context.stored, |flag| flag.has_encrypted_payloads);
    let filters_context = filters::Context {
        write: kind,
        own: FlagIdentity {
            id: context.stored.map(|flag| flag.id),
            key: key.or(context.stored.map(|flag| flag.key.as_str())).unwrap_or_default(),
        },
        references: context.references,
        linked_to_early_access: context.linked_to_early_access,
        masked: context.stored.filter(|_| encrypted).map(|flag| &flag.filters),
    };
    filters::parse(body.get("filters"), &filters_context)
}

/// Any JSON within the limits; null clears the field.
fn parse_rollback_conditions(value: Option<&Value>) -> Result<Option<Value>, FieldError> {
    let Some(value) = value else { return Ok(None) };
    let (name, most) = ("rollback_conditions", limits::ROLLBACK_BYTES);
    if json::depth(value) > limits::NESTING {
        let detail = format!("{name} must not be nested deeper than {} levels", limits::NESTING);
        return Err(FieldError::invalid(name, detail));
    }
    if json::text_bytes(value) > most {
        let detail = format!("{name} must not be larger than {} KiB as JSON", most / 1024);
        return Err(FieldError::invalid(name, detail));
    }
    Ok(Some(value.clone()))
}

fn parse_dashboards(name: &str, value: &Value, existing: &BTreeSet<i64>) -> Result<Vec<i64>, FieldError> {
    let sent = fields::list(name, value)?;
    if sent.len() > limits::DASHBOARDS {
        let detail = format!("A feature flag must not have more than {} dashboards.", limits::DASHBOARDS);
        return Err(FieldError::invalid(name, detail));
    }
    let mut ids = Vec::with_capacity(sent.len());
    for value in sent {
        let id = fields::integer_key(name, value)?;
        if !existing.contains(&id) {
            return Err(fields::does_not_exist(name, id));
        }
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The key belongs to another live flag of the project.
fn key_taken() -> FieldError {
    FieldError::new("key", "unique", "There is already a feature flag with this key.")
}

/// The key belongs to the live flag `id`; for a restore.
pub fn key_held_by(id: i64) -> FieldError {
    let detail = format!(
        "There is already a feature flag with this key (ID: {id}). To restore this flag, send another `key` in the \
         same request."
    );
    FieldError::new("key", "unique", detail)
}

#[cfg(test)]
mod tests;
