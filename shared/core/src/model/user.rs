//! Users.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::organization::Level;
use crate::auth::Membership;
use crate::clock::timestamp;

/// A user as records and answers show one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Number of the user.
    pub id: u64,
    /// Derived from the number, so that it is the same in every snapshot.
    pub uuid: Uuid,
    /// The id under which events of this user come.
    pub distinct_id: String,
    /// First name, possibly empty.
    pub first_name: String,
    /// Last name, possibly empty.
    pub last_name: String,
    /// Mail address; unique in an installation.
    pub email: String,
    /// Unknown here.
    pub is_email_verified: Option<bool>,
    /// Unknown here.
    pub hedgehog_config: Option<Value>,
    /// What the user does, in free words.
    pub role_at_organization: Option<String>,
}

/// A user as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserRecord {
    /// What is shown.
    pub user: User,
    /// Whether the user's keys work.
    pub is_active: bool,
    /// The user's organizations.
    pub memberships: Vec<Membership>,
    /// When the record was made.
    pub created_at: DateTime<Utc>,
}

impl UserRecord {
    /// What the user may do in `organization`; none for one who does not belong to it.
    pub fn level_in(&self, organization: Uuid) -> Option<Level> {
        let membership =
            self.memberships.iter().find(|membership| membership.organization == organization)?;
        Some(membership.level)
    }
}

/// A user as a member of `organization`, as answers show one. The id is derived from both, so that every answer has the
/// same.
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
