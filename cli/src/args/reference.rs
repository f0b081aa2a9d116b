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
    /// Most events that a query reads; it reads at most those of the month. With --query-kind: the events of its dates, whatever their names.
    #[arg(long, value_name = "N", default_value = "50M")]
    pub query_events: Amount,
    /// One query instead of a month.
    #[command(flatten)]
    pub query: CostOfQuery,
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

/// The options of `pennon cost` for one query.
#[derive(Debug, Clone, Args)]
pub struct CostOfQuery {
    /// Simulate one query of this kind over --query-events, in parts (template parameter QueryParts), instead of a month.
    #[arg(long, value_enum, value_name = "KIND")]
    pub query_kind: Option<QueryKind>,
    /// What the functions have when the query comes.
    #[arg(long, value_enum, value_name = "STATE", default_value = "warm", requires = "query_kind")]
    pub functions: FunctionState,
    /// Rows per part; 8 million by default.
    #[arg(long, value_name = "N", requires = "query_kind")]
    pub part_rows: Option<Amount>,
    /// Parts at one time, at most 999, which a default account allows beside the caller; 64 by default.
    #[arg(long, value_name = "N", requires = "query_kind", value_parser = clap::value_parser!(u16).range(1..=999))]
    pub parts_at_once: Option<u16>,
    /// Memory of the functions in MB; 1769 are one vCPU.
    #[arg(long, value_name = "MB", default_value_t = 1769, requires = "query_kind", value_parser = clap::value_parser!(u32).range(128..=10240))]
    pub memory: u32,
}

/// A measured query of benchmarks/events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum QueryKind {
    /// Three steps within 14 days.
    Funnel,
    /// The same for each browser.
    FunnelByBrowser,
    /// Events of one name by day.
    Trend,
    /// Persons with events of one name by day.
    Uniques,
    /// The 25 most viewed addresses by day.
    ByUrl,
    /// The sum of a property by day, with a filter.
    Sum,
}

/// What the functions have when a query comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FunctionState {
    /// No function runs.
    Cold,
    /// As many functions run as parts at one time; they have the footers of segments, if these are few enough to be cached.
    Warm,
    /// They also have all columns in memory. Lambda chooses the function of a part, so this is the best case.
    Cached,
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
