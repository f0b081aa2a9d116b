//! The workspace file: the declarations of an installation, in YAML or JSON.
//!
//! Every list may be absent or empty. Unknown keys are rejected, because a misspelt one would silently have no effect.

use std::path::Path;

use pennon_core::auth::KeySpec;
use pennon_core::model::project_numbers::{number, text};
use pennon_core::model::{AccessLevel, Level};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::flag_insight_specs::{FlagSpec, InsightSpec};

/// All declarations of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// Organizations.
    pub organizations: Vec<OrganizationSpec>,
    /// Users.
    pub users: Vec<UserSpec>,
    /// Projects.
    pub projects: Vec<ProjectSpec>,
    /// API keys.
    pub keys: Vec<KeySpec>,
    /// Roles.
    pub roles: Vec<RoleSpec>,
    /// Actions.
    pub actions: Vec<ActionSpec>,
    /// Cohorts.
    pub cohorts: Vec<CohortSpec>,
    /// Dashboards.
    pub dashboards: Vec<DashboardSpec>,
    /// Flags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<FlagSpec>,
    /// Insights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub insights: Vec<InsightSpec>,
}

/// An organization.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrganizationSpec {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// How far its members may edit flags; 37 when left out.
    #[serde(default = "edit")]
    pub feature_flags_access_level: AccessLevel,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    /// Number, unique in the installation.
    pub id: u64,
    /// Mail address, unique in the installation.
    pub email: String,
    /// First name.
    #[serde(default)]
    pub first_name: String,
    /// Last name.
    #[serde(default)]
    pub last_name: String,
    /// The distinct id of the user's own events; by default derived from the number.
    #[serde(default)]
    pub distinct_id: Option<String>,
    /// The user's job.
    #[serde(default)]
    pub role_at_organization: Option<String>,
    /// Whether the user's keys work.
    #[serde(default = "yes")]
    pub is_active: bool,
    /// The user's organizations.
    #[serde(default)]
    pub memberships: Vec<MembershipSpec>,
}

/// A user's membership.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MembershipSpec {
    /// The organization.
    pub organization: Uuid,
    /// `member`, `admin` or `owner`.
    #[serde(default = "member")]
    pub level: Level,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectSpec {
    /// Number, as text or number.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub id: u64,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The public token that events carry.
    pub token: String,
    /// IANA time zone.
    #[serde(default = "utc")]
    pub timezone: String,
    /// 0 Sunday, 1 Monday.
    #[serde(default)]
    pub week_start_day: Option<u8>,
    /// Property filters that leave out the team's own people.
    #[serde(default)]
    pub test_account_filters: Vec<Value>,
    /// Filters `{alias, regex}` that paths with `pathReplacements` apply to URLs and names, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path_cleaning_filters: Vec<Value>,
    /// Names of the group types, by index; at most five.
    #[serde(default)]
    pub group_types: Vec<String>,
    /// Whether distinct ids are counted in place of persons.
    #[serde(default)]
    pub aggregate_users_by_distinct_id: bool,
    /// Whether requests for flag definitions get a 402, after which SDKs drop their flags.
    #[serde(default)]
    pub feature_flag_quota_exhausted: bool,
    /// Partitions for captured events: 4, 8, 16, 32 or 64. Can only be raised; unchanged when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_partitions: Option<u8>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleSpec {
    /// Its id.
    pub id: Uuid,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What its members may do with flags; 37 when left out.
    #[serde(default = "edit")]
    pub feature_flags_access_level: AccessLevel,
    /// Mail addresses of its members.
    #[serde(default)]
    pub members: Vec<String>,
}

/// An action: a named set of event matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the project.
    pub id: u64,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// An event matches when one of these does.
    #[serde(default)]
    pub steps: Vec<Value>,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// When it was pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_at: Option<chrono::DateTime<chrono::Utc>>,
    /// Whether a message should be sent. Stored only; no message is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_to_slack: Option<bool>,
    /// The format of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_message_format: Option<String>,
    /// Mail address of its creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was created; by default when it was first declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// A cohort: a set of persons by rule or by list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CohortSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the project.
    pub id: u64,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The rule.
    #[serde(default)]
    pub filters: Option<Value>,
    /// The older form of a rule.
    #[serde(default)]
    pub groups: Option<Value>,
    /// Whether its members are listed.
    #[serde(default)]
    pub is_static: bool,
    /// The listed members.
    #[serde(default)]
    pub distinct_ids: Vec<String>,
    /// Members that are listed as persons, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub person_ids: Vec<Uuid>,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Mail address of its creator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was created; by default when it was first declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// A dashboard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DashboardSpec {
    /// The project.
    #[serde(deserialize_with = "number", serialize_with = "text")]
    pub project: u64,
    /// Number, unique in the project.
    pub id: u64,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Filters that its insights take over.
    #[serde(default)]
    pub filters: Option<Value>,
    /// 21: all members can edit; 37: only collaborators.
    #[serde(default = "edit_level_number")]
    pub restriction_level: u8,
    /// Mail address of its creator.
    #[serde(default)]
    pub created_by: Option<String>,
    /// Whether it was removed.
    #[serde(default)]
    pub deleted: bool,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether lists show it before others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// Tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// How it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_mode: Option<String>,
    /// The insights that were created with it, by purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<Value>,
    /// When it was created; by default when it was first declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Workspace {
    /// Reads a file; the error has the position of a mistake.
    pub fn read(path: &Path) -> Result<Workspace, String> {
        let text =
            std::fs::read_to_string(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        Workspace::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Parses YAML, or JSON if the text starts with a brace.
    pub fn parse(text: &str) -> Result<Workspace, String> {
        if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| e.to_string())
        } else {
            // Without the snippet of the file, which may contain a key.
            serde_saphyr::from_str(text).map_err(|e| e.without_snippet().to_string())
        }
    }
}

fn yes() -> bool {
    true
}

fn utc() -> String {
    "UTC".to_owned()
}

fn edit() -> AccessLevel {
    AccessLevel::Edit
}

fn member() -> Level {
    Level::Member
}

fn edit_level_number() -> u8 {
    21
}
