//! The JSON of API keys.

use pennon_core::auth::KeyRecord;
use pennon_core::clock::timestamp;
use serde_json::{Value, json};

/// Number of digits of the hash that identify a key in addresses.
const ID_DIGITS: usize = 32;

/// The id of the key with this hash: the first digits of the hash, which do not help to find the secret.
pub fn key_id(hash: &str) -> &str {
    let digits = hash.split_once('$').map_or(hash, |(_, digits)| digits);
    digits.get(..ID_DIGITS).unwrap_or(digits)
}

/// A key about itself.
pub fn current_key(key: &KeyRecord) -> Value {
    json!({
        "label": key.label,
        "mask_value": key.mask,
        "scopes": key.scopes,
        "scoped_teams": key.projects,
        "scoped_organizations": key.organizations,
        "created_at": timestamp(key.created_at),
        "last_used_at": key.last_used_at.map(timestamp),
        "expires_at": key.expires_at.map(timestamp),
        "user": key.user.id,
    })
}

/// A key of a list: without its secret.
pub fn listed_key(hash: &str, key: &KeyRecord) -> Value {
    with_identity(current_key(key), hash, None)
}

/// A key that was just created, with its secret.
pub fn created_key(hash: &str, key: &KeyRecord, secret: &str) -> Value {
    with_identity(current_key(key), hash, Some(secret))
}

fn with_identity(mut response: Value, hash: &str, secret: Option<&str>) -> Value {
    response["id"] = key_id(hash).into();
    response["value"] = secret.into();
    response["user_id"] = response["user"].take();
    if let Some(fields) = response.as_object_mut() {
        fields.remove("user");
    }
    response
}
