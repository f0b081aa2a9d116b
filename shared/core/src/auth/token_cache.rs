//! A cache of the projects of public project tokens.
//!
//! Must stay true: a revoked token is rejected after at most [`TOKEN_CACHE_TTL`]; unknown tokens are never cached, so that a new
//! project receives events at once; the cache has a maximum number of entries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::MonotonicInstant;
use crate::model::TokenRow;
use crate::store::keys::ProjectId;
use crate::store::{Item, Key, Store, StoreError, keys};

/// Time to live of a cached token.
pub const TOKEN_CACHE_TTL: Duration = Duration::from_secs(5);
const CACHED_TOKENS_MAX: usize = 10_000;
/// Maximum length of a token.
const TOKEN_BYTES_MAX: usize = 200;

/// The cached tokens of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct TokenCache {
    cached: Arc<Mutex<HashMap<String, CachedToken>>>,
}

#[derive(Debug, Clone, Copy)]
struct CachedToken {
    project: ProjectId,
    /// When the token was read; `None` if the entry is expired.
    read_at: Option<MonotonicInstant>,
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
        let mut items = store.records.batch_get(&batch).await?.into_iter();
        let Some(item) = items.next().flatten() else {
            self.lock().remove(token);
            return Ok(None);
        };
        let project = item.body::<TokenRow>()?.project;
        let mut cached = self.lock();
        if cached.len() >= CACHED_TOKENS_MAX {
            cached.clear();
        }
        cached.insert(token.to_owned(), CachedToken { project, read_at: Some(MonotonicInstant::now()) });
        let records = if predicted == Some(project) { items.collect() } else { Vec::new() };
        Ok(Some((project, records)))
    }

    /// The cached project of `token`, if it was read at most `age` ago.
    pub fn cached_project(&self, token: &str, age: Duration) -> Option<ProjectId> {
        let cached = *self.lock().get(token)?;
        cached.read_at.filter(|at| at.is_younger_than(age)).map(|_| cached.project)
    }

    /// The project that `token` resolved to the last time, possibly outdated.
    pub fn predict_project(&self, token: &str) -> Option<ProjectId> {
        self.lock().get(token).map(|cached| cached.project)
    }

    /// Expires every token, as if [`TOKEN_CACHE_TTL`] had passed.
    pub fn expire(&self) {
        self.lock().values_mut().for_each(|cached| cached.read_at = None);
    }

    /// Removes every token, as in a new process.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedToken>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a text has the length of a token.
fn is_possible(token: &str) -> bool {
    !token.is_empty() && token.len() <= TOKEN_BYTES_MAX
}
