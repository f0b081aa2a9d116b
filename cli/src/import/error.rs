//! Why a file was not imported.

use std::fmt;
use std::path::Path;

/// Why a file was not imported, in words for the person who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub file: String,
    /// The line, or row of a Parquet file, at fault; the first is 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl ImportError {
    pub(super) fn of_file(file: &Path, message: impl Into<String>) -> ImportError {
        ImportError { file: file.display().to_string(), line: None, message: message.into() }
    }

    /// About the file that is being read; [`ImportError::in_file`] tells which.
    pub(super) fn of_content(message: impl Into<String>) -> ImportError {
        ImportError { file: String::new(), line: None, message: message.into() }
    }

    pub(super) fn of_line(line: u64, message: impl Into<String>) -> ImportError {
        ImportError { line: Some(line), ..ImportError::of_content(message) }
    }

    pub(super) fn in_file(self, file: &Path) -> ImportError {
        ImportError { file: file.display().to_string(), ..self }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}, line {line}: {}", self.file, self.message),
            None => write!(out, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ImportError {}
