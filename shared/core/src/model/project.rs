//! Projects.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::organization::AccessLevel;

/// A project's settings, with a snapshot of its organization's access level for flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// Its id.
    pub id: u64,
    /// Its UUID.
    pub uuid: Uuid,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    pub name: String,
    /// The public token in events.
    pub token: String,
    /// IANA name of its time zone.
    pub timezone: String,
    /// 0 if weeks start on Sunday, 1 on Monday; Sunday if `None`.
    pub week_start_day: Option<u8>,
    /// Property filters that exclude internal users.
    pub test_account_filters: Vec<Value>,
    /// Path cleaning filters `{"alias", "regex"}`, in the order in which paths apply them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_cleaning_filters: Vec<Value>,
    /// Names of the group types, by index.
    pub group_types: Vec<String>,
    /// Whether unique users are counted by distinct id instead of by person.
    pub aggregate_users_by_distinct_id: bool,
    /// The access level of the organization's members for flags.
    pub feature_flags_access_level: AccessLevel,
    /// Whether requests for flag definitions are rejected because the quota is exhausted.
    #[serde(default)]
    pub feature_flag_quota_exhausted: bool,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

/// The row of a project token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The project's id.
    pub project: u64,
}
