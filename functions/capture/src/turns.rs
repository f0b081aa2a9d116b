//! Turns at work that takes memory: only so much of it is done at once.
//!
//! Must stay true: a turn ends with the work and not with whoever waits for it, because a thread goes on when a client
//! has hung up.

use std::sync::Arc;

use pennon_core::error::ApiError;
use tokio::sync::Semaphore;

/// As many turns as there are at once. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(crate) fn new(count: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(count)))
    }

    /// Does `work` on a thread that may be busy for a while, when it is its turn.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.0.clone().acquire_owned().await.map_err(|e| ApiError::internal(&e))?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(|e| ApiError::internal(&e))
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
    async fn a_turn_lasts_as_long_as_the_work_whoever_waits() {
        let turns = Turns::new(1);
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (end, ends) = mpsc::channel::<()>();
        let mut first = Box::pin(turns.take(move || {
            begins.send(()).unwrap();
            ends.recv().unwrap();
        }));
        tokio::select! {
            _ = &mut first => panic!("it waits for its end"),
            begun = begun => begun.unwrap(),
        }
        // The client hangs up.
        drop(first);
        let mut second = pin!(turns.take(|| 2));
        poll_fn(|context| {
            assert!(second.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(turns.0.available_permits(), 0, "the first one is still at work");
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap(), 2);
        // One that panics ends its turn too.
        assert!(turns.take(|| panic!("as a test")).await.is_err());
        assert_eq!(turns.take(|| 3).await.unwrap(), 3);
    }
}
