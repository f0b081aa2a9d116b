//! The `pennon` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use pennon::allocator::{AllocationProfile, configure_and_reexec};
use pennon::args::{self, Command};
use pennon::background_runtime::build_runtime;
use pennon::private::set_umask;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use pennon_allocator::ZeroingAllocator;
use pennon_allocator::{CountingAllocator, thread_bytes};
use pennon_core::heap;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod commands;

// glibc's allocator returns little memory to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: CountingAllocator<ZeroingAllocator<tikv_jemallocator::Jemalloc>> =
    CountingAllocator(ZeroingAllocator(tikv_jemallocator::Jemalloc));
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// The default log filter; `PENNON_LOG` overrides it. The SDK's warnings are excluded because they print values; their causes
/// are returned as errors, which are printed.
const LOG_LEVELS: &str = "warn,dynoxide=error,aws_=error";
/// The default of all commands but `serve`. Retries are not logged, because the final error is printed.
const COMMAND_LOG_LEVELS: &str = "warn,dynoxide=error,aws_=error,pennon_eventstore::retry=error";

fn main() -> ExitCode {
    set_umask();
    let command = args::parse();
    configure_and_reexec(match command {
        Command::Import(_) | Command::Export(_) | Command::Compact(_) | Command::Delete(_) => {
            AllocationProfile::Bulk
        }
        _ => AllocationProfile::Requests,
    });
    heap::set_allocation_counter(thread_bytes);
    run(command)
}

fn run(command: Command) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    match build_runtime(cores, || {}) {
        Ok(runtime) => runtime.block_on(run_command(command)),
        Err(error) => {
            eprintln!(
                "pennon: no threads can be started: {error}; raise the limit of processes (`ulimit -u`)"
            );
            ExitCode::FAILURE
        }
    }
}

async fn run_command(command: Command) -> ExitCode {
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(has_colours);
    let levels = if matches!(command, Command::Serve(_)) { LOG_LEVELS } else { COMMAND_LOG_LEVELS };
    tracing_subscriber::registry().with(pennon_core::config::logged(levels)).with(lines).init();
    match commands::run(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pennon: {message}");
            ExitCode::FAILURE
        }
    }
}
