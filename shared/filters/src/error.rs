//! The error type of calculations.
//!
//! Must stay true: every error explains to the API caller what is wrong, and names the field if there is one. No HTTP types
//! here: the HTTP layer maps [`ErrorKind`] to a status and a `type`.

use std::fmt;

/// The category of a [`CalcError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A field has an invalid or unsupported value: 400 `validation_error`.
    Validation,
    /// A query node has the wrong shape: 400 `invalid_request` with code `parse_error`.
    Parse,
    /// The calculation was cancelled, because its time budget ran out.
    Timeout,
}

/// Why a query failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalcError {
    /// The category.
    pub kind: ErrorKind,
    /// Machine-readable reason: `invalid_input` unless the contract defines a specific one.
    pub code: &'static str,
    /// Human-readable text.
    pub detail: String,
    /// The invalid field; nested names are joined with `__`.
    pub attr: Option<String>,
}

/// Result of a calculation step.
pub type CalcResult<T> = Result<T, CalcError>;

impl CalcError {
    /// A field with an invalid value.
    pub fn invalid(attr: &str, detail: impl Into<String>) -> Self {
        Self::coded("invalid_input", Some(attr), detail)
    }

    /// A validation error with a specific code, and the field if there is exactly one.
    pub fn coded(code: &'static str, attr: Option<&str>, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Validation, code, detail: detail.into(), attr: attr.map(str::to_owned) }
    }

    /// A valid query that is not supported. `what` completes the sentence "Not supported yet: ...".
    pub fn unsupported(attr: &str, what: impl fmt::Display) -> Self {
        Self::invalid(attr, format!("Not supported yet: {what}."))
    }

    /// Adds a sentence about what to use instead.
    #[must_use]
    pub fn instead(mut self, sentence: &str) -> Self {
        self.detail = format!("{} {sentence}", self.detail);
        self
    }

    /// Adds the definition in which the error is, such as `action 3`. Timeouts are left unchanged.
    #[must_use]
    pub fn inside(mut self, what: impl fmt::Display) -> Self {
        if self.kind != ErrorKind::Timeout {
            self.detail = format!("{} (in {what})", self.detail.trim_end_matches('.'));
        }
        self
    }

    /// A query node of the wrong shape.
    pub fn parse(detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Parse, code: "parse_error", detail: detail.into(), attr: None }
    }

    /// The time budget is used up or the calculation was cancelled.
    pub fn timeout() -> Self {
        Self {
            kind: ErrorKind::Timeout,
            code: "timeout",
            detail: "The calculation did not finish in the time allowed for it.".to_owned(),
            attr: None,
        }
    }
}

impl fmt::Display for CalcError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.attr {
            Some(attr) => write!(out, "{attr}: {}", self.detail),
            None => out.write_str(&self.detail),
        }
    }
}

impl std::error::Error for CalcError {}
