//! Sharing tokens: a keyed function of project, insight and a rotation number, so that one can be shown again although
//! only its hash is stored.
//!
//! The key is that of secret payloads, by way of a key derived from it; where several are configured the first makes new
//! tokens and all show old ones. An installation without such a key makes itself a secret once, in a row that no answer
//! shows: tokens are then as hard to guess, and whoever can read the table can make them, as they could read what tokens
//! open. Must stay true: a token that is shown is the one whose hash is stored, or there is none to show.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use pennon_core::app::App;
use pennon_core::auth::link_hash;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::payload_keys::{SETTING, code_by};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, StoreError};

use super::record::Sharing;

/// Bytes of a token, which are 30 letters of base64.
const TOKEN_BYTES: usize = 22;
const SECRET_BYTES: usize = 32;

/// The tokens of one insight.
pub(super) struct Tokens<'a> {
    pub app: &'a App,
    pub project: ProjectId,
    pub insight: u64,
}

impl Tokens<'_> {
    /// The token of this rotation, by the key of today.
    pub async fn fresh(&self, rotation: u32) -> ApiResult<String> {
        let text = self.text(rotation);
        match self.app.payload_keys.codes(&text).first() {
            Some(code) => Ok(token(code)),
            None => Ok(token(&code_by(&self.secret().await?, &text))),
        }
    }

    /// The token whose hash is stored. 503 where the key is gone that made it: it still opens the insight.
    pub async fn stored(&self, sharing: &Sharing) -> ApiResult<String> {
        let text = self.text(sharing.rotation);
        let is_it = |token: &String| link_hash(token) == sharing.hash;
        let by_keys = self.app.payload_keys.codes(&text).iter().map(|code| token(code)).find(is_it);
        if let Some(token) = by_keys {
            return Ok(token);
        }
        let by_secret = Some(token(&code_by(&self.secret().await?, &text))).filter(is_it);
        by_secret.ok_or_else(|| {
            let detail = format!(
                "The token cannot be shown: the key that made it is no longer in {SETTING}. POST to refresh/ makes another one."
            );
            ApiError::unavailable("missing_key", detail)
        })
    }

    fn text(&self, rotation: u32) -> String {
        format!("sharing {}/{}/{rotation}", self.project, self.insight)
    }

    /// The secret of this installation, which is made when it is first wanted.
    async fn secret(&self) -> ApiResult<Vec<u8>> {
        let (records, key) = (&self.app.store.records, keys::sharing_secret());
        if let Some(item) = records.get(&key).await? {
            return read(&item);
        }
        let made = Item::new(key.clone(), &STANDARD.encode(ids::random_bytes::<SECRET_BYTES>()))?;
        match records.put(made, Guard::Absent).await {
            // Whoever came first has made it.
            Ok(()) | Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let item = records.get(&key).await?;
        read(&item.ok_or_else(|| ApiError::internal(&"a secret that was just made is gone"))?)
    }
}

fn read(item: &Item) -> ApiResult<Vec<u8>> {
    STANDARD.decode(item.body::<String>()?).map_err(|error| ApiError::internal(&error))
}

fn token(code: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(code.get(..TOKEN_BYTES).unwrap_or(code))
}
