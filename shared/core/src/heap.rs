//! Net heap allocation of the current thread, if the binary's global allocator counts it.
//!
//! A library does not know the allocator of the binary, so the binary registers a function that reads its counter. Must
//! stay true: without such a function nothing is counted and everything else works the same.

use std::sync::OnceLock;

static COUNTER: OnceLock<fn() -> i64> = OnceLock::new();

/// Registers the function that returns the net bytes allocated by the current thread. Only the first call has an effect.
pub fn set_allocation_counter(counter: fn() -> i64) {
    // A second counter would invalidate differences that are being measured.
    let _ = COUNTER.set(counter);
}

/// Bytes that the current thread has allocated minus those it has freed. May be negative, because memory is often freed by
/// another thread; only the difference of two values is meaningful. `None` without a registered counter.
pub fn thread_bytes() -> Option<i64> {
    COUNTER.get().map(|counter| counter())
}
