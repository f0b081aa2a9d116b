//! Why a file was not imported.

use std::fmt;
use std::path::Path;

/// Why a file was not imported, for the user who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub file: String,
    /// The line, row or element at fault; the first is 1.
    pub line: Option<u64>,
    /// What `line` counts.
    pub unit: &'static str,
    /// What is wrong.
    pub message: String,
}

impl ImportError {
    pub(super) fn of_file(file: &Path, message: impl Into<String>) -> ImportError {
        ImportError { file: file.display().to_string(), ..ImportError::of_content(message) }
    }

    /// About the file that is being read; [`ImportError::in_file`] adds its name.
    pub(super) fn of_content(message: impl Into<String>) -> ImportError {
        ImportError { file: String::new(), line: None, unit: "line", message: message.into() }
    }

    pub(super) fn of_line(line: u64, message: impl Into<String>) -> ImportError {
        ImportError { line: Some(line), ..ImportError::of_content(message) }
    }

    /// The same, where records are counted by `unit`.
    pub(super) fn in_unit(self, unit: &'static str) -> ImportError {
        ImportError { unit, ..self }
    }

    pub(super) fn in_file(self, file: &Path) -> ImportError {
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
