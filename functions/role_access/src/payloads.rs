//! Encrypted payloads of flags: encrypted in records, revealed for callers who may read flags.
//!
//! Must stay true: the record of a flag with encrypted payloads contains no plaintext payload; an unchanged payload
//! keeps its ciphertext; a payload that cannot be decrypted is shown masked, and no write loses it.

use std::borrow::Cow;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::payload_keys::{PayloadError, PayloadKeys, SETTING, is_sealed};
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::Flag;
use pennon_flag_rules::conditions::payloads::{MASK, payloads_mut};
use serde_json::Value;

const ENCRYPTED_FIELD: &str = "has_encrypted_payloads";

/// The encryption context that binds a ciphertext to its flag and payload key.
fn encryption_context(project: ProjectId, flag: i64, key: &str) -> String {
    format!("payload/{project}/{flag}/{key}")
}

/// The flag with decrypted payloads. Those that cannot be decrypted stay encrypted.
pub fn revealed<'a>(keys: &PayloadKeys, project: ProjectId, flag: &'a Flag) -> Cow<'a, Flag> {
    if !flag.is_encrypted() {
        return Cow::Borrowed(flag);
    }
    let mut clear = flag.clone();
    for (key, payload) in payloads_mut(&mut clear.filters) {
        let Some(sealed) = payload.as_str().filter(|text| is_sealed(text)) else { continue };
        match decrypt(keys, &encryption_context(project, flag.id, key), sealed) {
            Ok(value) => *payload = value,
            Err(error) => tracing::error!(flag = flag.id, cause = %error, "a payload cannot be decrypted"),
        }
    }
    Cow::Owned(clear)
}

/// The flag as responses contain it: payloads that cannot be decrypted are masked.
pub fn masked<'a>(keys: &PayloadKeys, project: ProjectId, flag: &'a Flag) -> Cow<'a, Flag> {
    let mut masked = revealed(keys, project, flag);
    if flag.is_encrypted() && has_encrypted(&masked) {
        for (_, payload) in
            payloads_mut(&mut masked.to_mut().filters).filter(|(_, payload)| is_encrypted_text(payload))
        {
            *payload = MASK.into();
        }
    }
    masked
}

/// The record of the validated flag `clear`, with encrypted payloads. `before` is the stored flag, as stored and
/// decrypted.
pub fn encrypt_payloads<'a>(
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
        return Err(missing_key_error());
    }
    for (key, payload) in payloads_mut(&mut flag.filters) {
        let unchanged = before.and_then(|(stored, was_clear)| {
            let sealed = payload_of(stored, key).filter(|sealed| is_encrypted_text(sealed))?;
            (payload_of(was_clear, key)? == payload).then(|| sealed.clone())
        });
        *payload = match unchanged {
            Some(sealed) => sealed,
            None => keys
                .seal(&encryption_context(project, clear.id, key), &payload.to_string())
                .map_err(|_| missing_key_error())?
                .into(),
        };
    }
    Ok(Cow::Owned(flag))
}

/// 400 if the body changes payloads of `clear` that could not be decrypted.
pub fn require_decrypted(clear: &Flag, touches_payloads: bool) -> ApiResult<()> {
    if touches_payloads && has_encrypted(clear) { Err(missing_key_error()) } else { Ok(()) }
}

/// The error for payloads that cannot be encrypted or decrypted with the configured keys.
fn missing_key_error() -> ApiError {
    let detail = format!("Encrypted payloads need the key that they are encrypted with in {SETTING}.");
    ApiError::invalid("invalid_input", detail, Some(ENCRYPTED_FIELD))
}

fn decrypt(keys: &PayloadKeys, encryption_context: &str, sealed: &str) -> Result<Value, PayloadError> {
    let text = keys.open(encryption_context, sealed)?;
    serde_json::from_str(&text).map_err(|_| PayloadError::Damaged)
}

fn payload_of<'a>(flag: &'a Flag, key: &str) -> Option<&'a Value> {
    flag.filters.get("payloads")?.get(key)
}

/// Whether a payload is ciphertext. A plaintext payload is JSON, which ciphertext is not.
fn is_encrypted_text(payload: &Value) -> bool {
    payload.as_str().is_some_and(is_sealed)
}

/// Whether any payload is encrypted, or could not be decrypted.
pub fn has_encrypted(flag: &Flag) -> bool {
    let payloads = flag.filters.get("payloads").and_then(Value::as_object);
    payloads.is_some_and(|all| all.values().any(is_encrypted_text))
}
