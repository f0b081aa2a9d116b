//! Public links: a token in the query string that opens one record to callers without a key.
//!
//! Must stay true: only the hash of a token is stored; a link opens reading of what it was made for, in its own project,
//! and nothing else; whoever comes by a link is nobody: no user, no role, no right to change anything.

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

/// The query parameter that carries a token.
const PARAMETER: &str = "sharing_access_token";
/// Longer texts are no tokens.
const TOKEN_BYTES_MAX: usize = 200;

/// What a token opens: the row under its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedBy {
    /// The project.
    pub project: ProjectId,
    /// The insight.
    pub insight: u64,
}

/// The form in which a token is stored.
pub fn link_hash(token: &str) -> String {
    hash_key(token)
}

impl Call {
    /// The sharing token that came with the request, if it is one that may carry one: 401 for any but a reading one.
    pub fn link(&self) -> ApiResult<Option<&str>> {
        let token = self.query_value(PARAMETER).filter(|token| !token.is_empty());
        if token.is_some() && !matches!(self.method.as_str(), "GET" | "HEAD") {
            return Err(ApiError::bad_link("Sharing access token can only be used for GET requests."));
        }
        Ok(token)
    }
}

impl App {
    /// What `token` opens, and the records at `wanted(project)`; all in one round trip. 401 for a token that opens
    /// nothing, or something of a project that the path does not name.
    pub async fn by_link(
        &self,
        call: &Call,
        token: &str,
        wanted: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, u64, Vec<Option<Item>>)> {
        let refused = || ApiError::bad_link("Sharing access token is invalid.");
        let named = call.id("project_id").filter(|_| token.len() <= TOKEN_BYTES_MAX).ok_or_else(refused)?;
        let hash = link_hash(token);
        let mut batch = vec![keys::share(&hash), keys::project(named)];
        batch.extend(wanted(named));
        let mut found = self.store.records.batch_get(&batch).await?.into_iter();
        let opened: OpenedBy = found.next().flatten().ok_or_else(refused)?.body()?;
        let project = found.next().flatten().filter(|_| opened.project == named).ok_or_else(refused)?;
        if let Some(rates) = &self.rates {
            rates.count(&self.store.records, &hash, Bucket::General, call.now).await?;
        }
        request_metrics::record(|metrics| metrics.set_project(named));
        Ok((Access::of_link(project.body::<Project>()?), opened.insight, found.collect()))
    }
}
