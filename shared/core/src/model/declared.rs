//! An entry of the installation's list of declared records.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// A declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declared<T> {
    /// The declaration in the file.
    pub spec: T,
    /// When it was first declared.
    pub created_at: DateTime<Utc>,
    /// When its declaration last changed.
    pub updated_at: DateTime<Utc>,
    /// The shown part of a key; empty for everything else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mask: String,
}
