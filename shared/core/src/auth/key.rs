//! Personal API keys. The secret itself is not stored: a key is looked up by its SHA-256.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::model::{Level, Membership, RoleMembership, User};
use crate::store::{Item, StoreError};

/// The lookup form of a key: `sha256$` and the unsalted SHA-256 in lower-case hexadecimal.
pub fn hash_key(key: &str) -> String {
    hash_bytes(key.as_bytes())
}

/// As [`hash_key`], for any bytes.
pub fn hash_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(71);
    text.push_str("sha256$");
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The key of a request that a command sends in its own process, valid for this request although no such key is stored. A
/// request extension that only this process itself can set; it cannot be sent over HTTP.
#[derive(Debug, Clone)]
pub struct InProcessKey(pub Arc<KeyRecord>);

/// A key masked for display: its first and last four characters.
pub fn mask_key(key: &str) -> String {
    let characters: Vec<char> = key.chars().collect();
    if characters.len() < 12 {
        return "...".to_owned();
    }
    let first: String = characters[..4].iter().collect();
    let last: String = characters[characters.len() - 4..].iter().collect();
    format!("{first}...{last}")
}

/// A stored API key with a snapshot of its user, so that one read authenticates a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key's name.
    pub label: String,
    /// The masked key.
    pub mask: String,
    /// The user who owns the key.
    pub user: User,
    /// Whether the user is active.
    pub is_active: bool,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// The projects that the key is limited to; empty means unlimited.
    pub projects: Vec<u64>,
    /// The organizations that the key is limited to; empty means unlimited.
    pub organizations: Vec<Uuid>,
    /// The user's memberships.
    pub memberships: Vec<Membership>,
    /// The user's roles.
    pub roles: Vec<RoleMembership>,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Expiry time, if any.
    pub expires_at: Option<DateTime<Utc>>,
    /// Last use, to the hour. Stored in the item's counter, so that updating it does not rewrite the record.
    #[serde(skip)]
    pub last_used_at: Option<DateTime<Utc>>,
}

impl KeyRecord {
    /// Parses the key in `item`.
    pub fn read(item: &Item) -> Result<KeyRecord, StoreError> {
        let last_used_at = (item.count > 0).then(|| DateTime::from_timestamp(item.count, 0)).flatten();
        Ok(KeyRecord { last_used_at, ..item.body()? })
    }

    /// Whether the key is active and not expired at `now`.
    pub fn is_live(&self, now: DateTime<Utc>) -> bool {
        self.is_active && self.expires_at.is_none_or(|end| now < end)
    }

    /// The user's level in `organization`; `None` without a membership.
    pub fn level_in(&self, organization: Uuid) -> Option<Level> {
        self.memberships
            .iter()
            .find(|membership| membership.organization == organization)
            .map(|membership| membership.level)
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
