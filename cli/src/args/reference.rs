//! Options of the commands that print what this release knows: routes, API document, cost, completions, man pages.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use crate::cost::Amount;

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

/// `pennon cost`: the use of a month. Numbers may end in k, M or B.
#[derive(Debug, Args)]
pub struct Cost {
    /// Events that are captured.
    #[arg(long, value_name = "N", default_value = "0")]
    pub events: Amount,
    /// How many events come in one request.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = batch_size)]
    pub batch: u32,
    /// Requests of SDKs for flag definitions that have not changed.
    #[arg(long, value_name = "N", default_value = "0")]
    pub polls: Amount,
    /// Requests for the flags of one person; what SDKs evaluate by themselves costs nothing.
    #[arg(long, value_name = "N", default_value = "0")]
    pub evaluations: Amount,
    /// Questions that are calculated, each by a process that remembers nothing.
    #[arg(long, value_name = "N", default_value = "0")]
    pub questions: Amount,
    /// Saved insights that are shown with their stored results.
    #[arg(long, value_name = "N", default_value = "0")]
    pub views: Amount,
    /// Changes of flags.
    #[arg(long, value_name = "N", default_value = "0")]
    pub changes: Amount,
    /// For how many months events are kept.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub months: u32,
    /// How many events a question reads: those of the month, and at most so many.
    #[arg(long, value_name = "N", default_value = "50M")]
    pub question_events: Amount,
    /// The stack has no alarms (template parameter Alarms).
    #[arg(long)]
    pub without_alarms: bool,
    /// Other prices: a file of the form of cli/src/cost/prices.json.
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
    /// The command, such as `serve` or `keys create`; pennon itself when left out.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Vec<String>,
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
