//! Public sharing links: a token in the query string grants read access to one record without an API key.
//!
//! Must stay true: only the hash of a token is stored; a token grants reading the record that it was created for, in its own
//! project, and nothing else; a sharing token authenticates no user: no role, no write access.

use serde::{Deserialize, Serialize};

use super::{Access, hash_key};
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::model::Project;
use crate::request_metrics;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key};
use crate::throttle::Bucket;

/// The query parameter with the token.
const PARAMETER: &str = "sharing_access_token";
/// Maximum length of a token.
const TOKEN_BYTES_MAX: usize = 200;

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

impl App {
    /// Authorizes a sharing token. Returns the access, the id of the shared insight, and the records at `record_keys(project)`,
    /// all in one round trip. 401 for an unknown token, or one of another project than the path's.
    pub async fn by_link(
        &self,
        call: &Call,
        token: &str,
        record_keys: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, u64, Vec<Option<Item>>)> {
        let invalid = || ApiError::invalid_sharing_token("Sharing access token is invalid.");
        let project_id =
            call.id("project_id").filter(|_| token.len() <= TOKEN_BYTES_MAX).ok_or_else(invalid)?;
        let hash = sharing_token_hash(token);
        let mut batch = vec![keys::share(&hash), keys::project(project_id)];
        batch.extend(record_keys(project_id));
        let mut items = self.store.records.batch_get(&batch).await?.into_iter();
        let shared: SharedRecord = items.next().flatten().ok_or_else(invalid)?.body()?;
        let project = items.next().flatten().filter(|_| shared.project == project_id).ok_or_else(invalid)?;
        if let Some(rates) = &self.rates {
            rates.count(&self.store.records, &hash, Bucket::General, call.now).await?;
        }
        request_metrics::record(|metrics| metrics.set_project(project_id));
        Ok((Access::of_link(project.body::<Project>()?), shared.insight, items.collect()))
    }
}
