//! How much memory the system's allocator keeps for itself.
//!
//! The GNU allocator makes pools of memory for threads, up to eight a core, and gives little of a pool back. An import or a
//! compaction moves large arrays from thread to thread, so that each pool comes to hold as much as one thread ever held:
//! half again to twice what is in use. The allocator is told so by variables that it reads when a process begins, so the
//! process begins once more. Must stay true: whoever has set one of them has decided; where it cannot be done, all goes on
//! without.

/// What a command does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Many small pieces, by several threads at once.
    Requests,
    /// Large arrays, one after the other.
    Bulk,
}

/// Begins the process once more, with as many pools as cores. In bulk work large arrays go back to the system at once; what
/// answers requests asks for large pages, because a first question fills memory that nobody has touched: at a hundred
/// million events that is an eighth of its time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_little(usage: Use) {
    use std::os::unix::process::CommandExt;
    const POOLS: &str = "MALLOC_ARENA_MAX";
    const LARGE: &str = "MALLOC_MMAP_THRESHOLD_";
    const TUNABLES: &str = "GLIBC_TUNABLES";
    if [POOLS, LARGE, TUNABLES].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut arguments = std::env::args_os();
    let mut again = std::process::Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments).env(POOLS, cores.to_string());
    match usage {
        Use::Bulk => again.env(LARGE, (1 << 20).to_string()),
        Use::Requests => again.env(TUNABLES, "glibc.malloc.hugetlb=1"),
    };
    // Returns only where it fails.
    drop(again.exec());
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_little(_: Use) {}
