//! Secret payloads of flags: encrypted in records, in clear for callers who may read flags.
//!
//! Must stay true: a record of a flag with encrypted payloads holds no payload in clear; a payload that was not changed
//! keeps its encrypted text; what cannot be opened is shown as the mask, and never lost by a write.

use std::borrow::Cow;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::payload_keys::{PayloadError, PayloadKeys, SETTING, is_sealed};
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::Flag;
use pennon_engine::flag::payloads::{MASK, of_mut};
use serde_json::Value;

const FIELD: &str = "has_encrypted_payloads";

/// What a payload is bound to.
fn place(project: ProjectId, flag: i64, key: &str) -> String {
    format!("payload/{project}/{flag}/{key}")
}

/// The flag with its payloads in clear. Those that cannot be opened stay as they are.
pub fn revealed<'a>(keys: &PayloadKeys, project: ProjectId, flag: &'a Flag) -> Cow<'a, Flag> {
    if !flag.is_encrypted() {
        return Cow::Borrowed(flag);
    }
    let mut clear = flag.clone();
    for (key, payload) in of_mut(&mut clear.filters) {
        let Some(sealed) = payload.as_str().filter(|text| is_sealed(text)) else { continue };
        match open(keys, &place(project, flag.id, key), sealed) {
            Ok(value) => *payload = value,
            Err(error) => tracing::error!(flag = flag.id, cause = %error, "a payload cannot be decrypted"),
        }
    }
    Cow::Owned(clear)
}

/// The flag as callers see it: payloads that cannot be opened are masked.
pub fn shown<'a>(keys: &PayloadKeys, project: ProjectId, flag: &'a Flag) -> Cow<'a, Flag> {
    let mut shown = revealed(keys, project, flag);
    if flag.is_encrypted() && has_sealed(&shown) {
        for (_, payload) in of_mut(&mut shown.to_mut().filters).filter(|(_, payload)| is_closed(payload)) {
            *payload = MASK.into();
        }
    }
    shown
}

/// `clear`, a judged flag, as its record keeps it. `before` is the stored flag, with its payloads as they lie and in
/// clear.
pub fn concealed<'a>(
    keys: &PayloadKeys,
    project: ProjectId,
    clear: &'a Flag,
    before: Option<(&Flag, &Flag)>,
) -> ApiResult<Cow<'a, Flag>> {
    if !clear.is_encrypted() {
        return Ok(Cow::Borrowed(clear));
    }
    let mut flag = clear.clone();
    if keys.is_empty() && !before.is_some_and(|(stored, _)| stored.is_encrypted()) {
        return Err(refused());
    }
    for (key, payload) in of_mut(&mut flag.filters) {
        let kept = before.and_then(|(stored, was_clear)| {
            let sealed = payload_of(stored, key).filter(|sealed| is_closed(sealed))?;
            (payload_of(was_clear, key)? == payload).then(|| sealed.clone())
        });
        *payload = match kept {
            Some(sealed) => sealed,
            None => {
                keys.seal(&place(project, clear.id, key), &payload.to_string()).map_err(|_| refused())?.into()
            }
        };
    }
    Ok(Cow::Owned(flag))
}

/// 400 if the body touches payloads of `clear` that could not be opened.
pub fn check_opened(clear: &Flag, touches_payloads: bool) -> ApiResult<()> {
    if touches_payloads && has_sealed(clear) { Err(refused()) } else { Ok(()) }
}

/// The error for payloads that cannot be encrypted, or decrypted, with the keys at hand.
fn refused() -> ApiError {
    let detail = format!("Encrypted payloads need the key that they are encrypted with in {SETTING}.");
    ApiError::invalid("invalid_input", detail, Some(FIELD))
}

fn open(keys: &PayloadKeys, place: &str, sealed: &str) -> Result<Value, PayloadError> {
    let text = keys.open(place, sealed)?;
    serde_json::from_str(&text).map_err(|_| PayloadError::Damaged)
}

fn payload_of<'a>(flag: &'a Flag, key: &str) -> Option<&'a Value> {
    flag.filters.get("payloads")?.get(key)
}

/// Whether a payload is encrypted text: a payload in clear is JSON, which such text is not.
fn is_closed(payload: &Value) -> bool {
    payload.as_str().is_some_and(is_sealed)
}

/// Whether payloads are encrypted, or could not be decrypted.
pub fn has_sealed(flag: &Flag) -> bool {
    let payloads = flag.filters.get("payloads").and_then(Value::as_object);
    payloads.is_some_and(|all| all.values().any(is_closed))
}
