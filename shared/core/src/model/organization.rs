//! Organizations, and the levels of their members.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a member may do.
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
    /// The number by which answers call the level.
    pub fn number(self) -> u8 {
        match self {
            Level::Member => 1,
            Level::Admin => 8,
            Level::Owner => 15,
        }
    }

    /// Whether it is above an ordinary member.
    pub fn is_admin(self) -> bool {
        self >= Level::Admin
    }
}

/// How far flags may be edited: 21 view, 35 view by default, 37 edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum AccessLevel {
    /// May only look.
    View,
    /// May look, and edit what a role opens.
    ViewByDefault,
    /// May edit.
    Edit,
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
            other => Err(format!("{other} is no access level; use 21, 35 or 37")),
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
    /// How far its members may edit flags.
    pub feature_flags_access_level: AccessLevel,
    /// When the record was made.
    pub created_at: DateTime<Utc>,
}
