//! Authorizes a request by a sharing token, for one record and reading only.

use super::App;
use crate::auth::{Access, SHARING_TOKEN_BYTES_MAX, SharedRecord, SharedRecordId, sharing_token_hash};
use crate::error::{ApiError, ApiResult};
use crate::http::Call;
use crate::model::Project;
use crate::request_metrics;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key};
use crate::throttle::Bucket;

impl App {
    /// Authorizes the sharing token of an insight. Returns the access, the id of the insight, and the records at
    /// `record_keys(project)`, all in one round trip. 401 for an unknown token, one of another project than the path's, or one
    /// of a dashboard.
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
        let SharedRecordId::Insight(insight) = shared.id else { return Err(invalid()) };
        Ok((self.access_by_link(call, &hash, project.body()?).await?, insight, items.collect()))
    }

    /// Authorizes the sharing token of a page, whose path has no project: the row of the token names it. Returns the access, the
    /// shared record, and the records at `record_keys(shared)`, in two round trips. 404 for an unknown token.
    pub async fn authorize_shared_page(
        &self,
        call: &Call,
        token: &str,
        record_keys: impl Fn(&SharedRecord) -> Vec<Key>,
    ) -> ApiResult<(Access, SharedRecordId, Vec<Option<Item>>)> {
        if token.len() > SHARING_TOKEN_BYTES_MAX {
            return Err(ApiError::not_found());
        }
        let hash = sharing_token_hash(token);
        let records = &self.store.records;
        let row = records.batch_get(&[keys::share(&hash)]).await?.into_iter().next().flatten();
        let shared: SharedRecord = row.ok_or_else(ApiError::not_found)?.body()?;
        let mut batch = vec![keys::project(shared.project)];
        batch.extend(record_keys(&shared));
        let mut items = records.batch_get(&batch).await?.into_iter();
        let project = items.next().flatten().ok_or_else(ApiError::not_found)?;
        Ok((self.access_by_link(call, &hash, project.body()?).await?, shared.id, items.collect()))
    }

    /// The access of a valid token with this hash, which is counted against the rate limits.
    async fn access_by_link(&self, call: &Call, hash: &str, project: Project) -> ApiResult<Access> {
        if let Some(rates) = &self.rates {
            rates.count(&self.store.records, hash, Bucket::General, call.now).await?;
        }
        request_metrics::record(|metrics| metrics.set_project(project.id));
        Ok(Access::of_link(project))
    }
}
