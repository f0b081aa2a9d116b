//! The command line.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand};
use pennon_core::throttle::Rates;

use crate::cost::Amount;

/// Feature flags and insights that cost nothing at rest.
#[derive(Debug, Parser)]
#[command(name = "pennon", version, about, disable_help_subcommand = true)]
pub struct Arguments {
    /// What to do; `serve` when left out.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole product on this machine.
    Serve(Serve),
    /// Make an installation match a workspace file.
    Apply(Apply),
    /// Load a history of events, persons and groups.
    Import(Import),
    /// Write everything that an installation holds as files that others take.
    Export(Export),
    /// Compare everything that is stored of events with its checksums.
    Check(Check),
    /// Turn waiting events into segments, and segments into few large ones, now.
    Compact(Compact),
    /// Erase a person, old events, or all events, persons and groups of a project.
    Delete(Delete),
    /// Copy tables and events as they are at one moment, beside a running server or without one.
    Backup(Backup),
    /// Make a data directory of a backup.
    Restore(Restore),
    /// Answer a saved insight, or a query of a file.
    Query(Query),
    /// Make, list and revoke API keys.
    Keys(Keys),
    /// Print every route that the functions answer.
    Routes(Routes),
    /// Print the OpenAPI document of the API.
    Openapi(Openapi),
    /// Tell what a month of some use costs on AWS.
    Cost(Cost),
}

/// Where the data of a local installation lies.
#[derive(Debug, Clone, Args)]
pub struct Data {
    /// Directory of the data; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "pennon-data")]
    pub data: PathBuf,
}

/// Which installation a command works on.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// A local one.
    #[command(flatten)]
    pub data: Data,
    /// Work on a deployed one: the tables and the bucket that PENNON_RECORDS_TABLE, PENNON_BLOCKS_TABLE and
    /// PENNON_EVENTS_URL name, with the region and the credentials of the environment.
    #[arg(long)]
    pub cloud: bool,
}

/// `pennon serve`
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Where the data lies.
    #[command(flatten)]
    pub data: Data,
    /// Port of the API on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Port on which the embedded DynamoDB is offered on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub dynamodb_port: u16,
    /// Workspace file to apply at the start. With it, no demo is made.
    #[arg(long, value_name = "FILE")]
    pub workspace: Option<PathBuf>,
    /// Freeze the clock at this instant, and let requests name another by the header X-Pennon-Now.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
    /// Limit how often a key may ask: `on` for 480 calls a minute and 4800 an hour, and 600 a minute for flag
    /// definitions, or some of burst=N,sustained=N,definitions=N.
    #[arg(long, value_name = "RATES")]
    pub rate_limits: Option<Rates>,
}

impl Default for Serve {
    /// What a plain `pennon` means.
    fn default() -> Self {
        Serve {
            data: Data { data: PathBuf::from("pennon-data") },
            port: 8080,
            dynamodb_port: 0,
            workspace: None,
            now: None,
            rate_limits: None,
        }
    }
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
}

/// `pennon import`
#[derive(Debug, Args)]
pub struct Import {
    /// JSON lines (.jsonl, .jsonl.gz) or Parquet (.parquet; zstd, snappy, gzip, lz4 or uncompressed).
    pub file: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project of lines that name none.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
}

/// `pennon export`
#[derive(Debug, Args)]
pub struct Export {
    /// The directory to write; it must not be there yet, or be empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Events, persons and groups of this project alone, and what the workspace file has of it.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// Who is to take events, persons and groups.
    #[arg(long, value_enum, default_value_t = ExportForm::Pennon)]
    pub form: ExportForm,
    /// Write encrypted payloads of flags in clear. Without it they are left out.
    #[arg(long)]
    pub with_secrets: bool,
}

/// Who is to take exported events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportForm {
    /// `pennon import`: lines of groups, persons and events.
    Pennon,
    /// PostHog's batch import and `/batch/`: lines of events alone, to be sent in their order.
    Posthog,
}

/// `pennon check`
#[derive(Debug, Args)]
pub struct Check {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// This project alone.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// What was damaged and has been put back is in use again.
    #[arg(long)]
    pub lift: bool,
    /// Give up a damaged segment and all its events, for good.
    #[arg(long, value_name = "SEGMENT", requires = "project")]
    pub drop: Option<String>,
}

