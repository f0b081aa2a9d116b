//! Optimistic concurrency: a write that meets a version conflict is attempted again.
//!
//! Must stay true: an attempt that follows a conflict reads its records itself, after the wait, so that it never works
//! with records that are as old as the wait.

use crate::error::{ApiError, ApiResult};
use crate::store::{Item, Key, StoreError, Table, back_off_after_conflict};

/// Seconds after which a client may retry a write that gave up.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The attempts of one write: `loop { read, validate, write, and on a conflict: retries.back_off().await?; }`.
#[derive(Debug)]
pub struct ConflictRetries {
    attempts_max: u32,
    conflicts: u32,
}

impl ConflictRetries {
    /// At most `attempts_max` attempts. The first one starts at once.
    pub fn new(attempts_max: u32) -> ConflictRetries {
        ConflictRetries { attempts_max, conflicts: 0 }
    }

    /// Waits after a version conflict, with exponential backoff and jitter. 503 after the last attempt.
    pub async fn back_off(&mut self) -> ApiResult<()> {
        self.conflicts += 1;
        if self.conflicts >= self.attempts_max {
            return Err(ApiError::busy(RETRY_AFTER_SECONDS));
        }
        back_off_after_conflict(self.conflicts).await;
        Ok(())
    }
}

/// A record that every attempt of a write reads: the first one finds it prefetched.
#[derive(Debug)]
pub struct PrefetchedItem {
    item: Option<Item>,
    /// The key to read it again; `None` when there was no such record.
    key: Option<Key>,
}

impl PrefetchedItem {
    /// The item that was read in parallel with the authorization.
    pub fn new(item: Option<Item>) -> PrefetchedItem {
        PrefetchedItem { key: item.as_ref().map(|item| item.key.clone()), item }
    }

    /// The prefetched item the first time, then the current one.
    pub async fn load(&mut self, records: &Table) -> Result<Option<Item>, StoreError> {
        match (self.item.take(), &self.key) {
            (None, Some(key)) => records.get(key).await,
            (item, _) => Ok(item),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_write_gives_up_after_its_last_attempt() {
        let mut retries = ConflictRetries::new(3);
        let mut attempts = 0;
        let given_up = loop {
            attempts += 1;
            if let Err(error) = retries.back_off().await {
                break error;
            }
        };
        assert_eq!(given_up, ApiError::busy(1));
        assert_eq!(attempts, 3);
    }
}
