//! How much memory one question may take, and takes, with all its scans.
//!
//! Must stay true: memory is taken before it is filled, so that a question that is too large is refused and never more
//! than the room and what is being decoded is in use; what a question takes in the end does not depend on which of its
//! scans came first, nor on what was decoded side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::EventStoreError;

/// The memory that all scans of one question may take together, and take. Clones are the same one.
#[derive(Debug, Clone)]
pub struct ScanRoom(Arc<Room>);

#[derive(Debug)]
struct Room {
    most: u64,
    taken: AtomicU64,
}

impl ScanRoom {
    pub(crate) fn new(most: u64) -> ScanRoom {
        ScanRoom(Arc::new(Room { most, taken: AtomicU64::new(0) }))
    }

    /// What is left.
    pub(crate) fn left(&self) -> u64 {
        self.0.most.saturating_sub(self.0.taken.load(Ordering::Relaxed))
    }

    /// Takes so many bytes for as long as the question lasts, if they are left.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), EventStoreError> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.0.most);
        let taken = self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| {
            let most = self.0.most;
            EventStoreError::TooLarge(format!(
                "The events of the question and their properties, those for sessions and cohorts included, take more \
                 than {most} bytes. Narrow the dates or the events."
            ))
        })
    }

    /// Takes nothing yet, and what is taken by it until it goes.
    pub(crate) fn for_now(&self) -> Taken {
        Taken { room: self.clone(), bytes: 0 }
    }
}

/// Memory that is taken until this goes: while rows are made of which it is not known yet what they take.
#[derive(Debug)]
pub(crate) struct Taken {
    room: ScanRoom,
    bytes: u64,
}

impl Taken {
    /// Takes more, if that is left.
    pub(crate) fn more(&mut self, bytes: u64) -> Result<(), EventStoreError> {
        self.room.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes this much altogether, more or less than before.
    pub(crate) fn be(&mut self, bytes: u64) -> Result<(), EventStoreError> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.more(more),
            None => {
                self.room.0.taken.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
                self.bytes = bytes;
                Ok(())
            }
        }
    }

    /// What is taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The memory of a process for what is being decoded: who needs more than is left waits.
#[derive(Debug)]
pub(crate) struct DecodingTurns {
    units: Arc<Semaphore>,
    all: u32,
}

/// Bytes that are given out together.
const UNIT: u64 = 1 << 10;

impl DecodingTurns {
    /// So many bytes for all.
    pub(crate) fn new(bytes: u64) -> DecodingTurns {
        let all = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        DecodingTurns { units: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// So many bytes until what is returned goes. Who needs more than there are in all is alone. None is never said.
    pub(crate) async fn of(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, self.all);
        self.units.clone().acquire_many_owned(units).await.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    #[test]
    fn what_does_not_fit_is_refused_and_takes_nothing() {
        let room = ScanRoom::new(100);
        assert!(room.take(60).is_ok());
        let mut now = room.clone().for_now();
        assert!(now.more(41).is_err());
        assert!(now.more(40).is_ok());
        assert_eq!((now.bytes(), room.left()), (40, 0));
        assert!(now.be(41).is_err());
        assert!(now.be(10).is_ok());
        assert_eq!((now.bytes(), room.left()), (10, 30));
        drop(now);
        assert_eq!(room.left(), 40);
        assert!(room.take(u64::MAX).is_err());
        assert!(room.take(40).is_ok());
        assert!(room.take(1).is_err());
    }

    #[tokio::test]
    async fn who_needs_more_than_is_left_waits_and_who_needs_more_than_all_is_alone() {
        let turns = DecodingTurns::new(100 * UNIT);
        let one = turns.of(60 * UNIT).await;
        assert!(turns.of(41 * UNIT).now_or_never().is_none());
        let other = turns.of(40 * UNIT).now_or_never().unwrap();
        assert!(other.is_some());
        drop((one, other));
        let all = turns.of(u64::MAX).now_or_never().unwrap();
        assert!(all.is_some() && turns.of(0).now_or_never().is_none());
    }
}
