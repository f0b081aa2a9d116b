//! Which project a public token names, remembered for a while.
//!
//! Must stay true: a token that was given up is refused within [`REMEMBERED`] wherever it opens anything; unknown ones are
//! never remembered, so that a new project can receive at once; the memory is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::MonotonicInstant;
use crate::model::TokenRow;
use crate::store::keys::ProjectId;
use crate::store::{Item, Key, Store, StoreError, keys};

/// How long a token is taken for what it was.
pub const REMEMBERED: Duration = Duration::from_secs(5);
const MOST: usize = 10_000;
/// Longest token that is looked up.
const TOKEN_BYTES_MAX: usize = 200;

/// The tokens that a process has seen. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    seen: Arc<Mutex<HashMap<String, Seen>>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    project: ProjectId,
    /// When it was read; none where that is too long ago for anything.
    at: Option<MonotonicInstant>,
}

impl Tokens {
    /// The project of `token`, if there is one.
    pub async fn project(&self, store: &Store, token: &str) -> Result<Option<ProjectId>, StoreError> {
        self.project_within(store, token, REMEMBERED).await
    }

    /// The project of `token` as of at most `age` ago, if there is one.
    pub async fn project_within(
        &self,
        store: &Store,
        token: &str,
        age: Duration,
    ) -> Result<Option<ProjectId>, StoreError> {
        match self.remembered(token, age) {
            Some(project) => Ok(Some(project)),
            None => Ok(self.project_and(store, token, |_| Vec::new()).await?.map(|(project, _)| project)),
        }
    }

    /// The project of `token` as it is now, and the records at `wanted` of it. They are read beside the token, in one round
    /// trip, where the process has met the token before; else they are left out.
    pub async fn project_and(
        &self,
        store: &Store,
        token: &str,
        wanted: impl Fn(ProjectId) -> Vec<Key>,
    ) -> Result<Option<(ProjectId, Vec<Option<Item>>)>, StoreError> {
        if !is_possible(token) {
            return Ok(None);
        }
        let guess = self.guess(token);
        let mut batch = vec![keys::token(token)];
        batch.extend(guess.into_iter().flat_map(wanted));
        let mut found = store.records.batch_get(&batch).await?.into_iter();
        let Some(item) = found.next().flatten() else {
            self.lock().remove(token);
            return Ok(None);
        };
        let project = item.body::<TokenRow>()?.project;
        let mut seen = self.lock();
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(token.to_owned(), Seen { project, at: Some(MonotonicInstant::now()) });
        let found = if guess == Some(project) { found.collect() } else { Vec::new() };
        Ok(Some((project, found)))
    }

    /// The project of `token` as the process has found it at most `age` ago.
    pub fn remembered(&self, token: &str, age: Duration) -> Option<ProjectId> {
        let seen = *self.lock().get(token)?;
        seen.at.filter(|at| at.is_younger_than(age)).map(|_| seen.project)
    }

    /// The project that `token` led to the last time.
    pub fn guess(&self, token: &str) -> Option<ProjectId> {
        self.lock().get(token).map(|seen| seen.project)
    }

    /// Has every token read anew, as if more time had passed than they are remembered for.
    pub fn expire(&self) {
        self.lock().values_mut().for_each(|seen| seen.at = None);
    }

    /// Forgets every token, as a new process would.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a text can be a token at all.
fn is_possible(token: &str) -> bool {
    !token.is_empty() && token.len() <= TOKEN_BYTES_MAX
}
