//! The stored record of a flag, and how a judged body makes or changes one.
//!
//! Must stay true: a write changes only fields that were sent, raises the version by one, and never needs to be judged
//! again. Instants are whole microseconds.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FieldError, FlagInput, filters, json::Object, timestamp};

/// A user as records show him: a snapshot of the moment of the write.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "plain data of the contract's user object, in its order")]
pub struct UserRef {
    pub id: i64,
    pub uuid: String,
    pub distinct_id: String,
    #[serde(default)]
    pub first_name: String,
    #[serde(default)]
    pub last_name: String,
    pub email: String,
    #[serde(default)]
    pub is_email_verified: Option<bool>,
    #[serde(default)]
    pub hedgehog_config: Option<Value>,
    #[serde(default)]
    pub role_at_organization: Option<String>,
}

/// A flag as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flag {
    /// Unique over the installation, never given twice.
    pub id: i64,
    /// The name that code asks for; unique among the live flags of a project.
    pub key: String,
    /// A description.
    #[serde(default)]
    pub name: String,
    /// Conditions, variants and payloads; empty when none were ever sent.
    #[serde(default)]
    pub filters: Object,
    /// Soft deletion.
    #[serde(default)]
    pub deleted: bool,
    /// Switched on.
    pub active: bool,
    /// Who made it.
    #[serde(default)]
    pub created_by: Option<UserRef>,
    /// When it was made, or what the client said so.
    #[serde(with = "timestamp")]
    pub created_at: DateTime<Utc>,
    /// When it was last written.
    #[serde(with = "timestamp")]
    pub updated_at: DateTime<Utc>,
    /// 1 after the create, one more after each update.
    pub version: i64,
    /// Who wrote it last.
    #[serde(default)]
    pub last_modified_by: Option<UserRef>,
    /// Keep a person's value across a login.
    #[serde(default)]
    pub ensure_experience_continuity: Option<bool>,
    /// Free-form, kept for clients.
    #[serde(default)]
    pub rollback_conditions: Value,
    /// Kept for clients; false after a write that switched the flag on.
    #[serde(default)]
    pub performed_rollback: Option<bool>,
    /// Sorted, lower-case, each once.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The dashboard generated for the flag.
    #[serde(default)]
    pub usage_dashboard: Option<i64>,
    /// Dashboards linked by clients, in order of linking.
    #[serde(default)]
    pub analytics_dashboards: Vec<i64>,
    /// Whether the application sends enriched analytics for it.
    #[serde(default)]
    pub has_enriched_analytics: Option<bool>,
    /// Which part of a product made it.
    #[serde(default)]
    pub creation_context: Option<String>,
    /// Whether its payload is all that matters.
    #[serde(default)]
    pub is_remote_configuration: Option<bool>,
    /// Whether its payload is secret.
    #[serde(default)]
    pub has_encrypted_payloads: Option<bool>,
    /// Where it may be evaluated: `server`, `client` or `all`.
    #[serde(default)]
    pub evaluation_runtime: Option<String>,
    /// What is hashed: `distinct_id` or `device_id`.
    #[serde(default)]
    pub bucketing_identifier: Option<String>,
    /// When an application last asked for it.
    #[serde(default, with = "timestamp::nullable")]
    pub last_called_at: Option<DateTime<Utc>>,
}

impl Flag {
    /// A new flag. The only error is an input without a key, which no judged create has.
    pub fn create(
        id: i64,
        input: &FlagInput,
        now: DateTime<Utc>,
        user: &UserRef,
    ) -> Result<Self, FieldError> {
        let key = input.key.clone().ok_or_else(|| FieldError::required("key"))?;
        let now = timestamp::truncate(now);
        let mut flag = Self {
            id,
            key,
            name: String::new(),
            filters: Object::new(),
            deleted: false,
            active: true,
            created_by: Some(user.clone()),
            created_at: now,
            updated_at: now,
            version: 1,
            last_modified_by: Some(user.clone()),
            ensure_experience_continuity: Some(false),
            rollback_conditions: Value::Null,
            performed_rollback: None,
            tags: Vec::new(),
            usage_dashboard: None,
            analytics_dashboards: Vec::new(),
            has_enriched_analytics: Some(false),
            creation_context: Some("feature_flags".to_owned()),
            is_remote_configuration: Some(false),
            has_encrypted_payloads: Some(false),
            evaluation_runtime: Some("all".to_owned()),
            bucketing_identifier: Some("distinct_id".to_owned()),
            last_called_at: None,
        };
        flag.take(input);
        Ok(flag)
    }

    /// The flag after an update by `user`; it gets a new version even when no field was sent.
    pub fn apply(&self, input: &FlagInput, now: DateTime<Utc>, user: &UserRef) -> Self {
        let mut flag = self.clone();
        flag.take(input);
        flag.version = self.version.saturating_add(1);
        flag.updated_at = timestamp::truncate(now);
        flag.last_modified_by = Some(user.clone());
        if flag.key != self.key {
            flag.rename_enrolment();
        }
        flag
    }

    fn take(&mut self, input: &FlagInput) {
        set(&mut self.name, &input.name);
        set(&mut self.key, &input.key);
        set(&mut self.filters, &input.filters);
        set(&mut self.deleted, &input.deleted);
        set(&mut self.active, &input.active);
        set(&mut self.created_at, &input.created_at);
        set(&mut self.ensure_experience_continuity, &input.ensure_experience_continuity);
        set(&mut self.rollback_conditions, &input.rollback_conditions);
        set(&mut self.performed_rollback, &input.performed_rollback);
        set(&mut self.tags, &input.tags);
        for id in input.analytics_dashboards.iter().flatten() {
            if !self.analytics_dashboards.contains(id) {
                self.analytics_dashboards.push(*id);
            }
        }
        set(&mut self.has_enriched_analytics, &input.has_enriched_analytics);
        set_text(&mut self.creation_context, input.creation_context);
        set(&mut self.is_remote_configuration, &input.is_remote_configuration);
        set(&mut self.has_encrypted_payloads, &input.has_encrypted_payloads);
        set_text(&mut self.evaluation_runtime, input.evaluation_runtime);
        set_text(&mut self.bucketing_identifier, input.bucketing_identifier);
        set(&mut self.last_called_at, &input.last_called_at);
        if input.active == Some(true) {
            self.performed_rollback = Some(false);
        }
    }

    /// Whether its payloads are secret.
    pub fn is_encrypted(&self) -> bool {
        self.has_encrypted_payloads == Some(true)
    }

    /// The properties by which people enrol in the flag carry its key.
    fn rename_enrolment(&mut self) {
        const ENROLMENT: &str = "$feature_enrollment/";
        let renamed = Value::String(format!("{ENROLMENT}{}", self.key));
        filters::for_each_property_of(&mut self.filters, "super_groups", &mut |property| {
            if property.get("key").and_then(Value::as_str).is_some_and(|key| key.starts_with(ENROLMENT)) {
                property.insert("key".to_owned(), renamed.clone());
            }
        });
    }
}

fn set<T: Clone>(field: &mut T, sent: &Option<T>) {
    if let Some(sent) = sent {
        field.clone_from(sent);
    }
}

fn set_text(field: &mut Option<String>, sent: Option<Option<&'static str>>) {
    if let Some(sent) = sent {
        *field = sent.map(str::to_owned);
    }
}

#[cfg(test)]
mod tests;
