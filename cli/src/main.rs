//! The `pennon` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use pennon::allocator::{Use, count_memory, keep_little};
use pennon::args::{self, Command};
use pennon::private::set_umask;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod commands;

// The system's allocator keeps what it was once given, and does not count what a thread has.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What is logged unless `PENNON_LOG` says otherwise. The SDK's own warnings print its values; what they are about comes back as
/// an error, which is printed.
const LOG_LEVELS: &str = "warn,dynoxide=error,aws_=error";
/// The same for commands that end: after the last retry the error is printed.
const COMMAND_LOG_LEVELS: &str = "warn,dynoxide=error,aws_=error,pennon_eventstore::retry=error";

fn main() -> ExitCode {
    set_umask();
    let command = args::parse();
    keep_little(match command {
        Command::Import(_) | Command::Export(_) | Command::Compact(_) | Command::Delete(_) => Use::Bulk,
        _ => Use::Requests,
    });
    count_memory();
    run(command)
}

#[tokio::main]
async fn run(command: Command) -> ExitCode {
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
