//! One refused field: the content of a 400 answer of type `validation_error`.
//!
//! Must stay true: `code` is a word of the HTTP contract and never `invalid`; `detail` is bounded whatever was sent.

use thiserror::Error;

/// Longest detail in characters; values quoted inside are cut, so that an answer never echoes a whole body.
const DETAIL_CHARS: usize = 4_096;

/// A body, field or query parameter that breaks a rule. Rendered as `{type: "validation_error", code, detail, attr}`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct FieldError {
    /// The machine-readable reason, such as `required` or `invalid_input`.
    pub code: &'static str,
    /// The reason in words, for people.
    pub detail: String,
    /// The field that broke the rule; none when the rule is about several fields.
    pub attr: Option<String>,
}

impl FieldError {
    /// An error of the field `attr`.
    pub fn new(attr: &str, code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: bounded(detail.into()), attr: Some(attr.to_owned()) }
    }

    /// An error of the field `attr` with the code `invalid_input`.
    pub fn invalid(attr: &str, detail: impl Into<String>) -> Self {
        Self::new(attr, "invalid_input", detail)
    }

    /// An error of no single field, with the code `invalid_input`.
    pub fn general(detail: impl Into<String>) -> Self {
        Self { code: "invalid_input", detail: bounded(detail.into()), attr: None }
    }

    /// A required field that the body lacks.
    pub fn required(attr: &str) -> Self {
        Self::new(attr, "required", "This field is required.")
    }

    /// The key of another live flag of the project.
    pub fn key_taken() -> Self {
        Self::new("key", "unique", "There is already a feature flag with this key.")
    }

    /// The key of the live flag `id`, for a deleted flag that should get it.
    pub fn key_held_by(id: i64) -> Self {
        let detail = format!(
            "There is already a feature flag with this key (ID: {id}). To restore this flag, send another `key` in \
             the same request."
        );
        Self::new("key", "unique", detail)
    }

    /// A null where the field has to have a value.
    pub fn null(attr: &str) -> Self {
        Self::new(attr, "null", "This field may not be null.")
    }
}

fn bounded(detail: String) -> String {
    match detail.char_indices().nth(DETAIL_CHARS) {
        Some((end, _)) => format!("{}...", &detail[..end]),
        None => detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_detail_is_cut() {
        let error = FieldError::invalid("a", "ü".repeat(5_000));
        assert_eq!(error.detail.chars().count(), DETAIL_CHARS + 3);
        assert!(error.detail.ends_with("ü..."));
        assert_eq!(FieldError::invalid("a", "short").detail, "short");
    }
}
