//! Personal API keys. The secret is stored nowhere: a key is found by its SHA-256.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::model::{AccessLevel, Level, User};
use crate::store::{Item, StoreError};

/// The lookup form of a key: lower-case hexadecimal SHA-256 of its text, unsalted, after `sha256$`.
pub fn hash_key(key: &str) -> String {
    hash_bytes(key.as_bytes())
}

/// The same of any bytes.
pub fn hash_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(71);
    text.push_str("sha256$");
    for byte in Sha256::digest(bytes) {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What may be shown of a key: its first and last four characters.
pub fn mask_key(key: &str) -> String {
    let characters: Vec<char> = key.chars().collect();
    if characters.len() < 12 {
        return "...".to_owned();
    }
    let first: String = characters[..4].iter().collect();
    let last: String = characters[characters.len() - 4..].iter().collect();
    format!("{first}...{last}")
}

/// That a user belongs to an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The organization.
    pub organization: Uuid,
    /// What the user may do there.
    pub level: Level,
}

/// That a user has a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMembership {
    /// The organization of the role.
    pub organization: Uuid,
    /// The role.
    pub role: Uuid,
    /// What the role may do with flags.
    pub level: AccessLevel,
}

/// A stored key, with a snapshot of its user, so that one read tells who calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// A name for people.
    pub label: String,
    /// The shown part of the key.
    pub mask: String,
    /// Whose key it is.
    pub user: User,
    /// Whether the user may call at all.
    pub is_active: bool,
    /// What it allows.
    pub scopes: Vec<String>,
    /// The projects that it is limited to; none is no limit.
    pub projects: Vec<u64>,
    /// The organizations that it is limited to; none is no limit.
    pub organizations: Vec<Uuid>,
    /// The user's organizations.
    pub memberships: Vec<Membership>,
    /// The user's roles.
    pub roles: Vec<RoleMembership>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it stops working, if ever.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was last used, to the hour; kept beside the record, so that noting it does not rewrite the rest.
    #[serde(skip)]
    pub last_used_at: Option<DateTime<Utc>>,
}

impl KeyRecord {
    /// The key in `item`.
    pub fn read(item: &Item) -> Result<KeyRecord, StoreError> {
        let last_used_at = (item.count > 0).then(|| DateTime::from_timestamp(item.count, 0)).flatten();
        Ok(KeyRecord { last_used_at, ..item.body()? })
    }

    /// Whether it may be used at `now`.
    pub fn is_live(&self, now: DateTime<Utc>) -> bool {
        self.is_active && self.expires_at.is_none_or(|end| now < end)
    }

    /// The user's membership of `organization`.
    pub fn level_in(&self, organization: Uuid) -> Option<Level> {
        self.memberships
            .iter()
            .find(|membership| membership.organization == organization)
            .map(|found| found.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_as_the_contract_hashes_it() {
        let hash = "sha256$45af89b510a3279a817f851de5d3f95b73485d58ec2672a39e52d8aeeb014059";
        assert_eq!(hash_key("test_key_12345"), hash);
    }

    #[test]
    fn a_mask_shows_four_characters_at_each_end() {
        assert_eq!(mask_key("phx_0123456789Ab3d"), "phx_...Ab3d");
        assert_eq!(mask_key("short"), "...");
    }
}
