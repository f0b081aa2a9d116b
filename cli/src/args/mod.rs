//! The command line. Every option has an environment variable too ([`environment`]).

mod address;
mod amount;
mod connections;
mod copies;
mod environment;
mod events;
mod flags;
mod insights;
mod keys;
mod operations;
mod reference;
mod serve;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use amount::Amount;
pub use connections::ConnectionLimits;
pub use copies::{Adopt, Backup, Restore};
pub use events::{Check, Compact, Delete, Engine, Export, ExportForm, Impact, Import, Query};
pub use flags::{Flags, FlagsCommand, GetFlag, ListFlags, NamedValue, SetFlag, TestFlag};
pub use insights::{
    ConditionOperator, FunnelOptions, FunnelOrder, InsightOptions, IntervalName, LifecycleOptions,
    PropertyCondition, PropertyKind, PropertyName, QueryCommand, RetentionOptions, SeriesOptions,
    StickinessOptions, TimeWindow, TrendOptions,
};
pub use keys::{CreateKey, Keys, KeysCommand, ListKeys, RevokeKey};
pub use operations::{Doctor, Health, Tail};
pub use reference::{Completions, Cost, CostOfQuery, FunctionState, Man, Openapi, QueryKind, Routes};
pub use serve::{ListenAddress, RateLimits, Serve};

/// Feature flags and insights that cost nothing at rest.
///
/// Options can also be set by the environment variables that the help of each command names.
#[derive(Debug, Parser)]
#[command(name = "pennon", version)]
pub struct Arguments {
    /// The command; `serve` by default.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole product on this machine.
    Serve(Serve),
    /// Write a commented workspace file to start from.
    Init(Init),
    /// Make an installation match a workspace file.
    Apply(Apply),
    /// Import historical events, persons and groups from a file.
    Import(Import),
    /// Export all data of an installation into files in open formats.
    Export(Export),
    /// Verify the checksums of all stored events, or with --records that all records agree with each other.
    Check(Check),
    /// Compact waiting events and small segments into few large segments, now.
    Compact(Compact),
    /// Erase a person, old events, or all events, persons and groups of a project.
    Delete(Delete),
    /// Create a consistent backup of tables and events, while the server runs or not.
    Backup(Backup),
    /// Create a data directory from a backup.
    Restore(Restore),
    /// Make tables and events that do not belong together one installation, such as an older copy of the tables.
    Adopt(Adopt),
    /// Calculate a funnel, a trend and other insights, a saved insight, or a query from a file.
    Query(Query),
    /// Compare a metric between the persons that saw the variants of a flag.
    Impact(Impact),
    /// List, show, change and test feature flags.
    Flags(Flags),
    /// Print events as they arrive.
    Tail(Tail),
    /// Create, list and revoke API keys.
    Keys(Keys),
    /// Check an installation, a server or a deployment, and print what to do about each problem.
    Doctor(Doctor),
    /// Check with one request whether a server can store what it acknowledges; for containers and load balancers.
    Health(Health),
    /// Print every route of the API.
    Routes(Routes),
    /// Print the OpenAPI document of the API.
    Openapi(Openapi),
    /// Estimate the monthly AWS bill for a given usage.
    Cost(Cost),
    /// Print the environment variables with which functions and AWS tools use the data of a running `pennon serve`.
    Env(Env),
    /// Calculate parts of the queries of a server, which starts this.
    #[command(hide = true)]
    RunParts,
    /// Print the completion script of a shell.
    Completions(Completions),
    /// Print the man page of pennon or of one of its commands.
    Man(Man),
}

/// The definition of the command line, environment variables included.
pub fn definition() -> clap::Command {
    environment::with_variables(Arguments::command())
}

/// Parses the command line of this process. Wrong input, `--help` and `--version` end the process.
pub fn parse() -> Command {
    let parse_from = |words: Vec<std::ffi::OsString>| {
        let matches = definition().get_matches_from(words);
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command
    };
    let words: Vec<_> = std::env::args_os().collect();
    let name = words.first().cloned().unwrap_or_else(|| "pennon".into());
    // A plain `pennon` is `pennon serve`, whose options the environment may set.
    let command = parse_from(words).or_else(|| parse_from(vec![name, "serve".into()]));
    command.unwrap_or_else(|| definition().error(ErrorKind::MissingSubcommand, "no command").exit())
}

/// Where the data of a local installation is.
#[derive(Debug, Clone, Args)]
pub struct Data {
    /// Data directory.
    #[arg(long, value_name = "DIR", default_value = "pennon-data")]
    pub data: PathBuf,
}

/// Which installation a command works on.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// A local one.
    #[command(flatten)]
    pub data: Data,
    /// Work on a deployment: the tables and the bucket that PENNON_RECORDS_TABLE, PENNON_BLOCKS_TABLE and
    /// PENNON_EVENTS_URL name, with the region and the credentials of the environment.
    #[arg(long)]
    pub cloud: bool,
}

/// Which installation a command sends requests to.
#[derive(Debug, Clone, Args)]
pub struct ApiTarget {
    /// One that the command opens.
    #[command(flatten)]
    pub target: Target,
    /// Send requests to the API at this address, such as http://127.0.0.1:8080, with the personal API key in the environment
    /// variable PENNON_API_KEY. --data and --cloud are not used then.
    #[arg(long, value_name = "URL", value_parser = address::parse_url)]
    pub url: Option<String>,
    /// The project; optional if there is only one.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
}

/// How a command prints its result.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Output {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `pennon init`
#[derive(Debug, Args)]
pub struct Init {
    /// The file to write. An existing file is not overwritten.
    #[arg(value_name = "FILE", default_value = "workspace.yaml")]
    pub file: PathBuf,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon apply`
#[derive(Debug, Args)]
pub struct Apply {
    /// The workspace file, YAML or JSON.
    pub file: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Remove what the file does not declare.
    #[arg(long)]
    pub prune: bool,
    /// Print what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon env`
#[derive(Debug, Args)]
pub struct Env {
    /// Where the data is.
    #[command(flatten)]
    pub data: Data,
    /// How the variables are printed.
    #[command(flatten)]
    pub output: Output,
}

/// The command of a line, without variables of the environment.
#[cfg(test)]
pub(crate) fn command_of(line: &str) -> Command {
    let arguments = Arguments::try_parse_from(line.split_whitespace());
    arguments.unwrap_or_else(|error| panic!("{line}: {error}")).command.unwrap_or_else(|| panic!("{line}"))
}
