//! Payloads: the JSON that a flag sends along with its value.
//!
//! Must stay true: a stored payload is a JSON text, or a number, boolean, list or null as sent; its key is a variant,
//! or `true` for a boolean flag. A mask never replaces an encrypted payload.

use pennon_filters::body::FieldError;
use pennon_filters::body::json::Object;
use serde_json::Value;

use super::filter_view as view;

/// Replaces an encrypted payload in responses to readers who may not see it; sent back in a write it means "unchanged".
pub const MASK: &str = "********* (encrypted)";

/// Replaces masks with the stored payloads.
pub fn keep_masked(filters: &mut Object, stored: &Object) {
    let Some(Value::Object(payloads)) = filters.get_mut("payloads") else { return };
    let Some(Value::Object(stored)) = stored.get("payloads") else { return };
    for (key, payload) in payloads.iter_mut().filter(|(_, payload)| *payload == MASK) {
        if let Some(kept) = stored.get(key) {
            *payload = kept.clone();
        }
    }
}

/// The payloads of filters, by flag value.
pub fn payloads_mut(filters: &mut Object) -> impl Iterator<Item = (&String, &mut Value)> {
    filters.get_mut("payloads").and_then(Value::as_object_mut).into_iter().flatten()
}

/// Masks every payload.
pub fn mask(filters: &mut Object) {
    payloads_mut(filters).for_each(|(_, payload)| *payload = MASK.into());
}

/// Validates the payloads of filters of the right shape.
pub fn check(filters: &Object) -> Result<(), FieldError> {
    let payloads = match filters.get("payloads") {
        None => return Ok(()),
        Some(Value::Object(payloads)) => payloads,
        Some(_) => return Err(invalid_filters("Payloads must be passed as a dictionary")),
    };
    let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !payloads.values().filter_map(Value::as_str).all(is_json) {
        return Err(invalid_filters("Payload value is not valid JSON"));
    }
    let variants = view::variants(filters);
    if variants.is_empty() {
        let known = payloads.keys().all(|key| key == "true");
        return if known {
            Ok(())
        } else {
            Err(invalid_filters("Payload keys must be 'true' for boolean flags"))
        };
    }
    let is_variant = |key: &String| variants.iter().any(|variant| view::text(variant, "key") == Some(key));
    if payloads.keys().all(is_variant) {
        return Ok(());
    }
    Err(invalid_filters("Payload keys must match a variant key for multivariate flags"))
}

/// Converts payloads that are objects to their JSON text, the form that SDKs expect.
pub fn store_objects_as_text(filters: &mut Object) {
    let Some(Value::Object(payloads)) = filters.get_mut("payloads") else { return };
    for payload in payloads.values_mut().filter(|payload| payload.is_object()) {
        *payload = Value::String(payload.to_string());
    }
}

fn invalid_filters(detail: &str) -> FieldError {
    FieldError::invalid("filters", detail)
}
