//! Wakes compaction early when so many batches wait that queries would become slow.
//!
//! Must stay true: a writer never waits here; only the batches of this process are counted, so that nothing has
//! to be read.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Waiting batches that wake compaction: a twentieth of what one query may read.
pub(crate) const BLOCKS: usize = 1000;
/// Waiting compressed bytes that wake compaction.
pub(crate) const BYTES: usize = 8 << 20;

/// Batches that this process stored since it last woke compaction.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    blocks: AtomicUsize,
    bytes: AtomicUsize,
    enough: Notify,
}

impl Backlog {
    /// Counts a batch.
    pub(crate) fn add(&self, bytes: usize) {
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if blocks >= BLOCKS || bytes >= BYTES {
            self.wake();
        }
    }

    /// Wakes the waiting caller.
    pub(crate) fn wake(&self) {
        self.blocks.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.enough.notify_one();
    }

    /// Waits until so many batches wait that compaction should begin at once. For one caller at a time.
    pub(super) async fn wait(&self) {
        self.enough.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn compaction_is_woken_at_the_number_of_batches_and_at_their_bytes() {
        for (batches, bytes) in [(BLOCKS, 1), (8, BYTES / 8)] {
            let waiting = Backlog::default();
            (1..batches).for_each(|_| waiting.add(bytes));
            assert!(waiting.enough.notified().now_or_never().is_none(), "one batch before");
            waiting.add(bytes);
            assert!(waiting.enough.notified().now_or_never().is_some());
            assert!(waiting.enough.notified().now_or_never().is_none(), "woken once");
            waiting.add(bytes);
            assert!(waiting.enough.notified().now_or_never().is_none(), "counted from anew");
        }
    }
}
