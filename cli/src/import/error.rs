//! The error of an import.

use std::fmt;
use std::path::Path;

/// Why a file was not imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub file: String,
    /// The line, row or element with the error; the first is 1.
    pub line: Option<u64>,
    /// The unit of `line`.
    pub unit: &'static str,
    /// The message, without file and line.
    pub message: String,
}

impl ImportError {
    pub(super) fn for_file(file: &Path, message: impl Into<String>) -> ImportError {
        ImportError { file: file.display().to_string(), ..ImportError::for_content(message) }
    }

    /// An error of the current file; [`ImportError::with_file`] adds its name.
    pub(super) fn for_content(message: impl Into<String>) -> ImportError {
        ImportError { file: String::new(), line: None, unit: "line", message: message.into() }
    }

    pub(super) fn at_line(line: u64, message: impl Into<String>) -> ImportError {
        ImportError { line: Some(line), ..ImportError::for_content(message) }
    }

    /// The same error with another unit of `line`.
    pub(super) fn with_unit(self, unit: &'static str) -> ImportError {
        ImportError { unit, ..self }
    }

    pub(super) fn with_file(self, file: &Path) -> ImportError {
        ImportError { file: file.display().to_string(), ..self }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}, {} {line}: {}", self.file, self.unit, self.message),
            None => write!(out, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ImportError {}
