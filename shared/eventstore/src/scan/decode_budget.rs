//! How much memory all questions take together for what is being decoded at one time.
//!
//! Must stay true: memory is taken before it is filled; who waits for it holds none of it, so that nobody waits for ever.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory of a process for what is being decoded: who needs more than is left waits.
#[derive(Debug)]
pub(crate) struct DecodeBudget {
    units: Arc<Semaphore>,
    all: u32,
}

/// Bytes that are given out together.
const UNIT: u64 = 1 << 10;

impl DecodeBudget {
    /// So many bytes for all.
    pub(crate) fn new(bytes: u64) -> DecodeBudget {
        let all = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        DecodeBudget { units: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// So many bytes until what is returned goes. Who needs more than there are in all is alone. None is never said.
    pub(crate) async fn acquire(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, self.all);
        self.units.clone().acquire_many_owned(units).await.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn who_needs_more_than_is_left_waits_and_who_needs_more_than_all_is_alone() {
        let decode_budget = DecodeBudget::new(100 * UNIT);
        let one = decode_budget.acquire(60 * UNIT).await;
        assert!(decode_budget.acquire(41 * UNIT).now_or_never().is_none());
        let other = decode_budget.acquire(40 * UNIT).now_or_never().unwrap();
        assert!(other.is_some());
        drop((one, other));
        let all = decode_budget.acquire(u64::MAX).now_or_never().unwrap();
        assert!(all.is_some() && decode_budget.acquire(0).now_or_never().is_none());
    }
}