/// `pennon compact`
#[derive(Debug, Args)]
pub struct Compact {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// One project alone.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
}

/// `pennon delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project; may be left out with --person or --before where one project alone has events. By itself: all of its
    /// events, persons and groups.
    #[arg(long, value_name = "ID", required_unless_present_any = ["person", "before"])]
    pub project: Option<u64>,
    /// Everything that is known of this person: one of its distinct ids, or its id.
    #[arg(long, value_name = "ID", conflicts_with = "before")]
    pub person: Option<String>,
    /// Events that happened before this day (UTC) or instant: 2024-01-31 or RFC 3339. Persons and groups stay.
    #[arg(long, value_name = "DATE")]
    pub before: Option<String>,
    /// Say what would be erased, and erase nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// `pennon backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The directory to make, or the file, if its name ends in .tar. Nothing may be there.
    #[arg(long, value_name = "PLACE")]
    pub out: PathBuf,
    /// Make hard links of the event files and no copies: quick and small, on the same file system only, and damage of the
    /// disk damages both.
    #[arg(long)]
    pub link: bool,
    /// Put the key of secret payloads into it too: whoever has the backup then reads them.
    #[arg(long)]
    pub with_payload_key: bool,
}

/// `pennon restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup: a directory or a file.
    #[arg(value_name = "BACKUP")]
    pub from: PathBuf,
    /// The data directory to make; it must not be there, or be empty.
    #[arg(long, value_name = "DIR", default_value = "pennon-data")]
    pub data: PathBuf,
}

/// `pennon query`
#[derive(Debug, Args)]
pub struct Query {
    /// A saved insight, by its id or its short id; or a file with a query node or the filters of a trend or a funnel as
    /// JSON; or - for standard input.
    pub question: String,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project; may be left out where there is one only.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// Print the result as the API has it.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long)]
    pub csv: bool,
    /// Say beside the result how long it took, and what was read for it.
    #[arg(long)]
    pub stats: bool,
    /// Take this instant for now; dates such as -7d count from it, and the result is not kept.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
    /// Who calculates.
    #[arg(long, value_enum, default_value_t = Engine::Pennon)]
    pub engine: Engine,
    /// Print what another engine has to be told, and calculate nothing.
    #[arg(long)]
    pub print: bool,
    /// Where the other engine finds the event files: a directory, or the URL of a bucket down to the prefix of the events.
    #[arg(long, value_name = "PLACE", requires = "print")]
    pub files: Option<String>,
}

/// Who calculates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Pennon itself.
    Pennon,
    /// ClickHouse, over the same files.
    Clickhouse,
}

/// `pennon keys`
#[derive(Debug, Args)]
pub struct Keys {
    /// What to do with them.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key and print it, once.
    Create(CreateKey),
    /// List the keys, without their secrets.
    List(Target),
    /// Make a key useless. It works for five seconds more at most.
    Revoke(RevokeKey),
}

/// `pennon keys create`
#[derive(Debug, Args)]
pub struct CreateKey {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Mail address of the owner; may be left out where there is one user only.
    #[arg(long)]
    pub user: Option<String>,
    /// A name for people, unique for the owner.
    #[arg(long)]
    pub label: String,
    /// What it allows, such as feature_flag:read; repeat for several. Everything when left out.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// The projects that it is limited to; repeat for several.
    #[arg(long = "project", value_name = "ID")]
    pub projects: Vec<u64>,
    /// When it stops working: an instant in RFC 3339, or a number of days such as 90d.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
}

/// `pennon keys revoke`
#[derive(Debug, Args)]
pub struct RevokeKey {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The key itself, its mask, or its label.
    pub key: String,
}

/// `pennon routes`
#[derive(Debug, Args)]
pub struct Routes {
    /// As JSON: a list of {group, method, path}.
    #[arg(long)]
    pub json: bool,
}

/// `pennon openapi`
#[derive(Debug, Args)]
pub struct Openapi {
    /// As YAML and not as JSON.
    #[arg(long)]
    pub yaml: bool,
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
}

/// Only what was measured.
fn batch_size(text: &str) -> Result<u32, String> {
    let sizes = [1, 10, 100];
    text.parse().ok().filter(|size| sizes.contains(size)).ok_or_else(|| "1, 10 or 100".to_owned())
}
