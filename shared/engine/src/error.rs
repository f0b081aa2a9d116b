//! The one error type of calculations.
//!
//! Must stay true: every refusal names what is wrong in words for the caller, and the field where one is to blame. No
//! HTTP types here: the edge turns [`ErrorKind`] into a status and a `type`.

use std::fmt;

/// What sort of refusal a [`CalcError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A field has a wrong value, or asks for what is not supported: 400 `validation_error`.
    Validation,
    /// A query node has the wrong shape: 400 `invalid_request` with code `parse_error`.
    Parse,
    /// The caller's time budget ran out before the calculation was done.
    Timeout,
}

/// Why a question cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalcError {
    /// What sort of refusal.
    pub kind: ErrorKind,
    /// Machine-readable reason, `invalid_input` unless the contract has a special one.
    pub code: &'static str,
    /// Text for people.
    pub detail: String,
    /// The field to blame; nested fields join with `__`.
    pub attr: Option<String>,
}

/// Result of everything that can be refused.
pub type CalcResult<T> = Result<T, CalcError>;

impl CalcError {
    /// A field with a wrong value.
    pub fn invalid(attr: &str, detail: impl Into<String>) -> Self {
        Self::coded("invalid_input", Some(attr), detail)
    }

    /// A wrong value with a code of its own, and the field if one alone is to blame.
    pub fn coded(code: &'static str, attr: Option<&str>, detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Validation, code, detail: detail.into(), attr: attr.map(str::to_owned) }
    }

    /// A question that is understood but that this release does not calculate. `what` starts the sentence.
    pub fn unsupported(attr: &str, what: impl fmt::Display) -> Self {
        Self::invalid(attr, format!("Not supported yet: {what}."))
    }

    /// The same refusal, of something inside a definition that the question refers to.
    #[must_use]
    pub fn inside(mut self, what: impl fmt::Display) -> Self {
        if self.kind != ErrorKind::Timeout {
            self.detail = format!("{} (in {what})", self.detail.trim_end_matches('.'));
        }
        self
    }

    /// A query node that is not one.
    pub fn parse(detail: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Parse, code: "parse_error", detail: detail.into(), attr: None }
    }

    /// The time budget is used up.
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
