//! The feed cache of a process, and the feed type.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::body::Bytes;
use pennon_core::model::FeedPlace;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::definitions::CohortForm;

use crate::store::ByteLimitedCache;

/// Bytes of cached compressed documents.
const FEEDS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The definitions of a project at one version.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The version number.
    pub number: i64,
    /// The group types that the documents contain.
    pub group_types: Vec<String>,
    /// The document with the cohorts' criteria.
    pub sent: FeedDocument,
    /// The document with single cohorts flattened into property conditions.
    pub flattened: FeedDocument,
}

/// One document of a feed.
#[derive(Debug, Clone)]
pub struct FeedDocument {
    /// Its ETag.
    pub etag: String,
    /// Uncompressed size in bytes.
    pub text_bytes: usize,
    /// The content.
    pub body: DocumentBody,
}

/// Content of a document.
#[derive(Debug, Clone)]
pub enum DocumentBody {
    /// In memory, gzip-compressed.
    Loaded(Bytes),
    /// In the table.
    Stored(FeedPlace),
    /// Not built: it is larger than a response may be.
    TooLarge,
}

impl FeedDocument {
    /// A document above the size limit.
    pub fn too_large() -> FeedDocument {
        FeedDocument { etag: String::new(), text_bytes: 0, body: DocumentBody::TooLarge }
    }
}

impl Feed {
    /// The document in this form.
    pub fn document(&self, form: CohortForm) -> &FeedDocument {
        match form {
            CohortForm::Sent => &self.sent,
            CohortForm::Flattened => &self.flattened,
        }
    }

    /// Replaces the bodies of both documents.
    #[must_use]
    pub fn map_bodies(mut self, change: impl Fn(&FeedDocument) -> DocumentBody) -> Feed {
        self.sent.body = change(&self.sent);
        self.flattened.body = change(&self.flattened);
        self
    }

    /// Whether no document has to be read from the table.
    pub fn is_loaded(&self) -> bool {
        [&self.sent, &self.flattened].iter().all(|document| !matches!(document.body, DocumentBody::Stored(_)))
    }

    fn bytes(&self) -> usize {
        let bytes = |document: &FeedDocument| match &document.body {
            DocumentBody::Loaded(gzip) => gzip.len(),
            _ => 0,
        };
        // Identical documents share their bytes; counting them twice errs on the safe side.
        bytes(&self.sent) + bytes(&self.flattened) + 500
    }
}

/// The feed cache of one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FeedCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    feeds: ByteLimitedCache<ProjectId, Arc<Feed>>,
    build_locks: Mutex<HashMap<ProjectId, Weak<BuildLock>>>,
}

/// Held while the feed of a project is built.
type BuildLock = tokio::sync::Mutex<()>;

impl Default for Shared {
    fn default() -> Shared {
        Shared { feeds: ByteLimitedCache::new(FEEDS_BYTES_MAX), build_locks: Mutex::default() }
    }
}

impl FeedCache {
    /// The cached feed of `project`.
    pub fn get(&self, project: ProjectId) -> Option<Arc<Feed>> {
        self.0.feeds.get(&project)
    }

    /// Caches a feed, unless a newer one is cached.
    pub fn put(&self, project: ProjectId, feed: Feed) -> Arc<Feed> {
        let (bytes, feed) = (feed.bytes(), Arc::new(feed));
        if self.0.feeds.get(&project).is_none_or(|cached| cached.number <= feed.number) {
            self.0.feeds.insert(project, feed.clone(), bytes);
        }
        feed
    }

    /// The lock that serializes building the feed of `project`.
    pub fn build_lock(&self, project: ProjectId) -> Arc<BuildLock> {
        let mut build_locks = self.0.build_locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(build_lock) = build_locks.get(&project).and_then(Weak::upgrade) {
            return build_lock;
        }
        build_locks.retain(|_, build_lock| build_lock.strong_count() > 0);
        let build_lock = Arc::new(BuildLock::default());
        build_locks.insert(project, Arc::downgrade(&build_lock));
        build_lock
    }

    /// Clears the cache, as in a new process.
    pub fn clear(&self) {
        self.0.feeds.clear();
    }
}
