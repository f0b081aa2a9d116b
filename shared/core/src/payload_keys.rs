//! Encryption of secret payloads at rest.
//!
//! A sealed text is `pennon-sealed:1:{key}:{base64 of nonce, ciphertext and tag}`: AES-256-GCM with a random nonce, under
//! the key whose digest starts with `{key}`. The place where the text is stored is the associated data, so that a sealed text
//! cannot be moved.
//!
//! Must stay true: of several keys the first one seals and all of them open, so a key is rotated by putting a new one
//! before it; keys never appear in a log; a text that cannot be opened is an error and never a wrong text.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// The environment variable, for error messages.
pub const SETTING: &str = "PENNON_PAYLOAD_KEY";

/// The prefix of every sealed text; the number of its format follows.
const SEALED: &str = "pennon-sealed:";
const PREFIX: &str = "pennon-sealed:1:";
const KEY_BYTES: usize = 32;

/// The payload keys of an installation; possibly none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PayloadKeys(Arc<[PayloadKey]>);

#[derive(Debug)]
struct PayloadKey {
    name: String,
    /// Its `Debug` output contains no secret.
    key: RandomizedNonceKey,
    /// For HMACs; derived from the key, which cannot be computed from it.
    hmac_key: hmac::Key,
}

/// Why a text could not be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// There is no key, or not the one that the text was sealed with.
    #[error("no key for it in {SETTING}")]
    NoKey,
    /// It is not a sealed text of this place.
    #[error("it was changed or moved since it was encrypted")]
    Damaged,
    /// It has a newer format.
    #[error("a newer release encrypted it")]
    Newer,
}

impl PayloadKeys {
    /// Parses keys of 32 bytes each in base64, separated by commas.
    pub fn parse(text: &str) -> Result<PayloadKeys, String> {
        let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty()).map(|key| {
            let bytes = STANDARD_NO_PAD.decode(key.trim_end_matches('=')).unwrap_or_default();
            let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok().filter(|_| bytes.len() == KEY_BYTES);
            let key = key.ok_or_else(|| {
                format!("{SETTING} holds keys of {KEY_BYTES} bytes in base64, separated by commas")
            })?;
            Ok(PayloadKey { name: name_of(&bytes), key, hmac_key: derive_hmac_key(&bytes) })
        });
        Ok(PayloadKeys(keys.collect::<Result<_, String>>()?))
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The HMACs of `text` under each key, in the order of the keys.
    pub fn codes(&self, text: &str) -> Vec<Vec<u8>> {
        self.0.iter().map(|key| hmac_sha256(&key.hmac_key, text)).collect()
    }

    /// Seals `text` for `place`.
    pub fn seal(&self, place: &str, text: &str) -> Result<String, PayloadError> {
        let first = self.0.first().ok_or(PayloadError::NoKey)?;
        let mut bytes = text.as_bytes().to_vec();
        let nonce = first.key.seal_in_place_append_tag(Aad::from(place.as_bytes()), &mut bytes);
        let nonce = nonce.map_err(|_| PayloadError::Damaged)?;
        let body = [&nonce.as_ref()[..], &bytes].concat();
        Ok(format!("{PREFIX}{}:{}", first.name, STANDARD.encode(body)))
    }

    /// The text that was sealed for `place`.
    pub fn open(&self, place: &str, sealed: &str) -> Result<String, PayloadError> {
        let rest = sealed.strip_prefix(PREFIX).ok_or(match is_sealed(sealed) {
            true => PayloadError::Newer,
            false => PayloadError::Damaged,
        })?;
        let (name, body) = rest.split_once(':').ok_or(PayloadError::Damaged)?;
        let payload_key = self.0.iter().find(|key| key.name == name).ok_or(PayloadError::NoKey)?;
        let mut body = STANDARD.decode(body).map_err(|_| PayloadError::Damaged)?;
        let (nonce, bytes) = body.split_at_mut_checked(NONCE_LEN).ok_or(PayloadError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| PayloadError::Damaged)?;
        let text = payload_key.key.open_in_place(nonce, Aad::from(place.as_bytes()), bytes);
        let text = text.map_err(|_| PayloadError::Damaged)?;
        String::from_utf8(text.to_vec()).map_err(|_| PayloadError::Damaged)
    }
}

/// The HMAC of `text` under a key derived from `secret`.
pub fn hmac_with_secret(secret: &[u8], text: &str) -> Vec<u8> {
    hmac_sha256(&derive_hmac_key(secret), text)
}

