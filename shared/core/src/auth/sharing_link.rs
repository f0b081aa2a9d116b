//! Public sharing links: a token in the query string, or in the path of a shared page, grants read access to one record without
//! an API key.
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
    /// The record in the project.
    #[serde(flatten)]
    pub id: SharedRecordId,
}

/// The kind and the id of a shared record. Stored as one field, named by the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedRecordId {
    /// An insight.
    Insight(u64),
    /// A dashboard with its insights.
    Dashboard(u64),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_row_of_a_token_names_an_insight_or_a_dashboard() {
        for (text, id) in [
            (r#"{"project":1,"insight":7}"#, SharedRecordId::Insight(7)),
            (r#"{"project":1,"dashboard":7}"#, SharedRecordId::Dashboard(7)),
        ] {
            let shared = SharedRecord { project: 1, id };
            assert_eq!(serde_json::from_str::<SharedRecord>(text).unwrap(), shared);
            assert_eq!(serde_json::to_string(&shared).unwrap(), text);
        }
        assert!(serde_json::from_str::<SharedRecord>(r#"{"project":1}"#).is_err());
    }
}
