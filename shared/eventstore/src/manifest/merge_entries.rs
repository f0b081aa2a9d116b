//! The manifest entries of objects with person merges.

use pennon_analytics::scan::Micros;
use serde::{Deserialize, Serialize};

use crate::formats;

/// The manifest entry of an object with folded merges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoldedMergesEntry {
    pub id: String,
    /// Format number of the object.
    #[serde(default = "formats::first")]
    pub format: u32,
    pub object: String,
    /// Number of the last row in it.
    pub through: u64,
    /// How many merges it holds.
    pub merges: u64,
    /// Number of erasures of the log. A state that was cached before the last one is invalid.
    #[serde(default)]
    pub erasures: u64,
    /// When it was listed.
    pub at: Micros,
    /// The manifest version that it was added with.
    #[serde(default)]
    pub head: u64,
}

/// The manifest entry of an object with the merges of all imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportedMergesEntry {
    pub id: String,
    /// Format number of the object.
    #[serde(default = "formats::first")]
    pub format: u32,
    /// None when no record has several ids.
    pub object: Option<String>,
    /// Digest of the names of the import objects that it was made from.
    pub of: String,
    /// When it was listed.
    pub at: Micros,
    /// The manifest version that it was added with.
    #[serde(default)]
    pub head: u64,
}
