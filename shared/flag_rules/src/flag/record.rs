//! The stored record of a flag, and how a validated body creates or changes it.
//!
//! Must stay true: a write changes only fields that were sent, raises the version by one, and needs no further
//! validation. Instants are whole microseconds.

use chrono::{DateTime, Utc};
use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FlagInput;
use super::field_table::{FLAG_FIELDS, FieldWrite};
use crate::calls::{CallTimes, CalledFlag};
use crate::conditions::filters;

/// A snapshot of a user at the time of the write.
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

/// A flag as stored. What the API does with a field is in [`FLAG_FIELDS`], which must have a row for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flag {
    /// Unique in the installation, never reused.
    pub id: i64,
    /// The identifier in application code; unique among the live flags of a project.
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
    /// Whether it is enabled.
    pub active: bool,
    /// The user who created it.
    #[serde(default)]
    pub created_by: Option<UserRef>,
    /// When it was created, or the time that the client sent.
    #[serde(with = "timestamp")]
    pub created_at: DateTime<Utc>,
    /// When it was last written.
    #[serde(with = "timestamp")]
    pub updated_at: DateTime<Utc>,
    /// 1 after the create, one more after each update.
    pub version: i64,
    /// The user who wrote it last.
    #[serde(default)]
    pub last_modified_by: Option<UserRef>,
    /// Experience continuity: a person keeps the value across a login.
    #[serde(default)]
    pub ensure_experience_continuity: Option<bool>,
    /// Free-form; stored for clients and not evaluated.
    #[serde(default)]
    pub rollback_conditions: Value,
    /// Stored for clients; false after a write that enabled the flag.
    #[serde(default)]
    pub performed_rollback: Option<bool>,
    /// Sorted, lower case, without duplicates.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The generated usage dashboard.
    #[serde(default)]
    pub usage_dashboard: Option<i64>,
    /// Dashboards linked by clients, in order of linking.
    #[serde(default)]
    pub analytics_dashboards: Vec<i64>,
    /// Whether the application sends enriched analytics for it.
    #[serde(default)]
    pub has_enriched_analytics: Option<bool>,
    /// The part of the product that created it.
    #[serde(default)]
    pub creation_context: Option<String>,
    /// Whether it is a remote configuration: only its payload matters.
    #[serde(default)]
    pub is_remote_configuration: Option<bool>,
    /// Whether its payloads are encrypted.
    #[serde(default)]
    pub has_encrypted_payloads: Option<bool>,
    /// Where it may be evaluated: `server`, `client` or `all`.
    #[serde(default)]
    pub evaluation_runtime: Option<String>,
    /// The identifier that is hashed: `distinct_id` or `device_id`.
    #[serde(default)]
    pub bucketing_identifier: Option<String>,
    /// When an application last called it.
    #[serde(default, with = "timestamp::nullable")]
    pub last_called_at: Option<DateTime<Utc>>,
}

impl Flag {
    /// Creates a flag. The only error is a missing key, which a validated create always has.
    pub fn create(
        id: i64,
        input: &FlagInput,
        now: DateTime<Utc>,
        user: &UserRef,
    ) -> Result<Self, FieldError> {
        if !input.is_sent("key") {
            return Err(FieldError::required("key"));
        }
        let now = timestamp::truncate(now);
        let mut flag = Self {
            id,
            created_by: Some(user.clone()),
            created_at: now,
            updated_at: now,
            last_modified_by: Some(user.clone()),
            ..Self::with_defaults()
        };
        flag.apply_input(input);
        Ok(flag)
    }

    /// A flag with the defaults of a new one, without id, key, user and time.
    pub(super) fn with_defaults() -> Self {
        Self {
            id: 0,
            key: String::new(),
            name: String::new(),
            filters: Object::new(),
            deleted: false,
            active: true,
            created_by: None,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
            version: 1,
            last_modified_by: None,
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
        }
    }

    /// Returns the flag after an update by `user`; the version is raised even when no field was sent.
    pub fn apply(&self, input: &FlagInput, now: DateTime<Utc>, user: &UserRef) -> Self {
        let mut flag = self.clone();
        flag.apply_input(input);
        flag.version = self.version.saturating_add(1);
        flag.updated_at = timestamp::truncate(now);
        flag.last_modified_by = Some(user.clone());
        if flag.key != self.key {
            flag.rename_enrollment_property();
        }
        flag
    }

    fn apply_input(&mut self, input: &FlagInput) {
        for field in FLAG_FIELDS.iter().filter(|field| input.is_sent(field.name)) {
            if let FieldWrite::Stored { apply, .. } = field.write {
                apply(self, &input.values);
            }
        }
        if input.is_sent("active") && input.values.active {
            self.performed_rollback = Some(false);
        }
    }

    /// Links the dashboards of `values` that are not linked yet.
    pub(super) fn add_dashboards(&mut self, values: &Flag) {
        for id in &values.analytics_dashboards {
            if !self.analytics_dashboards.contains(id) {
                self.analytics_dashboards.push(*id);
            }
        }
    }

    /// Whether its payloads are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.has_encrypted_payloads == Some(true)
    }

    /// Renames the enrollment property of early access, which contains the flag key.
    fn rename_enrollment_property(&mut self) {
        const ENROLLMENT_PREFIX: &str = "$feature_enrollment/";
        let renamed = Value::String(format!("{ENROLLMENT_PREFIX}{}", self.key));
        filters::for_each_property_of(&mut self.filters, "super_groups", &mut |property| {
            if property
                .get("key")
                .and_then(Value::as_str)
                .is_some_and(|key| key.starts_with(ENROLLMENT_PREFIX))
            {
                property.insert("key".to_owned(), renamed.clone());
            }
        });
    }
}

impl Flag {
    /// The time of the last call, from its record and `calls`.
    pub fn latest_call(&self, calls: &CallTimes) -> Option<DateTime<Utc>> {
        let (deleted, recorded) = (self.deleted, self.last_called_at);
        calls.last_called_at(CalledFlag { id: self.id, key: &self.key, deleted, recorded })
    }
}

#[cfg(test)]
mod tests;
