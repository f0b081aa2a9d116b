//! The definitions feed: the document that SDKs poll and evaluate flags from.
//!
//! A feed is made once per version of a project, by whoever first needs it, and stored compressed; a warm process keeps
//! it and proves it current with the project's version row, which a poll reads beside the key.
//!
//! Must stay true: a feed is never served that is older than the version that the request read, nor for other group
//! types than the project has; the tag of a document changes only when its text does; what is stored is a copy that can
//! be made again, so nothing of it is trusted that does not fit together, and a failure to store it fails no answer.

mod answer;
mod build;
mod measure;
mod memory;
mod stored;

pub use answer::failed;
pub use measure::measured;
pub use memory::Feeds;

use std::sync::Arc;

use axum::http::header;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::http::Call;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError};
use pennon_core::throttle::Bucket;
use pennon_engine::flag::definitions::{CohortForm, matches};

use crate::Flags;
use crate::store::{Version, load};
use memory::{Body, Feed};

/// Answers a poll for the definitions of the project that the request names.
pub async fn poll(flags: &Flags, call: &Call, form: CohortForm) -> ApiResult<Response> {
    let tag = call.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let wanted = |project| wanted(&flags.feeds, project, form, tag.is_some());
    let (access, items) = flags.app.project_counted(call, crate::READ, Bucket::Definitions, wanted).await?;
    if access.project.feature_flag_quota_exhausted {
        return Ok(answer::quota_exhausted());
    }
    let poll = Poll {
        flags,
        project: access.project.id,
        group_types: &access.project.group_types,
        version: Version::of(find(&items, &keys::project_version(access.project.id))),
        now: call.now,
    };
    let mut feed = poll.feed(&items).await?;
    for _ in 0..2 {
        let known = feed.form(form);
        if matches!(known.body, Body::TooLarge) {
            return Err(answer::too_large());
        }
        if tag.is_some_and(|tag| matches(tag, &known.tag)) {
            return Ok(answer::not_modified(known));
        }
        if let Body::Here(gzip) = &known.body {
            return answer::document(call, known, gzip);
        }
        feed = match poll.with_body(&feed, form).await? {
            Some(feed) => feed,
            // Its parts are gone or belong to another feed.
            None => poll.make(true).await?,
        };
    }
    Err(StoreError::Conflict.into())
}

/// What a poll reads beside the key and the project: always the version, and what of a stored feed it may need.
fn wanted(feeds: &Feeds, project: ProjectId, form: CohortForm, conditional: bool) -> Vec<Key> {
    let mut wanted = vec![keys::project_version(project)];
    let known = feeds.get(project);
    if known.is_none() {
        wanted.push(keys::feed_head(project));
        if !conditional {
            wanted.push(keys::feed_part(project, stored::word(form), 0));
        }
    }
    wanted
}

fn find<'a>(items: &'a [Option<Item>], key: &Key) -> Option<&'a Item> {
    items.iter().flatten().find(|item| item.key == *key)
}

/// A poll whose key opens the project.
struct Poll<'a> {
    flags: &'a Flags,
    project: ProjectId,
    group_types: &'a [String],
    version: Version,
    now: DateTime<Utc>,
}

impl Poll<'_> {
    /// Whether `feed` is of the version that was read, or of one that came since.
    fn is_current(&self, feed: &Feed) -> bool {
        feed.number >= self.version.number && feed.group_types == self.group_types
    }

    /// The current feed: remembered, or stored, or made now. `items` are what was read beside the key.
    async fn feed(&self, items: &[Option<Item>]) -> ApiResult<Arc<Feed>> {
        if let Some(feed) = self.flags.feeds.get(self.project).filter(|feed| self.is_current(feed)) {
            return Ok(feed);
        }
        let head = find(items, &keys::feed_head(self.project));
        match head.map(stored::head).transpose()?.filter(|feed| self.is_current(feed)) {
            Some(feed) => {
                let parts: Vec<&Item> = items.iter().flatten().collect();
                let feed = feed.map(|form| stored::joined(form, &parts));
                Ok(self.flags.feeds.keep(self.project, feed))
            }
            None => self.make(head.is_some()).await,
        }
    }

    /// The feed with the body of one form, which is stored; none when its parts are not there or do not fit.
    async fn with_body(&self, feed: &Feed, form: CohortForm) -> ApiResult<Option<Arc<Feed>>> {
        let wanted = stored::parts(self.project, feed.form(form));
        let items = self.flags.app.store.records.batch_get(&wanted).await?;
        let parts: Vec<&Item> = items.iter().flatten().collect();
        let feed = feed.clone().map(|form| stored::joined(form, &parts));
        let is_whole = matches!(feed.form(form).body, Body::Here(_));
        Ok(is_whole.then(|| self.flags.feeds.keep(self.project, feed)))
    }

    /// Makes the feed and stores it, unless another request of this process just has, or another process and this one
    /// does not know yet, which `knows_stored` denies.
    async fn make(&self, knows_stored: bool) -> ApiResult<Arc<Feed>> {
        let turn = self.flags.feeds.turn(self.project);
        let _turn = turn.lock().await;
        let remembered = self.flags.feeds.get(self.project);
        if let Some(feed) = &remembered
            && self.is_current(feed)
            && feed.is_here()
        {
            return Ok(feed.clone());
        }
        let records = &self.flags.app.store.records;
        let head =
            async { if knows_stored { Ok(None) } else { records.get(&keys::feed_head(self.project)).await } };
        let rows = load(self.flags, self.project, self.version, None);
        let (head, rows) = tokio::try_join!(head, rows)?;
        let stored = head.as_ref().map(stored::head).transpose()?;
        if let Some(feed) = stored.clone().filter(|feed| self.is_current(feed)) {
            return Ok(self.flags.feeds.keep(self.project, feed));
        }
        let types = self.group_types.to_vec();
        let built = build::build(self.flags, self.project, &rows, self.version, types).await?;
        let before = stored.as_ref().or(remembered.as_deref());
        let (items, gone) = stored::items(self.project, &built.feed, before, self.now)?;
        let corrected = measure::correct(self.flags, self.project, &rows, built.used);
        let (kept, corrected) = tokio::join!(records.replace(items, gone), corrected);
        if let Err(error) = kept.and(corrected) {
            tracing::warn!(cause = %error, "a definitions feed could not be stored");
        }
        Ok(self.flags.feeds.keep(self.project, built.feed))
    }
}
