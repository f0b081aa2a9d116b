//! The record of a sharing configuration, and the bodies that change it.

use chrono::{DateTime, Utc};
use pennon_core::auth::{SharedRecord, sharing_token_hash};
use pennon_core::clock::timestamp;
use pennon_core::error::ApiResult;
use pennon_core::http::Fields;
use pennon_core::store::keys;
use pennon_core::store::{Item, Key, StoreError, Write, WriteCondition};
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::limits;
use crate::resource::body::invalid;

/// The text setting.
const THEME: &str = "theme";
const THEME_RULE: TextRule = TextRule { max_chars: limits::THEME_CHARS, blank: true, trim: false };

/// The sharing configuration of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Whether its token gives access.
    pub enabled: bool,
    /// When it was first changed.
    pub created_at: DateTime<Utc>,
    /// How the shared page is shown.
    pub settings: Option<Map<String, Value>>,
    /// The number of token rotations.
    pub rotation: u32,
    /// Hash of the token.
    pub hash: String,
}

/// The writable fields of a body; `None` is absent.
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct SharingInput {
    enabled: Option<bool>,
    settings: Option<Option<Map<String, Value>>>,
}

impl SharingInput {
    pub fn parse(body: &Fields) -> ApiResult<SharingInput> {
        Ok(SharingInput {
            enabled: BodyField::of(body, "enabled").sent(fields::boolean).map_err(invalid)?,
            settings: BodyField::of(body, "settings").nullable(settings).map_err(invalid)?,
        })
    }
}

/// The known settings, in the order sent.
fn settings(name: &str, value: &Value) -> Result<Map<String, Value>, FieldError> {
    let mut known = Map::new();
    for (key, value) in fields::object(name, value)? {
        let field = format!("{name}__{key}");
        if value.is_null() && (limits::SHARING_SWITCHES.contains(&key.as_str()) || key == THEME) {
            known.insert(key.clone(), Value::Null);
        } else if limits::SHARING_SWITCHES.contains(&key.as_str()) {
            known.insert(key.clone(), json!(fields::boolean(&field, value)?));
        } else if key == THEME {
            known.insert(key.clone(), json!(fields::string(&field, value, THEME_RULE)?));
        }
    }
    Ok(known)
}

impl Sharing {
    fn disabled(token: &str, now: DateTime<Utc>) -> Sharing {
        Sharing {
            enabled: false,
            created_at: now,
            settings: None,
            rotation: 0,
            hash: sharing_token_hash(token),
        }
    }

    /// The configuration after an update; `token` is its current token.
    pub fn updated(old: Option<&Sharing>, input: &SharingInput, token: &str, now: DateTime<Utc>) -> Sharing {
        let old = old.cloned().unwrap_or_else(|| Sharing::disabled(token, now));
        Sharing {
            enabled: input.enabled.unwrap_or(old.enabled),
            settings: input.settings.clone().unwrap_or_else(|| old.settings.clone()),
            ..old
        }
    }

    /// The configuration with a new token.
    pub fn rotated(old: Option<&Sharing>, rotation: u32, token: &str, now: DateTime<Utc>) -> Sharing {
        let old = old.cloned().unwrap_or_else(|| Sharing::disabled(token, now));
        Sharing { rotation, hash: sharing_token_hash(token), ..old }
    }

    /// The write of the record, on the condition that it is unchanged.
    pub fn write(&self, key: Key, old: Option<&Item>) -> Result<Write, StoreError> {
        let version = old.map_or(0, |item| item.version);
        let guard = old.map_or(WriteCondition::Absent, |item| WriteCondition::Version(item.version));
        Ok(Write::Put(Item::new(key, self)?.with_version(version + 1), guard))
    }

    /// The writes of the changed rows of tokens.
    pub fn token_writes(
        &self,
        shared: &SharedRecord,
        old: Option<&Sharing>,
    ) -> Result<Vec<Write>, StoreError> {
        let active_hash = |sharing: &Sharing| sharing.enabled.then(|| sharing.hash.clone());
        let (before, after) = (old.and_then(active_hash), active_hash(self));
        if before == after {
            return Ok(Vec::new());
        }
        let mut writes = Vec::new();
        if let Some(hash) = before {
            writes.push(Write::Delete(keys::share(&hash), WriteCondition::None));
        }
        if let Some(hash) = after {
            let row = Item::new(keys::share(&hash), shared)?;
            writes.push(Write::Put(row, WriteCondition::None));
        }
        Ok(writes)
    }

    /// The JSON of a response.
    pub fn to_json(&self, token: &str) -> Value {
        sharing_json(Some(timestamp(self.created_at)), self.enabled, token, &json!(self.settings))
    }

    /// The JSON of a record whose configuration was never changed.
    pub fn default_json(token: &str) -> Value {
        sharing_json(None, false, token, &Value::Null)
    }
}

fn sharing_json(created_at: Option<String>, enabled: bool, token: &str, settings: &Value) -> Value {
    json!({
        "created_at": created_at,
        "enabled": enabled,
        "access_token": token,
        "settings": settings,
        "password_required": false,
        "share_passwords": [],
    })
}