fn hmac_sha256(key: &hmac::Key, text: &str) -> Vec<u8> {
    hmac::sign(key, text.as_bytes()).as_ref().to_vec()
}

/// Derives the HMAC key of a secret. It differs from the encryption key, so that neither use weakens the other.
fn derive_hmac_key(secret: &[u8]) -> hmac::Key {
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"pennon codes");
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// Whether `text` is a sealed text. No JSON text starts with the prefix.
pub fn is_sealed(text: &str) -> bool {
    // Also for newer formats, which must not be taken for plaintext payloads.
    text.starts_with(SEALED)
}

/// A new random key in base64, the format of the setting.
pub fn new_key() -> String {
    STANDARD.encode(crate::ids::random_bytes::<KEY_BYTES>())
}

/// The id of a key: the start of a digest, which does not reveal the key.
fn name_of(key: &[u8]) -> String {
    let digest = Sha256::new().chain_update(b"pennon payload key").chain_update(key).finalize();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn keys(bytes: &[u8]) -> PayloadKeys {
        let texts: Vec<String> = bytes.iter().map(|byte| STANDARD.encode([*byte; 32])).collect();
        PayloadKeys::parse(&texts.join(",")).unwrap()
    }

    #[test]
    fn a_sealed_text_opens_in_its_place_only_and_never_twice_the_same() {
        let keys = keys(&[1]);
        let sealed = keys.seal("1/7/true", "{\"secret\": \"ü\"}").unwrap();
        assert!(is_sealed(&sealed) && !sealed.contains("secret"));
        assert_ne!(sealed, keys.seal("1/7/true", "{\"secret\": \"ü\"}").unwrap());
        assert_eq!(keys.open("1/7/true", &sealed).unwrap(), "{\"secret\": \"ü\"}");
        assert_eq!(keys.open("1/8/true", &sealed), Err(PayloadError::Damaged));
        let last = if sealed.ends_with("A=") { "B=" } else { "A=" };
        let changed = format!("{}{last}", &sealed[..sealed.len() - 2]);
        assert_eq!(keys.open("1/7/true", &changed), Err(PayloadError::Damaged));
        let newer = sealed.replace("pennon-sealed:1:", "pennon-sealed:2:");
        assert!(is_sealed(&newer), "it is not taken for a payload in clear");
        assert_eq!(keys.open("1/7/true", &newer), Err(PayloadError::Newer));
        for text in ["", "pennon-sealed:1:", "{}"] {
            assert_eq!(keys.open("1/7/true", text), Err(PayloadError::Damaged), "{text}");
        }
    }

    #[test]
    fn every_key_makes_codes_of_its_own() {
        let codes = keys(&[2, 1]).codes("1/7/0");
        assert_eq!(codes, [keys(&[2]).codes("1/7/0"), keys(&[1]).codes("1/7/0")].concat());
        assert_eq!(codes[1], hmac_with_secret(&[1; 32], "1/7/0"));
        assert_ne!(codes[0], codes[1]);
        assert_ne!(codes, keys(&[2, 1]).codes("1/7/1"));
        assert_eq!(PayloadKeys::default().codes("1/7/0"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_new_key_is_put_before_the_old_one() {
        let old = keys(&[1]).seal("p", "x").unwrap();
        let both = keys(&[2, 1]);
        assert_eq!(both.open("p", &old).unwrap(), "x");
        let new = both.seal("p", "x").unwrap();
        assert_eq!(keys(&[2]).open("p", &new).unwrap(), "x");
        assert_eq!(keys(&[2]).open("p", &old), Err(PayloadError::NoKey));
        assert_eq!(PayloadKeys::default().seal("p", "x"), Err(PayloadError::NoKey));
    }

    #[test]
    fn keys_are_32_bytes_and_show_themselves_nowhere() {
        for bad in ["abc", "AAAA", &STANDARD.encode([0; 31]), &STANDARD.encode([0; 33]), "not base64!"] {
            let error = PayloadKeys::parse(bad).unwrap_err();
            assert!(error.starts_with(SETTING) && !error.contains(bad), "{error}");
        }
        assert!(PayloadKeys::parse("").unwrap().is_empty());
        let made = new_key();
        assert_ne!(made, new_key());
        let keys = PayloadKeys::parse(&made).unwrap();
        assert!(!format!("{keys:?}").contains(&made[..10]));
    }
}
