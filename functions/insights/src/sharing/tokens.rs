//! Sharing tokens: a keyed hash (MAC) of project, record and rotation number, so that a token can be shown again although
//! only its hash is stored.
//!
//! The key is derived from that of secret payloads. If several are configured, the first creates new tokens and all verify
//! old ones. An installation without such a key generates a secret once, in a row that no response contains: tokens are just
//! as hard to guess; read access to the table suffices to create them, but also to read everything that they open. Must stay
//! true: a token that is shown is the one whose hash is stored, else an error is returned.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use pennon_core::app::App;
use pennon_core::auth::sharing_token_hash;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::payload_keys::{SETTING, hmac_with_secret};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError, WriteCondition};

use super::record::Sharing;

/// Bytes of a token: 30 characters of base64.
const TOKEN_BYTES: usize = 22;
const SECRET_BYTES: usize = 32;

/// The tokens of one record.
pub(super) struct Tokens<'a> {
    pub app: &'a App,
    pub project: ProjectId,
    /// Names the record, see [`super::Shareable::token_subject`].
    pub subject: String,
}

impl Tokens<'_> {
    /// The token of this rotation, with the current key.
    pub async fn create(&self, rotation: u32) -> ApiResult<String> {
        let text = self.message(rotation);
        match self.app.payload_keys.codes(&text).first() {
            Some(code) => Ok(token(code)),
            None => Ok(token(&hmac_with_secret(&self.secret().await?, &text))),
        }
    }

    /// The token whose hash is stored. 503 where its key is no longer configured; the token stays valid.
    pub async fn get_current(&self, sharing: &Sharing) -> ApiResult<String> {
        let text = self.message(sharing.rotation);
        let is_current = |token: &String| sharing_token_hash(token) == sharing.hash;
        let by_keys = self.app.payload_keys.codes(&text).iter().map(|code| token(code)).find(is_current);
        if let Some(token) = by_keys {
            return Ok(token);
        }
        let by_secret = Some(token(&hmac_with_secret(&self.secret().await?, &text))).filter(is_current);
        by_secret.ok_or_else(|| {
            let detail = format!(
                "The token cannot be shown: the key that made it is no longer in {SETTING}. POST to refresh/ makes another one."
            );
            ApiError::unavailable("missing_key", detail)
        })
    }

    fn message(&self, rotation: u32) -> String {
        format!("sharing {}/{}/{rotation}", self.project, self.subject)
    }

    /// The secret of this installation; generated at the first use.
    async fn secret(&self) -> ApiResult<Vec<u8>> {
        let (records, key) = (&self.app.store.records, keys::sharing_secret());
        if let Some(item) = records.get(&key).await? {
            return decode_secret(&item);
        }
        let generated = Item::new(key.clone(), &STANDARD.encode(ids::random_bytes::<SECRET_BYTES>()))?;
        match records.put(generated, WriteCondition::Absent).await {
            // A concurrent request may have written it first.
            Ok(()) | Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let item = records.get(&key).await?;
        decode_secret(&item.ok_or_else(|| ApiError::internal(&"a secret that was just made is gone"))?)
    }
}

fn decode_secret(item: &Item) -> ApiResult<Vec<u8>> {
    STANDARD.decode(item.body::<String>()?).map_err(|error| ApiError::internal(&error))
}

fn token(code: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(code.get(..TOKEN_BYTES).unwrap_or(code))
}
