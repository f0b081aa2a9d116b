//! The allocator of the binary: how soon it returns memory to the system, and how much each thread has.
//!
//! On Linux with the GNU C library the binary allocates with jemalloc: its background thread returns pages that have not been
//! used for a second, so that the memory of a process falls after a peak, and it counts what each thread has allocated, by
//! which what a question counts takes part in the memory budget ([`pennon_core::heap`]). C libraries, SQLite above all, still
//! use the GNU allocator, which makes pools for threads, up to eight a core, and gives little of a pool back. Both read
//! variables when a process begins, so the process begins once more. Must stay true: whoever has set one of them has decided;
//! where it cannot be done, all goes on without.

/// What a command does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Many small pieces, by several threads at once.
    Requests,
    /// Large arrays, one after the other.
    Bulk,
}

/// Begins the process once more, with as many pools as cores, unused pages returned after a second, or at once in bulk
/// work. What answers requests asks for large pages, because a first question fills memory that was never touched: at a
/// hundred million events that is an eighth of its time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_little(usage: Use) {
    use std::os::unix::process::CommandExt;
    const POOLS: &str = "MALLOC_ARENA_MAX";
    const OWN: &str = "_RJEM_MALLOC_CONF";
    if [POOLS, OWN].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut arguments = std::env::args_os();
    let mut again = std::process::Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    let (decay, pages) = match usage {
        Use::Bulk => (0, "default"),
        Use::Requests => (1000, "always"),
    };
    let own =
        format!("narenas:{cores},background_thread:true,dirty_decay_ms:{decay},muzzy_decay_ms:0,thp:{pages}");
    again.args(arguments).env(POOLS, cores.to_string()).env(OWN, own);
    // Returns only where it fails.
    drop(again.exec());
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_little(_: Use) {}

/// Lets questions count what their threads allocate.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn count_memory() {
    pennon_core::heap::set_allocation_counter(thread_bytes);
}

/// Other allocators do not count it.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn count_memory() {}

/// What this thread has allocated less what it has freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn thread_bytes() -> i64 {
    use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
    thread_local! {
        /// Where the allocator counts, which stays the same for a thread.
        static COUNTERS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> =
            allocatedp::read().ok().zip(deallocatedp::read().ok());
    }
    let difference = |counters: &Option<(ThreadLocal<u64>, ThreadLocal<u64>)>| {
        counters
            .as_ref()
            .map_or(0, |(allocated, freed)| allocated.get().wrapping_sub(freed.get()).cast_signed())
    };
    COUNTERS.try_with(difference).unwrap_or(0)
}
