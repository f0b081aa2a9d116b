//! The local evaluation feed: the flag definitions that SDKs poll and evaluate themselves.
//!
//! A feed is built once per project version, by the first request that needs it, and stored compressed. A warm process
//! caches it and validates it with the project's version, which a poll reads in parallel with the API key.
//!
//! Must stay true: a response is never older than the project version that the request read, and matches the project's
//! group types; the ETag of a document changes only when its text does; the stored feed is a cache that can be rebuilt,
//! so inconsistent parts are ignored, and a failure to store it fails no request.

mod build;
mod cache;
mod responses;
mod size_check;
mod table_format;

pub use cache::FeedCache;
pub use responses::error_response;
pub use size_check::FeedSizeCheck;

use std::sync::Arc;

use axum::http::header;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::http::Call;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError};
use pennon_core::throttle::Bucket;
use pennon_flag_rules::definitions::{CohortForm, matches};

use crate::Flags;
use crate::store::{ProjectVersion, load_rows};
use cache::{DocumentBody, Feed};

/// Handles a poll for the definitions of the project in the request.
pub async fn poll(flags: &Flags, call: &Call, form: CohortForm) -> ApiResult<Response> {
    let if_none_match = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let keys_to_read = |project| keys_to_read(&flags.feeds, project, form, if_none_match.is_some());
    let (access, items) = flags
        .app
        .authorize_project_in_bucket(call, crate::READ_SCOPE, Bucket::Definitions, keys_to_read)
        .await?;
    if access.project.feature_flag_quota_exhausted {
        return Ok(responses::quota_exhausted());
    }
    let request = FeedRequest {
        flags,
        project: access.project.id,
        group_types: &access.project.group_types,
        version: ProjectVersion::from_item(find_item(&items, &keys::project_version(access.project.id))),
        now: call.now,
    };
    let mut feed = request.get_feed(&items).await?;
    for _ in 0..2 {
        let document = feed.document(form);
        if matches!(document.body, DocumentBody::TooLarge) {
            return Err(responses::too_large());
        }
        if if_none_match.is_some_and(|if_none_match| matches(if_none_match, &document.etag)) {
            return Ok(responses::not_modified(document));
        }
        if let DocumentBody::Loaded(gzip) = &document.body {
            return responses::document_response(call, document, gzip);
        }
        feed = match request.load_document(&feed, form).await? {
            Some(feed) => feed,
            // Its stored parts are missing or belong to another feed.
            None => request.build_feed(true).await?,
        };
    }
    Err(StoreError::Conflict.into())
}

/// The table keys that a poll reads in parallel with authorization: always the project's version, and the parts of the
/// stored feed that it may need.
fn keys_to_read(feeds: &FeedCache, project: ProjectId, form: CohortForm, conditional: bool) -> Vec<Key> {
    let mut keys = vec![keys::project_version(project)];
    let cached = feeds.get(project);
    if cached.is_none() {
        keys.push(keys::feed_head(project));
        if !conditional {
            keys.push(keys::feed_part(project, table_format::form_name(form), 0));
        }
    }
    keys
}

fn find_item<'a>(items: &'a [Option<Item>], key: &Key) -> Option<&'a Item> {
    items.iter().flatten().find(|item| item.key == *key)
}

/// An authorized poll.
struct FeedRequest<'a> {
    flags: &'a Flags,
    project: ProjectId,
    group_types: &'a [String],
    version: ProjectVersion,
    now: DateTime<Utc>,
}

impl FeedRequest<'_> {
    /// Whether `feed` is at least as new as the version that was read.
    fn is_current(&self, feed: &Feed) -> bool {
        feed.number >= self.version.number && feed.group_types == self.group_types
    }

    /// The current feed: cached, stored, or built now. `items` were read in parallel with authorization.
    async fn get_feed(&self, items: &[Option<Item>]) -> ApiResult<Arc<Feed>> {
        if let Some(feed) = self.flags.feeds.get(self.project).filter(|feed| self.is_current(feed)) {
            return Ok(feed);
        }
        let head = find_item(items, &keys::feed_head(self.project));
        match head.map(table_format::decode_head).transpose()?.filter(|feed| self.is_current(feed)) {
            Some(feed) => {
                let parts: Vec<&Item> = items.iter().flatten().collect();
                let feed = feed.map_bodies(|document| table_format::assemble(document, &parts));
                Ok(self.flags.feeds.put(self.project, feed))
            }
            None => self.build_feed(head.is_some()).await,
        }
    }

    /// The feed with one stored document loaded; `None` when parts are missing or do not match.
    async fn load_document(&self, feed: &Feed, form: CohortForm) -> ApiResult<Option<Arc<Feed>>> {
        let keys_to_read = table_format::part_keys(self.project, feed.document(form));
        let items = self.flags.app.store.records.batch_get(&keys_to_read).await?;
        let parts: Vec<&Item> = items.iter().flatten().collect();
        let feed = feed.clone().map_bodies(|document| table_format::assemble(document, &parts));
        let is_whole = matches!(feed.document(form).body, DocumentBody::Loaded(_));
        Ok(is_whole.then(|| self.flags.feeds.put(self.project, feed)))
    }

    /// Builds and stores the feed (single-flight per project), unless another request of this process just did, or
    /// another process did: `knows_stored_head` is false when the stored head was not read yet.
    async fn build_feed(&self, knows_stored_head: bool) -> ApiResult<Arc<Feed>> {
        let build_lock = self.flags.feeds.build_lock(self.project);
        let _build_guard = build_lock.lock().await;
        let cached = self.flags.feeds.get(self.project);
        if let Some(feed) = &cached
            && self.is_current(feed)
            && feed.is_loaded()
        {
            return Ok(feed.clone());
        }
        let records = &self.flags.app.store.records;
        let head = async {
            if knows_stored_head { Ok(None) } else { records.get(&keys::feed_head(self.project)).await }
        };
        let rows = load_rows(self.flags, self.project, self.version, None);
        let (head, rows) = tokio::try_join!(head, rows)?;
        let stored = head.as_ref().map(table_format::decode_head).transpose()?;
        if let Some(feed) = stored.clone().filter(|feed| self.is_current(feed)) {
            return Ok(self.flags.feeds.put(self.project, feed));
        }
        let types = self.group_types.to_vec();
        let build = build::build(self.flags, self.project, &rows, self.version, types).await?;
        let before = stored.as_ref().or(cached.as_deref());
        let (items, obsolete_keys) = table_format::encode(self.project, &build.feed, before, self.now)?;
        let correction = size_check::correct_recorded_size(self.flags, self.project, &rows, build.used_bytes);
        let (saved, size_corrected) = tokio::join!(records.replace(items, obsolete_keys), correction);
        if let Err(error) = saved.and(size_corrected) {
            tracing::warn!(cause = %error, "the local evaluation feed or its recorded size could not be stored");
        }
        Ok(self.flags.feeds.put(self.project, build.feed))
    }
}
