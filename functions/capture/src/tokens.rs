//! Which project a token names, remembered for a few seconds.
//!
//! Must stay true: a token that was given up is refused within [`REMEMBERED`]; unknown ones are never remembered, so
//! that a new project can receive at once; the memory is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_core::clock::Mark;
use pennon_core::model::TokenRow;
use pennon_core::store::{Store, StoreError, keys};

const REMEMBERED: Duration = Duration::from_secs(5);
const MOST: usize = 10_000;
/// Longest token that is looked up.
const TOKEN_BYTES_MAX: usize = 200;

/// Tokens seen a moment ago.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    seen: Arc<Mutex<HashMap<String, Seen>>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    project: u64,
    at: Mark,
}

impl Tokens {
    /// The project of `token`, if there is one.
    pub async fn project(&self, store: &Store, token: &str) -> Result<Option<u64>, StoreError> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        if let Some(seen) = self.remembered(token) {
            return Ok(Some(seen));
        }
        let Some(item) = store.records.get(&keys::token(token)).await? else { return Ok(None) };
        let project = item.body::<TokenRow>()?.project;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(token.to_owned(), Seen { project, at: Mark::here() });
        Ok(Some(project))
    }

    fn remembered(&self, token: &str) -> Option<u64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(token).filter(|seen| seen.at.is_younger_than(REMEMBERED)).map(|seen| seen.project)
    }
}
