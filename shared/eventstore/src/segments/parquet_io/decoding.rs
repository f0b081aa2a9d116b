//! Threads that decode what scans have read.
//!
//! Must stay true: at most as many threads decode for scans at once as there are cores, however many ranges were read ahead of them;
//! whatever only plans reads, and whatever merges or looks up, does not wait for them.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

use crate::error::EventStoreError;
use crate::threads::cores;

/// A permit for each core.
static DECODERS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores()));

/// Which threads decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeThreads {
    /// Any blocking thread, at once.
    Any,
    /// One of as many as there are cores, in the order of the calls.
    InTurn,
}

impl DecodeThreads {
    /// Runs `work` on a blocking thread.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EventStoreError> {
        match self {
            DecodeThreads::Any => Ok(tokio::task::spawn_blocking(work).await?),
            DecodeThreads::InTurn => decode_in_turn(work).await,
        }
    }
}

/// Runs `work` on a blocking thread, as soon as fewer threads than cores decode for scans.
pub(crate) async fn decode_in_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EventStoreError> {
    // An error means a closed semaphore, which this one never is.
    let permit = DECODERS.acquire().await.ok();
    let done = tokio::task::spawn_blocking(move || {
        // Returned when the work has ended, even if the caller was dropped.
        let _permit = permit;
        work()
    });
    Ok(done.await?)
}
