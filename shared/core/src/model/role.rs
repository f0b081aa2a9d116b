//! Roles of an organization.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::organization::{AccessLevel, Level};
use super::user::{User, organization_member};
use crate::clock::timestamp;

/// A role as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// Its id.
    pub id: Uuid,
    /// The organization that it belongs to.
    pub organization: Uuid,
    /// Its name.
    pub name: String,
    /// The access level of its members for flags.
    pub feature_flags_access_level: AccessLevel,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// The users with this role.
    pub members: Vec<RoleMember>,
}

/// A user who has a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleMember {
    /// The user.
    pub user: User,
    /// The user's level in the organization.
    pub level: Level,
    /// When the user got the role.
    pub joined_at: DateTime<Utc>,
}

impl Role {
    /// The role's JSON in responses.
    pub fn to_response(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "feature_flags_access_level": u8::from(self.feature_flags_access_level),
            "created_at": timestamp(self.created_at),
            "created_by": null,
            "members": self.members.iter().map(|member| self.member(member)).collect::<Vec<_>>(),
        })
    }

    fn member(&self, member: &RoleMember) -> Value {
        let RoleMember { user, level, joined_at } = member;
        let joined_at_text = timestamp(*joined_at);
        json!({
            "id": Uuid::new_v5(&self.id, format!("role membership/{}", user.id).as_bytes()),
            "role_id": self.id,
            "organization_member": organization_member(self.organization, user, *level, *joined_at),
            "user": user,
            "joined_at": joined_at_text,
            "updated_at": joined_at_text,
        })
    }
}
