//! Threads that decode what was read.
//!
//! Must stay true: as many threads decode at once as there are cores, however many reads have finished, so that a scan can have many
//! reads on the way; nothing is awaited while a thread decodes.

use std::sync::LazyLock;

use tokio::sync::Semaphore;

use crate::error::EventStoreError;

/// A permit for each core.
static DECODERS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores()));

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Runs `work` on a blocking thread, as soon as fewer than the cores decode.
pub(crate) async fn decode_on_thread<T: Send + 'static>(
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
