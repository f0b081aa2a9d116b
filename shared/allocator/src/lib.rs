//! A global allocator that counts the bytes that each thread holds. The memory budget of queries measures with it what no
//! estimate covers; without it only estimates are reserved. Another one, [`ZeroingAllocator`], writes the zeros of zeroed memory.
//!
//! Must stay true: counting neither allocates nor fails, at any time in the life of a thread; every call is passed on unchanged
//! to the allocator below, except that [`ZeroingAllocator`] passes a zeroed allocation on as one that is not. This is the only crate with `unsafe` code, because the trait of allocators requires it.
#![allow(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    /// Initialized at compile time and without a destructor, so that it can be used while a thread starts and ends.
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated through a [`CountingAllocator`], minus those that it has freed. May be negative, because
/// memory is often freed by another thread; only the difference of two values has a meaning.
pub fn thread_bytes() -> i64 {
    HELD_BYTES.get()
}

fn count(bytes: i64) {
    HELD_BYTES.set(HELD_BYTES.get().wrapping_add(bytes));
}

/// No allocation is larger than `isize::MAX` bytes.
fn signed(bytes: usize) -> i64 {
    bytes as i64
}

/// Counts the bytes of each thread and allocates with `A`.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

// SAFETY: every method passes its arguments to `A` and returns its result, so the requirements of the trait are those of `A`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            count(signed(layout.size()));
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(signed(layout.size()));
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) };
        count(-signed(layout.size()));
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            count(signed(new_size) - signed(layout.size()));
        }
        moved
    }
}

/// Allocates with `A`, and writes the zeros of zeroed memory instead of requesting them from `A`. Without huge pages jemalloc zeroes an
/// allocation by returning its pages to the system, which gives new ones page by page: the counters of a stickiness query of ten million
/// events took 178 ms of CPU and 16,000 page faults, and take 14 ms written.
#[derive(Debug)]
pub struct ZeroingAllocator<A>(pub A);

// SAFETY: as for `CountingAllocator`; the bytes that `alloc_zeroed` writes are those of the allocation that `A` has returned.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ZeroingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            // SAFETY: as above.
            unsafe { pointer.write_bytes(0, layout.size()) };
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.0.realloc(pointer, layout, new_size) }
    }
}

/// Bytes that this thread has requested through a [`RequestCounter`].
pub fn thread_requested_bytes() -> u64 {
    REQUESTED_BYTES.get()
}

thread_local! {
    /// As [`HELD_BYTES`].
    static REQUESTED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Counts the bytes that each thread requests, whether it frees them or not, and allocates with `A`. A measure of work for
/// tests: the same work requests the same bytes on every machine.
#[derive(Debug)]
pub struct RequestCounter<A>(pub A);

impl<A> RequestCounter<A> {
    fn count(bytes: usize) {
        REQUESTED_BYTES.set(REQUESTED_BYTES.get().wrapping_add(bytes as u64));
    }
}

// SAFETY: as for `CountingAllocator`.
unsafe impl<A: GlobalAlloc> GlobalAlloc for RequestCounter<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: as above.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        Self::count(new_size);
        // SAFETY: as above.
        unsafe { self.0.realloc(pointer, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator<RequestCounter<ZeroingAllocator<System>>> =
        CountingAllocator(RequestCounter(ZeroingAllocator(System)));

    /// The change of [`thread_bytes`] during `work`, whose result is dropped afterwards.
    fn held_by<T>(work: impl FnOnce() -> T) -> (i64, T) {
        let before = thread_bytes();
        let result = work();
        (thread_bytes() - before, result)
    }

    #[test]
    fn vectors_count_while_they_are_held() {
        let (held, mut bytes) = held_by(|| Vec::<u8>::with_capacity(10_000));
        assert_eq!(held, 10_000);
        let (grown, ()) = held_by(|| bytes.reserve_exact(15_000));
        assert_eq!(grown, 5_000);
        let (shrunk, ()) = held_by(|| bytes.shrink_to(0));
        assert_eq!(shrunk, -15_000);
        let (zeroed, zeros) = held_by(|| vec![0_u8; 4096]);
        assert_eq!(zeroed, 4096);
        let (freed, ()) = held_by(|| drop(zeros));
        assert_eq!(freed, -4096);
    }

    /// Freed memory that is used again has its old bytes.
    #[test]
    fn zeroed_memory_has_zeros_where_other_bytes_were() {
        for size in [24_usize, 4096, 1 << 20] {
            for _ in 0..4 {
                let mut bytes = vec![0_u8; size];
                assert!(bytes.iter().all(|byte| *byte == 0), "{size} bytes");
                bytes.fill(1);
            }
        }
    }

    #[test]
    fn requested_bytes_count_although_they_were_freed() {
        let before = thread_requested_bytes();
        drop(Vec::<u8>::with_capacity(10_000));
        let mut bytes = vec![0_u8; 4_096];
        bytes.reserve_exact(4_000);
        assert_eq!(thread_requested_bytes() - before, 10_000 + 4_096 + 8_096);
    }

    #[test]
    fn memory_freed_by_another_thread_counts_there() {
        let (held, bytes) = held_by(|| vec![1_u8; 100_000]);
        assert_eq!(held, 100_000);
        let freed = std::thread::spawn(move || held_by(|| drop(bytes)).0).join();
        assert_eq!(freed.ok(), Some(-100_000));
    }
}
