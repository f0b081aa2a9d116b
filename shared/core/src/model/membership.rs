//! Memberships of a user in organizations and roles.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::organization::{AccessLevel, Level};

/// A user's membership of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The organization.
    pub organization: Uuid,
    /// The user's level there.
    pub level: Level,
}

/// A user's role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMembership {
    /// The organization of the role.
    pub organization: Uuid,
    /// The role.
    pub role: Uuid,
    /// The role's access level for flags.
    pub level: AccessLevel,
}
