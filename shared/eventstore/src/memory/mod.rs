//! Memory budget of a process for queries on events: scans, decoded rows, aggregation, and the cache of decoded
//! pieces.
//!
//! [`MemoryBudget`] is the budget of the process, [`QueryMemory`] the reservation of one query, which all
//! its scans, persons and aggregation threads share. The memory of a scan is known in advance and reserved
//! before it is filled. That of aggregation is not: [`ThreadMeter`] measures the allocations of its thread and
//! reserves them on the way.
//!
//! Must stay true: reservations of all queries and cached pieces together never exceed the limit, because
//! cached pieces are evicted for queries; a reservation is released with its last clone, also after a panic, an
//! error or a cancellation; reserving never waits, so queries cannot deadlock.

mod decode_budget;
mod value_sizes;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pennon_core::heap;

use crate::error::EventStoreError;

pub(crate) use decode_budget::DecodeBudget;
pub(crate) use value_sizes::{field_bytes, properties_bytes, value_bytes, values_bytes};

/// Bytes that a thread may allocate before they are reserved: the measuring granularity.
const MEASURED_STEP: i64 = 256 << 10;
/// The cache limit changes in steps of this fraction of the budget, because changing it locks all shards.
const KEPT_STEPS: u64 = 16;

/// A cache that gives up memory to queries.
pub(crate) trait EvictableCache: std::fmt::Debug + Send + Sync {
    /// Keeps at most this many bytes from now on, and evicts the rest.
    fn set_limit(&self, bytes: u64);
}

/// Memory budget of a process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct MemoryBudget(Arc<ProcessMemory>);

#[derive(Debug)]
struct ProcessMemory {
    /// Limit of all queries and the cache together.
    limit: u64,
    /// Limit of the cache while queries leave as much.
    kept_limit: u64,
    cache: Arc<dyn EvictableCache>,
    state: Mutex<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    /// Bytes reserved by queries.
    reserved: u64,
    /// Current limit of the cache.
    kept_limit: u64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes for queries and the `cache`, which may use `kept_limit` of them.
    pub(crate) fn new(limit: u64, kept_limit: u64, cache: Arc<dyn EvictableCache>) -> MemoryBudget {
        let state = Mutex::new(BudgetState { reserved: 0, kept_limit });
        MemoryBudget(Arc::new(ProcessMemory { limit, kept_limit, cache, state }))
    }

    /// A reservation for one query, whose scans may take at most `scan_limit` bytes together.
    pub(crate) fn start_query(&self, scan_limit: u64) -> QueryMemory {
        QueryMemory(Arc::new(QueryReservation { budget: self.clone(), scan_limit, used: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves bytes, evicting cached pieces if necessary; false if other queries use the memory.
    fn reserve(&self, bytes: u64) -> bool {
        let mut state = self.state();
        let Some(reserved) = state.reserved.checked_add(bytes).filter(|all| *all <= self.0.limit) else {
            return false;
        };
        state.reserved = reserved;
        self.limit_kept(&mut state);
        true
    }

    fn release(&self, bytes: u64) {
        let mut state = self.state();
        state.reserved = state.reserved.saturating_sub(bytes);
        self.limit_kept(&mut state);
    }

    /// Sets the cache limit to what queries leave.
    fn limit_kept(&self, state: &mut BudgetState) {
        let step = (self.0.limit / KEPT_STEPS).max(1);
        let left = self.0.limit - state.reserved;
        let limit = if left >= self.0.kept_limit { self.0.kept_limit } else { left / step * step };
        if limit != state.kept_limit {
            state.kept_limit = limit;
            self.0.cache.set_limit(limit);
        }
    }

    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.state().reserved
    }
}

/// The reservation of one query. Clones share it; the last one releases it.
#[derive(Debug, Clone)]
pub struct QueryMemory(Arc<QueryReservation>);

#[derive(Debug)]
struct QueryReservation {
    budget: MemoryBudget,
    scan_limit: u64,
    used: Mutex<MemoryUse>,
}

/// Memory use of a query.
#[derive(Debug, Default, Clone, Copy)]
struct MemoryUse {
    /// Bytes of events and their columns.
    scanned: u64,
    /// Other bytes of known size: persons, blocks, rows on their way into columns.
    known: u64,
    /// Net bytes allocated by its threads; negative if they free scanned data.
    measured: i64,
}

impl MemoryUse {
    /// Bytes to reserve. Memory that is freed early stays reserved until the query ends.
    fn bytes(&self) -> u64 {
        let measured = u64::try_from(self.measured).unwrap_or(0);
        self.scanned.saturating_add(self.known).saturating_add(measured)
    }
}

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Events and their columns: [`crate::Settings::scan_bytes`] limits them as well.
    Scan,
    /// Persons, blocks, and rows on their way into columns.
    Known,
}

impl QueryMemory {
    /// Bytes that its scans may still take.
    pub(crate) fn left(&self) -> u64 {
        self.0.scan_limit.saturating_sub(self.used().scanned)
    }

    /// Reserves bytes of a scan until the query ends.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), EventStoreError> {
        self.reserve(Purpose::Scan, bytes)
    }

    /// An empty lease; its bytes are released when it is dropped.
    pub(crate) fn lease(&self, purpose: Purpose) -> MemoryLease {
        MemoryLease { memory: self.clone(), purpose, bytes: 0 }
    }

    /// Runs `work` on the current thread; its net allocations stay reserved for the query.
    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> T) -> Result<T, EventStoreError> {
        let meter = ThreadMeter::start(self);
        let done = work();
        meter.finish().map(|()| done)
    }

