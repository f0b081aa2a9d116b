//! The open connections with their phases, and the bytes of their unfinished requests.
//!
//! Must stay true: a connection's permit is released whenever it ends; a connection with a running request is never evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::args::ConnectionLimits;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// It waits for a request.
    Idle,
    /// The response is sent; what the client still sends is read and discarded.
    Lingering,
    /// Headers of a request have begun to arrive.
    Head,
    /// The body of a request is arriving.
    Body,
    /// A request is being processed.
    Responding,
    /// The response is complete, and being written.
    Sent,
    /// It was chosen for eviction.
    Evicted,
}

impl ConnectionPhase {
    /// The priority of eviction, lowest first; `None` for connections that are never evicted.
    fn eviction_order(self) -> Option<u8> {
        match self {
            ConnectionPhase::Idle | ConnectionPhase::Lingering => Some(0),
            ConnectionPhase::Head => Some(1),
            ConnectionPhase::Body => Some(2),
            ConnectionPhase::Responding | ConnectionPhase::Sent | ConnectionPhase::Evicted => None,
        }
    }
}

/// The state of one connection.
#[derive(Debug)]
pub struct ConnectionState {
    phase: Mutex<(ConnectionPhase, Instant)>,
    evicted: Notify,
}

impl ConnectionState {
    fn new() -> ConnectionState {
        ConnectionState { phase: Mutex::new((ConnectionPhase::Idle, Instant::now())), evicted: Notify::new() }
    }

    /// The phase, and when it began.
    pub fn phase(&self) -> (ConnectionPhase, Instant) {
        *lock(&self.phase)
    }

    /// Changes to `phase` if the current phase is one of `before`.
    pub fn enter(&self, phase: ConnectionPhase, before: &[ConnectionPhase]) {
        let mut current = lock(&self.phase);
        if before.contains(&current.0) {
            *current = (phase, Instant::now());
        }
    }

    /// Resolves when the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// Every open connection.
#[derive(Debug)]
pub struct ConnectionRegistry {
    /// The limits of each connection.
    pub limits: ConnectionLimits,
    /// The bytes of unfinished requests.
    pub unfinished: Arc<ByteBudget>,
    permits: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<ConnectionState>>>,
    last_id: AtomicU64,
}

impl ConnectionRegistry {
    /// A registry of at most `connections` at the same time.
    pub fn new(limits: ConnectionLimits, connections: usize) -> Arc<ConnectionRegistry> {
        Arc::new(ConnectionRegistry {
            limits,
            unfinished: ByteBudget::new(limits.unfinished_bytes()),
            permits: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            open: Mutex::default(),
            last_id: AtomicU64::new(0),
        })
    }

    /// Admits a new connection. At the limit it evicts another one; `None` if every connection has a running request.
    pub async fn admit(self: &Arc<Self>) -> Option<OpenConnection> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) if self.evict_one() => self.permits.clone().acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        let (id, state) = (self.last_id.fetch_add(1, Ordering::Relaxed), Arc::new(ConnectionState::new()));
        lock(&self.open).insert(id, state.clone());
        Some(OpenConnection { id, state, registry: self.clone(), _permit: permit })
    }

    /// Evicts the connection that has waited longest for its client: first of those without a request, then with unfinished
    /// headers, then with unfinished bodies. Returns whether there is one.
    pub fn evict_one(&self) -> bool {
        let open = lock(&self.open);
        loop {
            let candidates = open.values().filter_map(|state| {
                let (phase, since) = state.phase();
                Some(((phase.eviction_order()?, since), state))
            });
            let Some((_, state)) = candidates.min_by_key(|(order, _)| *order) else { return false };
            let mut phase = lock(&state.phase);
            // Else its request has arrived meanwhile.
            if phase.0.eviction_order().is_some() {
                *phase = (ConnectionPhase::Evicted, Instant::now());
                state.evicted.notify_one();
                return true;
            }
        }
    }
}

/// An admitted connection. Dropping it releases its permit.
#[derive(Debug)]
pub struct OpenConnection {
    /// Its state.
    pub state: Arc<ConnectionState>,
    /// The registry that it is in.
    pub registry: Arc<ConnectionRegistry>,
    id: u64,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        lock(&self.registry.open).remove(&self.id);
    }
}

/// A limit on bytes that are held at the same time.
#[derive(Debug)]
pub struct ByteBudget {
    limit: usize,
    held: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<ByteBudget> {
        Arc::new(ByteBudget { limit, held: AtomicUsize::new(0) })
    }

    /// An empty reservation.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }
}

/// Bytes reserved from a budget until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Reserves `more` bytes too; false if that exceeds the budget.
    pub fn grow(&mut self, more: usize) -> bool {
        let limit = self.budget.limit;
        let update = self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(more).filter(|held| *held <= limit)
        });
        if update.is_ok() {
            self.bytes += more;
        }
        update.is_ok()
    }

    /// Releases all bytes.
    pub fn release(&mut self) {
        self.budget.held.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_longest_waiting_connection_is_evicted_and_no_busy_one() {
        let registry = ConnectionRegistry::new(ConnectionLimits::default(), 4);
        let mut open = Vec::new();
        for phase in
            [ConnectionPhase::Responding, ConnectionPhase::Body, ConnectionPhase::Head, ConnectionPhase::Idle]
        {
            let connection = registry.admit().await.unwrap();
            connection.state.enter(phase, &[ConnectionPhase::Idle]);
            open.push(connection);
        }
        // The idle one, then the one with unfinished headers, then the one with an unfinished body.
        for expected in [3, 2, 1] {
            assert!(registry.evict_one());
            open[expected].state.evicted().await;
            assert_eq!(open[expected].state.phase().0, ConnectionPhase::Evicted);
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
