//! What the table says of a project's definitions feed: its head, and how large a feed may be.

use serde::{Deserialize, Serialize};

use crate::http::GATEWAY_BYTES_MAX;

/// The room of a feed: bytes of a compressed document, which goes through a gateway in base64.
pub const FEED_BYTES_MAX: usize = GATEWAY_BYTES_MAX / 4 * 3;
/// The same, as a project's version counts it.
pub const FEED_ROOM: i64 = FEED_BYTES_MAX as i64;

/// The body of a feed's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedHead {
    /// The group types that the documents were made with.
    pub group_types: Vec<String>,
    /// The document with the cohorts' criteria.
    pub sent: FeedForm,
    /// The document with lone cohorts spelled out.
    pub flattened: FeedForm,
}

/// One document of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedForm {
    /// Its entity tag.
    pub tag: String,
    /// Bytes of its text.
    pub length: usize,
    /// Bytes of it compressed; 0 where that was not noted.
    #[serde(default)]
    pub packed: usize,
    /// None: it is too large to be sent.
    pub place: Option<FeedPlace>,
}

/// Where the compressed text of a document lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedPlace {
    /// Under which form's name. Forms of the same text are stored once.
    pub form: String,
    /// What its parts are marked with: the digest of the whole.
    pub mark: String,
    /// How many there are.
    pub parts: u32,
}
