//! Limits how many request bodies are decoded at the same time, because a small body may expand to a large value.
//!
//! Must stay true: a permit is released when the work ends, not when the waiting request ends, because the blocking
//! thread continues after a client has disconnected.

use std::sync::Arc;

use pennon_core::error::ApiError;
use tokio::sync::Semaphore;

/// A semaphore around blocking decode work. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct DecodeLimiter(Arc<Semaphore>);

impl DecodeLimiter {
    /// A limiter with `permits` permits.
    pub(crate) fn new(permits: usize) -> DecodeLimiter {
        DecodeLimiter(Arc::new(Semaphore::new(permits)))
    }

    /// Waits for a permit, then runs `work` on a blocking thread that holds the permit. 500 if `work` panics.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = self.0.clone().acquire_owned().await.map_err(|e| ApiError::internal(&e))?;
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        task.await.map_err(|e| ApiError::internal(&e))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::Poll;

    #[tokio::test]
    async fn a_permit_is_held_until_the_work_ends_even_if_the_caller_is_dropped() {
        let limiter = DecodeLimiter::new(1);
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (end, ends) = mpsc::channel::<()>();
        let mut first = Box::pin(limiter.run_blocking(move || {
            begins.send(()).unwrap();
            ends.recv().unwrap();
        }));
        tokio::select! {
            _ = &mut first => panic!("the work has not been allowed to end yet"),
            begun = begun => begun.unwrap(),
        }
        // The client disconnects.
        drop(first);
        let mut second = pin!(limiter.run_blocking(|| 2));
        poll_fn(|context| {
            assert!(second.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(limiter.0.available_permits(), 0, "the first work is still running");
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 2);
        // A panic releases the permit too.
        assert!(limiter.run_blocking(|| panic!("as a test")).await.is_err());
        assert_eq!(limiter.run_blocking(|| 3).await.unwrap(), 3);
    }
}
