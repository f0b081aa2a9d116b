//! Memory budget for data that is being decoded, shared by all queries.
//!
//! Must stay true: memory is reserved before it is filled; a waiting task holds none of it, so there is no
//! deadlock.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A semaphore over bytes: who needs more than is left waits.
#[derive(Debug)]
pub(crate) struct DecodeBudget {
    units: Arc<Semaphore>,
    all: u32,
}

/// Bytes of one semaphore permit.
const UNIT: u64 = 1 << 10;

impl DecodeBudget {
    /// A budget of `bytes`.
    pub(crate) fn new(bytes: u64) -> DecodeBudget {
        let all = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        DecodeBudget { units: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// Reserves `bytes` until the permit is dropped. A request above the whole budget waits until it has all of
    /// it. Always `Some`, because the semaphore is never closed.
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
