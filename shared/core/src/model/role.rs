//! Roles of an organization.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::organization::{AccessLevel, Level};
use super::user::User;

/// A role as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// Its id.
    pub id: Uuid,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    pub name: String,
    /// What its members may do with flags.
    pub feature_flags_access_level: AccessLevel,
    /// When the record was made.
    pub created_at: DateTime<Utc>,
    /// Who has it.
    pub members: Vec<RoleMember>,
}

/// A user who has a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleMember {
    /// The user.
    pub user: User,
    /// What the user may do in the organization.
    pub level: Level,
    /// Since when.
    pub joined_at: DateTime<Utc>,
}
