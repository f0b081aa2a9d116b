//! The connections that are open, what each is doing, and the bytes that their unfinished requests hold.
//!
//! Must stay true: a slot is free again when its connection has ended, whatever ended it; a connection whose request is
//! being answered is never evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::limits::ConnectionLimits;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a request.
    Idle,
    /// The response is sent; what the client still sends is read and discarded.
    Lingering,
    /// Headers of a request have begun to arrive.
    Head,
    /// The body of a request is arriving.
    Body,
    /// A request is being answered.
    Answering,
    /// The response is complete, and being written.
    Sent,
    /// It was chosen to make room.
    Evicted,
}

impl Phase {
    /// In which order connections make room; none for those that keep theirs.
    fn eviction_order(self) -> Option<u8> {
        match self {
            Phase::Idle | Phase::Lingering => Some(0),
            Phase::Head => Some(1),
            Phase::Body => Some(2),
            Phase::Answering | Phase::Sent | Phase::Evicted => None,
        }
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub struct ConnectionState {
    phase: Mutex<(Phase, Instant)>,
    evicted: Notify,
}

impl ConnectionState {
    fn new() -> ConnectionState {
        ConnectionState { phase: Mutex::new((Phase::Idle, Instant::now())), evicted: Notify::new() }
    }

    /// What it is doing, and since when.
    pub fn phase(&self) -> (Phase, Instant) {
        *lock(&self.phase)
    }

    /// Notes what it does from now on, if it did one of `before`.
    pub fn enter(&self, phase: Phase, before: &[Phase]) {
        let mut current = lock(&self.phase);
        if before.contains(&current.0) {
            *current = (phase, Instant::now());
        }
    }

    /// Resolves when the connection has to make room.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// Every open connection.
#[derive(Debug)]
pub struct ConnectionRegistry {
    /// What each may take.
    pub limits: ConnectionLimits,
    /// The bytes of unfinished requests.
    pub unfinished: Arc<ByteBudget>,
    slots: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<ConnectionState>>>,
    last_id: AtomicU64,
}

impl ConnectionRegistry {
    /// For at most `connections` at once.
    pub fn new(limits: ConnectionLimits, connections: usize) -> Arc<ConnectionRegistry> {
        Arc::new(ConnectionRegistry {
            limits,
            unfinished: ByteBudget::new(limits.unfinished_bytes()),
            slots: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            open: Mutex::default(),
            last_id: AtomicU64::new(0),
        })
    }

    /// A slot for a new connection. Where all are taken, the connection that has been idle longest makes room; none where
    /// every one is being answered.
    pub async fn admit(self: &Arc<Self>) -> Option<OpenConnection> {
        let slot = match self.slots.clone().try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) if self.evict_one() => self.slots.clone().acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        let (id, state) = (self.last_id.fetch_add(1, Ordering::Relaxed), Arc::new(ConnectionState::new()));
        lock(&self.open).insert(id, state.clone());
        Some(OpenConnection { id, state, registry: self.clone(), _slot: slot })
    }

    /// Closes the connection that has waited longest for its client: first of those without a request, then of those with
    /// unfinished headers, then of those with unfinished bodies. Returns whether there is one.
    pub fn evict_one(&self) -> bool {
        let open = lock(&self.open);
        loop {
            let candidates = open.values().filter_map(|state| {
                let (phase, since) = state.phase();
                Some(((phase.eviction_order()?, since), state))
            });
            let Some((_, state)) = candidates.min_by_key(|(order, _)| *order) else { return false };
            let mut phase = lock(&state.phase);
            // Otherwise its request has arrived meanwhile.
            if phase.0.eviction_order().is_some() {
                *phase = (Phase::Evicted, Instant::now());
                state.evicted.notify_one();
                return true;
            }
        }
    }
}

/// A connection that has its slot, until it is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    /// What it is doing.
    pub state: Arc<ConnectionState>,
    /// Where it is registered.
    pub registry: Arc<ConnectionRegistry>,
    id: u64,
    _slot: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        lock(&self.registry.open).remove(&self.id);
    }
}

/// A number of bytes that may be held at once.
#[derive(Debug)]
pub struct ByteBudget {
    most: usize,
    held: AtomicUsize,
}

impl ByteBudget {
    /// Of at most so many bytes.
    pub fn new(most: usize) -> Arc<ByteBudget> {
        Arc::new(ByteBudget { most, held: AtomicUsize::new(0) })
    }

    /// Bytes of this budget; none yet.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

/// Bytes of a budget that are held until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Holds `more` bytes too, unless that is above the budget.
    pub fn grow(&mut self, more: usize) -> bool {
        let most = self.budget.most;
        let taken = self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(more).filter(|held| *held <= most)
        });
        if taken.is_ok() {
            self.bytes += more;
        }
        taken.is_ok()
    }

    /// Gives all bytes back.
    pub fn release(&mut self) {
        self.budget.held.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_connection_that_waited_longest_makes_room_and_no_busy_one_does() {
        let registry = ConnectionRegistry::new(ConnectionLimits::default(), 4);
        let mut open = Vec::new();
        for phase in [Phase::Answering, Phase::Body, Phase::Head, Phase::Idle] {
            let connection = registry.admit().await.unwrap();
            connection.state.enter(phase, &[Phase::Idle]);
            open.push(connection);
        }
        // The idle one, then the one with unfinished headers, then the one with an unfinished body.
        for expected in [3, 2, 1] {
            assert!(registry.evict_one());
            open[expected].state.evicted().await;
            assert_eq!(open[expected].state.phase().0, Phase::Evicted);
        }
        assert!(!registry.evict_one());
        assert!(registry.admit().await.is_none());
        drop(open.remove(1));
        assert!(registry.admit().await.is_some());
    }

    #[test]
    fn a_budget_is_full_at_its_last_byte_and_free_again_afterwards() {
        let budget = ByteBudget::new(10);
        let (mut first, mut second) = (budget.reservation(), budget.reservation());
        assert!(first.grow(6) && second.grow(4) && !second.grow(1));
        first.release();
        assert!(second.grow(6) && !first.grow(1));
        drop(second);
        assert!(first.grow(10) && !first.grow(usize::MAX));
    }
}
