//! Authorizes a request by a sharing token, for one record and reading only.

use super::App;
use crate::auth::{Access, SHARING_TOKEN_BYTES_MAX, SharedRecord, sharing_token_hash};
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::model::Project;
use crate::request_metrics;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key};
use crate::throttle::Bucket;

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
            call.id("project_id").filter(|_| token.len() <= SHARING_TOKEN_BYTES_MAX).ok_or_else(invalid)?;
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
