//! Validates the body of a create or an update of a flag.
//!
//! Must stay true: of several invalid fields the first in [`FLAG_FIELDS`] is reported; rules about several fields run only
//! when each field is valid. Absent, null and present are distinct: an absent field never changes a
//! record.

use std::collections::BTreeSet;

use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule, boolean, choice};
use pennon_filters::body::json::{self, Object};
use pennon_filters::body::spelling::check_spelling;
use serde_json::Value;

use super::field_table::FLAG_FIELDS;
use super::filters;
use super::{Flag, known_fields};
use crate::conditions::properties;
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

/// The stored data that validation needs; see [`crate::flag::body_references`] for what to load.
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

/// A body that passed validation.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagInput {
    /// The values that were sent, in stored form; the other fields have the defaults of a new flag. Of dashboards only
    /// those to add.
    pub values: Flag,
    /// The names of the fields that were sent. An update that sent filters without `groups` sent none.
    sent: BTreeSet<&'static str>,
    /// The version that the client edited. Only the conflict check reads it.
    pub version: Option<i64>,
    /// Whether to create a usage dashboard together with the flag.
    pub should_create_usage_dashboard: bool,
}

impl Default for FlagInput {
    fn default() -> Self {
        Self {
            values: Flag::with_defaults(),
            sent: BTreeSet::new(),
            version: None,
            should_create_usage_dashboard: false,
        }
    }
}

/// The identifier for bucketing by device.
pub const DEVICE_ID: &str = "device_id";
const KEY: TextRule = TextRule { max_chars: limits::KEY_CHARS, blank: false, trim: true };

impl FlagInput {
    /// Validates a body. Every error is a 400: the first invalid field, or a rule about several fields.
    pub fn parse(
        body: &Object,
        kind: WriteKind,
        context: &ValidationContext<'_>,
    ) -> Result<Self, FieldError> {
        check_spelling(body, known_fields::writable(), known_fields::ignored())?;
        let mut input = Self::default();
        for field in &FLAG_FIELDS {
            let Some(parse) = field.write.parse() else { continue };
            let sent = SentField { field: BodyField::of(body, field.name), body, kind, context };
            if parse(&sent, &mut input)? {
                input.sent.insert(field.name);
            }
        }
        input.check_encryption(context.stored)?;
        input.check_bucketing(context.stored)?;
        if kind == WriteKind::Create && input.is_sent("filters") {
            properties::check_patterns(&input.values.filters)?;
        }
        Ok(input)
    }

    /// Whether the field `name` was sent.
    pub fn is_sent(&self, name: &str) -> bool {
        self.sent.contains(name)
    }

    /// The flag that has the value of the field `name` after the write.
    fn source<'a>(&'a self, name: &str, stored: Option<&'a Flag>) -> &'a Flag {
        stored.filter(|_| !self.is_sent(name)).unwrap_or(&self.values)
    }

    /// Encrypted payloads require a remote configuration.
    fn check_encryption(&self, stored: Option<&Flag>) -> Result<(), FieldError> {
        let (encrypted, remote) = ("has_encrypted_payloads", "is_remote_configuration");
        let is_touched = self.is_sent(encrypted) || self.is_sent(remote);
        let is_encrypted = self.source(encrypted, stored).is_encrypted();
        let is_remote = self.source(remote, stored).is_remote_configuration == Some(true);
        if is_touched && is_encrypted && !is_remote {
            let detail = "Encrypted payloads require the flag to be a remote configuration.";
            return Err(FieldError::general(detail));
        }
        Ok(())
    }

    /// Bucketing by device and experience continuity exclude each other; a flag that already has both keeps them.
    fn check_bucketing(&self, stored: Option<&Flag>) -> Result<(), FieldError> {
        let by_device = |flag: &Flag| flag.bucketing_identifier.as_deref() == Some(DEVICE_ID);
        let is_continuous = |flag: &Flag| flag.ensure_experience_continuity == Some(true);
        let had_both = stored.is_some_and(|flag| by_device(flag) && is_continuous(flag));
        let has_both = by_device(self.source("bucketing_identifier", stored))
            && is_continuous(self.source("ensure_experience_continuity", stored));
        if has_both && !had_both {
            let detail = "Cannot enable 'persist across authentication steps' when using device ID bucketing. \
                          These features are incompatible.";
            return Err(FieldError::general(detail));
        }
        Ok(())
    }
}

