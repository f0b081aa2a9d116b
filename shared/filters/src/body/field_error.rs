//! A validation error of one field: the content of a 400 response of type `validation_error`.
//!
//! Must stay true: `code` is defined in the HTTP contract and never `invalid`; `detail` is bounded whatever was sent.

use thiserror::Error;

/// Longest detail in characters; quoted values are truncated, so that a response never echoes a whole body.
const DETAIL_CHARS: usize = 4_096;

/// A violated rule about a body, field or query parameter. Rendered as `{type: "validation_error", code, detail,
/// attr}`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct FieldError {
    /// The machine-readable reason, such as `required` or `invalid_input`.
    pub code: &'static str,
    /// The message.
    pub detail: String,
    /// The invalid field; `None` when the rule is about several fields.
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

    /// A required field that is missing.
    pub fn required(attr: &str) -> Self {
        Self::new(attr, "required", "This field is required.")
    }

    /// A null in a field that is not nullable.
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
