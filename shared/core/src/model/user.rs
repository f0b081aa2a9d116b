//! Users.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::membership::Membership;
use super::organization::Level;
use crate::clock::timestamp;

/// A user, as in records and responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's id.
    pub id: u64,
    /// Derived from the id, so that it is the same in every snapshot.
    pub uuid: Uuid,
    /// The distinct id of this user's own events.
    pub distinct_id: String,
    /// First name, possibly empty.
    pub first_name: String,
    /// Last name, possibly empty.
    pub last_name: String,
    /// Mail address; unique per installation.
    pub email: String,
    /// Not known to Pennon; part of PostHog's response.
    pub is_email_verified: Option<bool>,
    /// Not known to Pennon; part of PostHog's response.
    pub hedgehog_config: Option<Value>,
    /// Free text.
    pub role_at_organization: Option<String>,
}

/// A user as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserRecord {
    /// The public part.
    pub user: User,
    /// Whether the user's API keys work.
    pub is_active: bool,
    /// The user's memberships.
    pub memberships: Vec<Membership>,
    /// Creation time.
    pub created_at: DateTime<Utc>,
}

impl UserRecord {
    /// The user's level in `organization`; `None` without a membership.
    pub fn level_in(&self, organization: Uuid) -> Option<Level> {
        let membership =
            self.memberships.iter().find(|membership| membership.organization == organization)?;
        Some(membership.level)
    }
}

/// The JSON of a user's membership of `organization` in responses. Its id is derived from both, so that it is stable.
pub fn organization_member(organization: Uuid, user: &User, level: Level, joined_at: DateTime<Utc>) -> Value {
    let joined_at = timestamp(joined_at);
    json!({
        "id": Uuid::new_v5(&organization, format!("organization membership/{}", user.id).as_bytes()),
        "user": user,
        "level": level.number(),
        "joined_at": joined_at,
        "updated_at": joined_at,
    })
}
