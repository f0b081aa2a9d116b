//! Configuration of the binary's allocators: how soon they return memory to the system.
//!
//! On Linux with glibc the binary allocates with jemalloc. Its background thread returns pages that were unused for a
//! second, so that the process shrinks after a peak. C libraries, mainly SQLite, still use glibc's malloc, which creates up
//! to eight arenas per core and returns little of them. Both allocators are configured by environment variables at process
//! start, so the process executes itself again. Must stay true: variables that the user has set are left alone; if the
//! `exec` fails, the process continues with the defaults.

/// The allocation pattern of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationProfile {
    /// Many small allocations by several threads at once.
    Requests,
    /// Large arrays, one after the other.
    Bulk,
}

/// Each thread keeps freed allocations of up to so many bytes for itself, up to some hundred kilobytes in all, however long it is idle.
/// With jemalloc's default of 32 KiB these are megabytes for each of the threads, of which there are eight for each core.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BY_THREAD_BYTES: usize = 4096;

/// Executes the process again, with as many arenas as cores. Unused pages are returned after a second, or at once with
/// [`AllocationProfile::Bulk`].
///
/// Transparent huge pages stay off, because the system collapses pages that were returned into huge ones again. Twelve heavy
/// queries at once with a budget of 16 MB, beside a load that leaves little time for them, left 19 to 36 MB more than before with huge pages
/// and jemalloc's default, and 8 to 12 MB with these settings; at rest the process has 8 MB less. Queries of ten million events take about as long
/// with and without huge pages, provided that zeroed memory is written ([`ZeroingAllocator`](pennon_allocator::ZeroingAllocator)).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn configure_and_reexec(profile: AllocationProfile) {
    use std::os::unix::process::CommandExt;
    const GLIBC_ARENAS: &str = "MALLOC_ARENA_MAX";
    const JEMALLOC_CONFIG: &str = "_RJEM_MALLOC_CONF";
    if [GLIBC_ARENAS, JEMALLOC_CONFIG].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut arguments = std::env::args_os();
    let mut command = std::process::Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let decay = match profile {
        AllocationProfile::Bulk => 0,
        AllocationProfile::Requests => 1000,
    };
    let config = format!(
        "narenas:{cores},background_thread:true,dirty_decay_ms:{decay},muzzy_decay_ms:0,tcache_max:{KEPT_BY_THREAD_BYTES}"
    );
    command.args(arguments).env(GLIBC_ARENAS, cores.to_string()).env(JEMALLOC_CONFIG, config);
    // Returns only on failure.
    drop(command.exec());
}

/// Other platforms' allocators are not configured.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn configure_and_reexec(_: AllocationProfile) {}
