//! How many bytes the current thread has allocated, where the allocator of the binary counts that.
//!
//! A library cannot read it from an allocator that it does not know, so the binary names a function that does. Must stay
//! true: without such a function nothing is counted and everything else works as before.

use std::sync::OnceLock;

static COUNTER: OnceLock<fn() -> i64> = OnceLock::new();

/// Names the function that returns how many bytes the current thread has allocated, less those it has freed. The first
/// one stays.
pub fn set_allocation_counter(counter: fn() -> i64) {
    // A second call would change the meaning of differences that are being measured.
    let _ = COUNTER.set(counter);
}

/// Bytes that the current thread has allocated less those it has freed, which may be negative: memory is often freed by
/// another thread. Only the difference of two values means something. `None` where nothing counts them.
pub fn thread_bytes() -> Option<i64> {
    COUNTER.get().map(|counter| counter())
}
