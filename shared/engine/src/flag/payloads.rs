//! Payloads: what a flag sends along with its value.
//!
//! Must stay true: a stored payload is a text of JSON, or a number, boolean, list or null as sent; its key is a variant,
//! or `true` for a boolean flag. A mask in place of a secret payload never replaces the secret.

use serde_json::Value;

use super::{FieldError, filter_view as view, json::Object};

/// What stands in place of an encrypted payload in answers to readers that may not see it; sent back it means "as it was".
pub const MASK: &str = "********* (encrypted)";

/// Puts stored payloads in place of masks.
pub fn keep_masked(filters: &mut Object, stored: &Object) {
    let Some(Value::Object(payloads)) = filters.get_mut("payloads") else { return };
    let Some(Value::Object(stored)) = stored.get("payloads") else { return };
    for (key, payload) in payloads.iter_mut().filter(|(_, payload)| *payload == MASK) {
        if let Some(kept) = stored.get(key) {
            *payload = kept.clone();
        }
    }
}

/// The payloads of filters, by the value that they go with.
pub fn of_mut(filters: &mut Object) -> impl Iterator<Item = (&String, &mut Value)> {
    filters.get_mut("payloads").and_then(Value::as_object_mut).into_iter().flatten()
}

/// Puts the mask in place of every payload.
pub fn mask(filters: &mut Object) {
    of_mut(filters).for_each(|(_, payload)| *payload = MASK.into());
}

/// Checks the payloads of filters of the right shape.
pub fn check(filters: &Object) -> Result<(), FieldError> {
    let payloads = match filters.get("payloads") {
        None => return Ok(()),
        Some(Value::Object(payloads)) => payloads,
        Some(_) => return Err(refused("Payloads must be passed as a dictionary")),
    };
    let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !payloads.values().filter_map(Value::as_str).all(is_json) {
        return Err(refused("Payload value is not valid JSON"));
    }
    let variants = view::variants(filters);
    if variants.is_empty() {
        let known = payloads.keys().all(|key| key == "true");
        return if known { Ok(()) } else { Err(refused("Payload keys must be 'true' for boolean flags")) };
    }
    let is_variant = |key: &String| variants.iter().any(|variant| view::text(variant, "key") == Some(key));
    if payloads.keys().all(is_variant) {
        return Ok(());
    }
    Err(refused("Payload keys must match a variant key for multivariate flags"))
}

/// Turns payloads that are objects into their JSON text, the form in which SDKs expect them.
pub fn store_objects_as_text(filters: &mut Object) {
    let Some(Value::Object(payloads)) = filters.get_mut("payloads") else { return };
    for payload in payloads.values_mut().filter(|payload| payload.is_object()) {
        *payload = Value::String(payload.to_string());
    }
}

fn refused(detail: &str) -> FieldError {
    FieldError::invalid("filters", detail)
}
