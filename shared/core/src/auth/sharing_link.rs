//! Public sharing links: a token in the query string grants read access to one record without an API key.
//!
//! Must stay true: only the hash of a token is stored; a token grants reading the record that it was created for, in its own
//! project, and nothing else; a sharing token authenticates no user: no role, no write access.

use serde::{Deserialize, Serialize};

use super::hash_key;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::store::keys::ProjectId;

/// The query parameter with the token.
const PARAMETER: &str = "sharing_access_token";
/// Maximum length of a token.
pub(crate) const SHARING_TOKEN_BYTES_MAX: usize = 200;

/// The record that a sharing token grants access to: the body of the row under its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRecord {
    /// The project.
    pub project: ProjectId,
    /// The insight.
    pub insight: u64,
}

/// The stored form of a token.
pub fn sharing_token_hash(token: &str) -> String {
    hash_key(token)
}

impl Call {
    /// The sharing token of the request, if it has one; 401 for methods other than GET and HEAD.
    pub fn link(&self) -> ApiResult<Option<&str>> {
        let token = self.query_value(PARAMETER).filter(|token| !token.is_empty());
        if token.is_some() && !matches!(self.method.as_str(), "GET" | "HEAD") {
            return Err(ApiError::invalid_sharing_token(
                "Sharing access token can only be used for GET requests.",
            ));
        }
        Ok(token)
    }
}
