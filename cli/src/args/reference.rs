//! Options of the commands that print reference material: routes, API document, cost, completions, man pages.

use std::path::PathBuf;

use clap::Args;

use super::{Amount, Output};

/// `pennon routes`
#[derive(Debug, Args)]
pub struct Routes {
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon openapi`
#[derive(Debug, Args)]
pub struct Openapi {
    /// As YAML instead of JSON.
    #[arg(long, overrides_with = "json")]
    pub yaml: bool,
    /// The document is JSON unless --yaml is given.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon cost`: the usage of a month. Numbers may end in k, M or B.
#[derive(Debug, Args)]
pub struct Cost {
    /// Captured events.
    #[arg(long, value_name = "N", default_value = "0")]
    pub events: Amount,
    /// Events per capture request.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = batch_size)]
    pub batch: u32,
    /// Events per block that the capture buffer writes (template parameter CaptureBuffer), at least those of a request.
    #[arg(long, value_name = "N", value_parser = batch_size)]
    pub buffer: Option<u32>,
    /// Requests of SDKs for unchanged flag definitions.
    #[arg(long, value_name = "N", default_value = "0")]
    pub polls: Amount,
    /// Requests for the flags of one person; local evaluation in SDKs costs nothing.
    #[arg(long, value_name = "N", default_value = "0")]
    pub evaluations: Amount,
    /// Calculated queries, each by a process with cold caches.
    #[arg(long, value_name = "N", default_value = "0")]
    pub queries: Amount,
    /// Reads of saved insights with their stored results.
    #[arg(long, value_name = "N", default_value = "0")]
    pub views: Amount,
    /// Changes of flags.
    #[arg(long, value_name = "N", default_value = "0")]
    pub changes: Amount,
    /// Retention of events in months.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub months: u32,
    /// Most events that a query reads; it reads at most those of the month.
    #[arg(long, value_name = "N", default_value = "50M")]
    pub query_events: Amount,
    /// The stack has no alarms (template parameter Alarms).
    #[arg(long)]
    pub without_alarms: bool,
    /// Use other prices: a file in the format of cli/src/cost/prices.json.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// Only what was measured.
fn batch_size(text: &str) -> Result<u32, String> {
    let sizes = [1, 10, 100];
    text.parse().ok().filter(|size| sizes.contains(size)).ok_or_else(|| "1, 10 or 100".to_owned())
}

/// `pennon completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `pennon man`
#[derive(Debug, Args)]
pub struct Man {
    /// The command, such as `serve` or `keys create`; pennon itself by default.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Vec<String>,
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
