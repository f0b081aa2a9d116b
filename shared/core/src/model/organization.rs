//! Organizations, and the levels of their members.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The role of a member in an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Uses projects.
    Member,
    /// Administers projects.
    Admin,
    /// Owns the organization.
    Owner,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 3] = [Level::Member, Level::Admin, Level::Owner];

    /// The level's number in responses.
    pub fn number(self) -> u8 {
        match self {
            Level::Member => 1,
            Level::Admin => 8,
            Level::Owner => 15,
        }
    }

    /// Whether the level is admin or owner.
    pub fn is_admin(self) -> bool {
        self >= Level::Admin
    }
}

/// The access level for flags: 21 view, 35 view by default, 37 edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum AccessLevel {
    /// Read only.
    View,
    /// Read only, except flags that a role may edit.
    ViewByDefault,
    /// Read and write.
    Edit,
}

impl AccessLevel {
    /// All levels, the lowest first.
    pub const ALL: [AccessLevel; 3] = [AccessLevel::View, AccessLevel::ViewByDefault, AccessLevel::Edit];
}

impl From<AccessLevel> for u8 {
    fn from(level: AccessLevel) -> u8 {
        match level {
            AccessLevel::View => 21,
            AccessLevel::ViewByDefault => 35,
            AccessLevel::Edit => 37,
        }
    }
}

impl TryFrom<u8> for AccessLevel {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            21 => Ok(AccessLevel::View),
            35 => Ok(AccessLevel::ViewByDefault),
            37 => Ok(AccessLevel::Edit),
            other => Err(format!("{other} is not an access level; use 21, 35 or 37")),
        }
    }
}

/// An organization as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The access level of its members for flags.
    pub feature_flags_access_level: AccessLevel,
    /// Creation time.
    pub created_at: DateTime<Utc>,
}