    fn used(&self) -> MutexGuard<'_, MemoryUse> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, purpose: Purpose, bytes: u64) -> Result<(), EventStoreError> {
        self.change(|used| {
            let part = match purpose {
                Purpose::Scan => &mut used.scanned,
                Purpose::Known => &mut used.known,
            };
            *part = part.saturating_add(bytes);
            if used.scanned > self.0.scan_limit { Err(self.scans_too_much()) } else { Ok(()) }
        })
    }

    fn release(&self, purpose: Purpose, bytes: u64) {
        // Releasing never fails.
        let _ = self.change(|used| {
            let part = match purpose {
                Purpose::Scan => &mut used.scanned,
                Purpose::Known => &mut used.known,
            };
            *part = part.saturating_sub(bytes);
            Ok(())
        });
    }

    /// Adds the net allocations of a thread.
    fn measure(&self, bytes: i64) -> Result<(), EventStoreError> {
        self.change(|used| {
            used.measured = used.measured.saturating_add(bytes);
            Ok(())
        })
    }

    /// Applies a change and adjusts the reservation. A change that does not fit is not applied.
    fn change(
        &self,
        change: impl FnOnce(&mut MemoryUse) -> Result<(), EventStoreError>,
    ) -> Result<(), EventStoreError> {
        let mut used = self.used();
        let mut next = *used;
        change(&mut next)?;
        let (before, after) = (used.bytes(), next.bytes());
        if after > self.0.budget.0.limit {
            return Err(self.takes_too_much());
        }
        if after > before && !self.0.budget.reserve(after - before) {
            return Err(EventStoreError::MemoryInUse);
        }
        if after < before {
            self.0.budget.release(before - after);
        }
        *used = next;
        Ok(())
    }

    fn scans_too_much(&self) -> EventStoreError {
        let limit = self.0.scan_limit;
        EventStoreError::TooLarge(format!(
            "The events of the query and their properties, those for sessions and cohorts included, take more than \
             {limit} bytes. Narrow the dates or the events, or raise PENNON_EVENTS_MEMORY_MB."
        ))
    }

    fn takes_too_much(&self) -> EventStoreError {
        let limit = self.0.budget.0.limit;
        EventStoreError::TooLarge(format!(
            "The events of the query and what is counted of them take more than {limit} bytes of memory. Narrow the \
             dates, the events or the breakdown, or raise PENNON_EVENTS_MEMORY_MB."
        ))
    }
}

impl Drop for QueryReservation {
    fn drop(&mut self) {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.release(used.bytes());
    }
}

/// A reservation that is released on drop.
#[derive(Debug)]
pub(crate) struct MemoryLease {
    memory: QueryMemory,
    purpose: Purpose,
    bytes: u64,
}

impl MemoryLease {
    /// Reserves more.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), EventStoreError> {
        self.memory.reserve(self.purpose, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Sets the total of the lease.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), EventStoreError> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.add(more),
            None => {
                self.memory.release(self.purpose, self.bytes - bytes);
                self.bytes = bytes;
                Ok(())
            }
        }
    }

    /// Reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Leaves its bytes reserved until the query ends.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.memory.release(self.purpose, self.bytes);
    }
}

/// Measures the allocations of the current thread for a query, and reserves them. Use it only on the thread
/// that created it. Without a counting allocator ([`heap`]) it measures nothing.
#[derive(Debug)]
pub struct ThreadMeter<'a> {
    memory: &'a QueryMemory,
    /// Allocations of the thread at the start.
    start: Cell<i64>,
    reserved: Cell<i64>,
    refused: RefCell<Option<EventStoreError>>,
}

impl ThreadMeter<'_> {
    /// Starts measuring.
    pub fn start(memory: &QueryMemory) -> ThreadMeter<'_> {
        let start = Cell::new(heap::thread_bytes().unwrap_or(0));
        ThreadMeter { memory, start, reserved: Cell::new(0), refused: RefCell::new(None) }
    }

    /// Reserves the allocations since the last call; true once they do not fit, and the thread must stop.
    pub fn is_over_budget(&self) -> bool {
        self.update(MEASURED_STEP)
    }

    /// Reserves the rest, and returns the reason if the thread had to stop. The allocations stay reserved until
    /// the query ends.
    pub fn finish(self) -> Result<(), EventStoreError> {
        self.update(1);
        self.refused.into_inner().map_or(Ok(()), Err)
    }

    fn update(&self, step: i64) -> bool {
        if self.refused.borrow().is_some() {
            return true;
        }
        let Some(now) = heap::thread_bytes() else { return false };
        let used = now - self.start.get();
        let more = used - self.reserved.get();
        if more.abs() < step {
            return false;
        }
        match self.memory.measure(more) {
            Ok(()) => self.reserved.set(used),
            Err(refused) => *self.refused.borrow_mut() = Some(refused),
        }
        // Pieces evicted for it were freed by this thread, but never belonged to the query.
        let evicted = heap::thread_bytes().unwrap_or(now) - now;
        self.start.set(self.start.get() + evicted);
        self.refused.borrow().is_some()
    }
}

#[cfg(test)]
mod tests;
