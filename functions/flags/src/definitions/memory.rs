//! The feeds that a process keeps, and what a feed is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use axum::body::Bytes;
use pennon_core::model::FeedPlace;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::definitions::CohortForm;

use crate::store::ByteLimitedCache;

/// Bytes of compressed documents that a process keeps.
const FEEDS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The definitions of a project at one version.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The number of the version.
    pub number: i64,
    /// The group types that the documents were made with.
    pub group_types: Vec<String>,
    /// With the cohorts' criteria.
    pub sent: Form,
    /// With lone cohorts spelled out.
    pub flattened: Form,
}

/// One document of a feed.
#[derive(Debug, Clone)]
pub struct Form {
    /// Its entity tag.
    pub tag: String,
    /// Bytes of its text.
    pub length: usize,
    /// The document.
    pub body: Body,
}

/// Where a document is.
#[derive(Debug, Clone)]
pub enum Body {
    /// Here, compressed.
    Here(Bytes),
    /// In the table.
    Stored(FeedPlace),
    /// Nowhere: it would be larger than an answer can be.
    TooLarge,
}

impl Form {
    /// A document that is not made.
    pub fn too_large() -> Form {
        Form { tag: String::new(), length: 0, body: Body::TooLarge }
    }
}

impl Feed {
    /// The document in this form.
    pub fn form(&self, form: CohortForm) -> &Form {
        match form {
            CohortForm::Sent => &self.sent,
            CohortForm::Flattened => &self.flattened,
        }
    }

    /// The feed with `change` made to the bodies of both forms.
    #[must_use]
    pub fn map(mut self, change: impl Fn(&Form) -> Body) -> Feed {
        self.sent.body = change(&self.sent);
        self.flattened.body = change(&self.flattened);
        self
    }

    /// Whether nothing of it has to be read.
    pub fn is_here(&self) -> bool {
        [&self.sent, &self.flattened].iter().all(|form| !matches!(form.body, Body::Stored(_)))
    }

    fn bytes(&self) -> usize {
        let bytes = |form: &Form| match &form.body {
            Body::Here(gzip) => gzip.len(),
            _ => 0,
        };
        // Forms that are the same share their bytes; counted twice they err on the safe side.
        bytes(&self.sent) + bytes(&self.flattened) + 500
    }
}

/// The feeds of one process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Feeds(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    feeds: Mutex<ByteLimitedCache<ProjectId, Arc<Feed>>>,
    turns: Mutex<HashMap<ProjectId, Weak<Turn>>>,
}

/// Whoever holds it makes the feed of a project.
type Turn = tokio::sync::Mutex<()>;

impl Default for Shared {
    fn default() -> Shared {
        Shared { feeds: Mutex::new(ByteLimitedCache::new(FEEDS_BYTES_MAX)), turns: Mutex::default() }
    }
}

impl Feeds {
    /// The feed of `project` as last seen.
    pub fn get(&self, project: ProjectId) -> Option<Arc<Feed>> {
        lock(&self.0.feeds).get(&project).cloned()
    }

    /// Keeps a feed, unless a newer one is kept.
    pub fn keep(&self, project: ProjectId, feed: Feed) -> Arc<Feed> {
        let (bytes, feed) = (feed.bytes(), Arc::new(feed));
        let mut feeds = lock(&self.0.feeds);
        if feeds.get(&project).is_none_or(|known| known.number <= feed.number) {
            feeds.insert(project, feed.clone(), bytes);
        }
        feed
    }

    /// Whose turn it is to make the feed of `project`.
    pub fn turn(&self, project: ProjectId) -> Arc<Turn> {
        let mut turns = lock(&self.0.turns);
        if let Some(turn) = turns.get(&project).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        turns.insert(project, Arc::downgrade(&turn));
        turn
    }

    /// Forgets every feed, as a new process would.
    pub fn clear(&self) {
        *lock(&self.0.feeds) = ByteLimitedCache::new(FEEDS_BYTES_MAX);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
