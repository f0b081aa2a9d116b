//! The stored flag definitions feed of a project: its head row, and its maximum size.

use serde::{Deserialize, Serialize};

use crate::http::GATEWAY_BYTES_MAX;

/// Maximum bytes of a compressed feed document, which the gateway transfers as base64.
pub const FEED_BYTES_MAX: usize = GATEWAY_BYTES_MAX / 4 * 3;
/// The same as a signed number, as the counter of a project's version row uses it.
pub const FEED_BYTES_LIMIT: i64 = FEED_BYTES_MAX as i64;

/// The body of a feed's head row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedHead {
    /// The project's group types when the documents were built.
    pub group_types: Vec<String>,
    /// The document with cohort criteria.
    pub sent: FeedForm,
    /// The document with lone cohorts expanded into their conditions.
    pub flattened: FeedForm,
}

/// One document of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedForm {
    /// Its entity tag.
    pub tag: String,
    /// Uncompressed bytes.
    pub length: usize,
    /// Compressed bytes; 0 if unknown.
    #[serde(default)]
    pub packed: usize,
    /// `None` if the document is too large to be sent.
    pub place: Option<FeedPlace>,
}

/// Where the compressed document is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedPlace {
    /// The form under whose name it is stored. Identical documents are stored once.
    pub form: String,
    /// The digest of the whole document, which each part carries.
    pub mark: String,
    /// Number of parts.
    pub parts: u32,
}
