//! A cache of the projects of public project tokens.
//!
//! Must stay true: a revoked token is rejected after at most [`TOKEN_CACHE_TTL`]; unknown tokens are never cached, so that a new
//! project receives events at once; the cache has a maximum number of entries.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;

use crate::clock::CacheInstant;
use crate::model::TokenRow;
use crate::store::keys::ProjectId;
use crate::store::{Item, Key, Store, StoreError, keys};

/// Time to live of a cached token.
pub const TOKEN_CACHE_TTL: Duration = Duration::from_secs(5);
const CACHED_TOKENS_MAX: usize = 10_000;
/// Maximum length of a project token. Longer ones are unknown without a read.
pub const TOKEN_BYTES_MAX: usize = 200;

/// The cached tokens of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct TokenCache {
    cached: Arc<Cache<String, CachedToken>>,
}

impl Default for TokenCache {
    fn default() -> TokenCache {
        TokenCache { cached: Arc::new(Cache::new(CACHED_TOKENS_MAX)) }
    }
}

#[derive(Debug, Clone, Copy)]
struct CachedToken {
    project: ProjectId,
    /// When the token was read; `None` if the entry is expired.
    read_at: Option<CacheInstant>,
}

impl TokenCache {
    /// The project of `token`, if there is one.
    pub async fn project(&self, store: &Store, token: &str) -> Result<Option<ProjectId>, StoreError> {
        self.project_within(store, token, TOKEN_CACHE_TTL).await
    }

    /// The project of `token`, if there is one, read at most `age` ago.
    pub async fn project_within(
        &self,
        store: &Store,
        token: &str,
        age: Duration,
    ) -> Result<Option<ProjectId>, StoreError> {
        match self.cached_project(token, age) {
            Some(project) => Ok(Some(project)),
            None => {
                Ok(self.fetch_project_with(store, token, |_| Vec::new()).await?.map(|(project, _)| project))
            }
        }
    }

    /// Reads the project of `token` and the records at `record_keys(project)`. The records are read in the same round trip if
    /// this process has seen the token before; otherwise they are omitted.
    pub async fn fetch_project_with(
        &self,
        store: &Store,
        token: &str,
        record_keys: impl Fn(ProjectId) -> Vec<Key>,
    ) -> Result<Option<(ProjectId, Vec<Option<Item>>)>, StoreError> {
        if !is_possible(token) {
            return Ok(None);
        }
        let predicted = self.predict_project(token);
        let mut batch = vec![keys::token(token)];
        batch.extend(predicted.into_iter().flat_map(record_keys));
        // Before the read: it may take long, and what it read is not younger than its beginning.
        let read_at = Some(CacheInstant::now());
        let mut items = store.records.batch_get(&batch).await?.into_iter();
        let Some(item) = items.next().flatten() else {
            self.cached.remove(token);
            return Ok(None);
        };
        let project = item.body::<TokenRow>()?.project;
        self.cached.insert(token.to_owned(), CachedToken { project, read_at });
        let records = if predicted == Some(project) { items.collect() } else { Vec::new() };
        Ok(Some((project, records)))
    }

    /// The cached project of `token`, if it was read at most `age` ago.
    pub fn cached_project(&self, token: &str, age: Duration) -> Option<ProjectId> {
        let cached = self.cached.get(token)?;
        cached.read_at.filter(|at| at.is_younger_than(age)).map(|_| cached.project)
    }

    /// The project that `token` resolved to the last time, possibly outdated.
    pub fn predict_project(&self, token: &str) -> Option<ProjectId> {
        self.cached.get(token).map(|cached| cached.project)
    }

    /// Expires every token, as if [`TOKEN_CACHE_TTL`] had passed.
    pub fn expire(&self) {
        for (token, cached) in self.cached.iter() {
            self.cached.insert(token, CachedToken { read_at: None, ..cached });
        }
    }

    /// Removes every token, as in a new process.
    pub fn clear(&self) {
        self.cached.clear();
    }
}

/// Whether a text has the length of a token.
fn is_possible(token: &str) -> bool {
    !token.is_empty() && token.len() <= TOKEN_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_cached_for_less_than_five_seconds() {
        assert_eq!(TOKEN_CACHE_TTL, Duration::from_secs(5));
        let cache = TokenCache::default();
        for (token, age) in [("young", 4_000), ("old", 5_001)] {
            let read_at = Some(CacheInstant::ago(Duration::from_millis(age)));
            cache.cached.insert(token.to_owned(), CachedToken { project: 7, read_at });
        }
        assert_eq!(cache.cached_project("young", TOKEN_CACHE_TTL), Some(7));
        assert_eq!(cache.cached_project("old", TOKEN_CACHE_TTL), None);
        assert_eq!(cache.predict_project("old"), Some(7), "only to prefetch its records");
    }

    #[test]
    fn a_token_is_read_again_after_a_freeze() {
        let cache = TokenCache::default();
        for (token, seconds) in [("short", 4), ("long", 600)] {
            let read_at = Some(CacheInstant::before_freeze(Duration::from_secs(seconds)));
            cache.cached.insert(token.to_owned(), CachedToken { project: 7, read_at });
        }
        assert_eq!(cache.cached_project("short", TOKEN_CACHE_TTL), Some(7));
        assert_eq!(cache.cached_project("long", TOKEN_CACHE_TTL), None);
    }
}
