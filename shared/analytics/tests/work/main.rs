//! The work of each kind of query: it grows with the number of distinct values, not with its square, and stops when the
//! query is cancelled.
//!
//! In a program of its own, because it measures the processor time of its thread.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod cancellation;
mod growth;
mod impacts;
mod persons;

#[path = "../suite/support/mod.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod support;
mod workloads;

use rustix::time::{ClockId, clock_gettime};

/// Keeps the memory of one measurement for the next: fresh pages would cost more than the work that is measured.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Processor time of this thread, in nanoseconds.
fn thread_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
