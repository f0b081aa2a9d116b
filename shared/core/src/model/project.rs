//! Projects.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::organization::AccessLevel;

/// A project's settings, with a snapshot of what its organization says about flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// Its number.
    pub id: u64,
    /// Its UUID.
    pub uuid: Uuid,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    pub name: String,
    /// The public token that events carry.
    pub token: String,
    /// IANA name of its time zone.
    pub timezone: String,
    /// 0 when weeks start on Sunday, 1 on Monday; Sunday when absent.
    pub week_start_day: Option<u8>,
    /// Property filters that leave out the team's own people.
    pub test_account_filters: Vec<Value>,
    /// Names of the group types, by index.
    pub group_types: Vec<String>,
    /// Whether distinct ids are counted in place of persons.
    pub aggregate_users_by_distinct_id: bool,
    /// How far the organization's members may edit flags.
    pub feature_flags_access_level: AccessLevel,
    /// Whether polls for flag definitions are refused because their quota is used up.
    #[serde(default)]
    pub feature_flag_quota_exhausted: bool,
    /// When the record was made.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// What a project token leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The project's number.
    pub project: u64,
}