/// A field of a body, with everything that its validation may read.
#[derive(Debug, Clone, Copy)]
pub struct SentField<'a> {
    field: BodyField<'a>,
    body: &'a Object,
    kind: WriteKind,
    context: &'a ValidationContext<'a>,
}

impl SentField<'_> {
    /// Parses an optional field that must not be null into `target`. False if it was not sent.
    pub fn not_null<T>(
        &self,
        parse: impl FnOnce(&str, &Value) -> Result<T, FieldError>,
        target: &mut T,
    ) -> Result<bool, FieldError> {
        Ok(set_if_sent(target, self.field.sent(parse)?))
    }

    /// Parses an optional field that may be null into `target`. False if it was not sent.
    pub fn nullable<T>(
        &self,
        parse: impl FnOnce(&str, &Value) -> Result<T, FieldError>,
        target: &mut Option<T>,
    ) -> Result<bool, FieldError> {
        Ok(set_if_sent(target, self.field.nullable(parse)?))
    }
}

fn set_if_sent<T>(target: &mut T, sent: Option<T>) -> bool {
    let is_sent = sent.is_some();
    if let Some(sent) = sent {
        *target = sent;
    }
    is_sent
}

/// A parser of one of `choices`.
pub fn one_of(choices: &'static [&'static str]) -> impl FnOnce(&str, &Value) -> Result<String, FieldError> {
    |name, value| choice(name, value, choices).map(str::to_owned)
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

/// Validates the key, which a create and a replacement require.
pub fn parse_key(sent: &SentField<'_>, input: &mut FlagInput) -> Result<bool, FieldError> {
    let context = sent.context;
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
    let key = match sent.kind {
        WriteKind::Update => sent.field.sent(rules)?,
        WriteKind::Create | WriteKind::Replace => Some(sent.field.required(rules)?),
    };
    Ok(set_if_sent(&mut input.values.key, key))
}

/// Validates the filters. The key was parsed before.
pub fn parse_filters(sent: &SentField<'_>, input: &mut FlagInput) -> Result<bool, FieldError> {
    let context = sent.context;
    let sent_encrypted = BodyField::of(sent.body, "has_encrypted_payloads").nullable(boolean).ok().flatten();
    let is_encrypted = match sent_encrypted {
        Some(sent) => sent == Some(true),
        None => context.stored.is_some_and(Flag::is_encrypted),
    };
    let key = Some(&input.values.key).filter(|key| !key.is_empty()).or(context.stored.map(|flag| &flag.key));
    let filters_context = filters::FilterContext {
        write: sent.kind,
        own: FlagIdentity {
            id: context.stored.map(|flag| flag.id),
            key: key.map(String::as_str).unwrap_or_default(),
        },
        references: context.references,
        linked_to_early_access: context.linked_to_early_access,
        masked: context.stored.filter(|_| is_encrypted).map(|flag| &flag.filters),
    };
    let filters = filters::parse(sent.body.get("filters"), &filters_context)?;
    Ok(set_if_sent(&mut input.values.filters, filters))
}

/// Any JSON within the limits; null clears the field.
pub fn parse_rollback_conditions(sent: &SentField<'_>, input: &mut FlagInput) -> Result<bool, FieldError> {
    let most = limits::ROLLBACK_BYTES;
    let rules = |name: &str, value: &Value| {
        if json::depth(value) > limits::NESTING {
            let detail = format!("{name} must not be nested deeper than {} levels", limits::NESTING);
            return Err(FieldError::invalid(name, detail));
        }
        if json::text_bytes(value) > most {
            let detail = format!("{name} must not be larger than {} KiB as JSON", most / 1024);
            return Err(FieldError::invalid(name, detail));
        }
        Ok(value.clone())
    };
    let conditions = sent.field.nullable(rules)?.map(Option::unwrap_or_default);
    Ok(set_if_sent(&mut input.values.rollback_conditions, conditions))
}

/// The ids of existing dashboards, to add to those of the flag.
pub fn parse_dashboards(sent: &SentField<'_>, input: &mut FlagInput) -> Result<bool, FieldError> {
    let existing = sent.context.dashboards;
    let rules = |name: &str, value: &Value| {
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
    };
    sent.not_null(rules, &mut input.values.analytics_dashboards)
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
