//! Options of the commands that read and write events.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::Args;

use super::{Output, QueryCommand, Target};
use crate::import::{ExtraFields, FieldRule, Vendor};

/// `pennon import`
#[derive(Debug, Args)]
pub struct Import {
    /// The file: JSON lines, a JSON array, CSV with a header, or Parquet; all but Parquet also with gzip or zstd. The format is
    /// detected from the content.
    pub file: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project of records without one.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// The vendor whose export the file is; by default detected from its content.
    #[arg(long, value_enum, value_name = "VENDOR")]
    pub from: Option<Vendor>,
    /// Map a column or key of the file to a field of an event (project, event, distinct_id, timestamp, uuid, person_id,
    /// properties) or to a property (properties.NAME); repeat for several.
    #[arg(long = "map", value_name = "COLUMN=FIELD")]
    pub map: Vec<FieldRule>,
    /// How unknown fields are handled; by default columns of Parquet become properties, and other formats are rejected.
    #[arg(long, value_enum, value_name = "RULE")]
    pub extra: Option<ExtraFields>,
    /// The group type of Segment's group calls, which have no types; `company` by default.
    #[arg(long, value_name = "NAME")]
    pub group_type: Option<String>,
    /// Validate the file, print the mapping of its fields and its first three records, and store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon export`
#[derive(Debug, Args)]
pub struct Export {
    /// The directory to write; it must not exist, or be empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Export only this project.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// The importer for which events, persons and groups are written.
    #[arg(long, value_enum, default_value_t = ExportForm::Pennon)]
    pub form: ExportForm,
    /// Write encrypted payloads of flags in clear. Without it they are left out.
    #[arg(long)]
    pub with_secrets: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// The importer for which events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportForm {
    /// `pennon import`: lines of groups, persons and events.
    Pennon,
    /// PostHog's batch import and `/batch/`: lines of events only, to be sent in this order.
    Posthog,
}

/// `pennon check`
#[derive(Debug, Args)]
pub struct Check {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Only this project.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// Compare the rows of the records table with each other, instead of the checksums of events.
    #[arg(long, conflicts_with_all = ["lift", "drop"])]
    pub records: bool,
    /// Use restored segments again that were damaged before.
    #[arg(long)]
    pub lift: bool,
    /// Delete a damaged segment or block with all its events, permanently.
    #[arg(long, value_name = "SEGMENT|BLOCK", requires = "project")]
    pub drop: Option<String>,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon compact`
#[derive(Debug, Args)]
pub struct Compact {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Only this project.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project; optional with --person or --before if only one project has events. Without these: all events, persons and
    /// groups of the project.
    #[arg(long, value_name = "ID", required_unless_present_any = ["person", "before", "versions"])]
    pub project: Option<u64>,
    /// All data of the person with this distinct id or person id.
    #[arg(long, value_name = "ID", conflicts_with = "before")]
    pub person: Option<String>,
    /// Events that happened before this day (UTC) or instant: 2024-01-31 or RFC 3339. Persons and groups stay.
    #[arg(long, value_name = "DATE")]
    pub before: Option<String>,
    /// Only the old versions that the bucket keeps of replaced and deleted objects, of the project or of all; no data that
    /// queries read. Ends the restore of events to times before it.
    #[arg(long, requires = "cloud", conflicts_with_all = ["person", "before"])]
    pub versions: bool,
    /// Print what would be erased, and erase nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Erase without a confirmation prompt.
    #[arg(long)]
    pub yes: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon query`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Query {
    /// A kind of insight, whose query is given by options. A file with such a name is written with its directory.
    #[command(subcommand)]
    pub command: Option<QueryCommand>,
    /// A saved insight, by its id or its short id; or a file with a query node or the filters of a trend or a funnel as
    /// JSON; or - for standard input.
    #[arg(required = true)]
    pub query: Option<String>,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project; optional if there is only one.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// Print the result as JSON, as the API returns it.
    #[arg(long, overrides_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long, overrides_with = "json")]
    pub csv: bool,
    /// Print duration and statistics of the scans on stderr.
    #[arg(long)]
    pub stats: bool,
    /// Use this instant as the current time; dates such as -7d are relative to it, and the result is not stored.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
    /// The engine that calculates.
    #[arg(long, value_enum, default_value_t = Engine::Pennon)]
    pub engine: Engine,
    /// Print the query for another engine without running it.
    #[arg(long)]
    pub print: bool,
    /// The ClickHouse server that calculates with --engine clickhouse: the address of its HTTP interface, such as
    /// http://127.0.0.1:8123. Its user and password are PENNON_CLICKHOUSE_USER and PENNON_CLICKHOUSE_PASSWORD.
    #[arg(id = "clickhouse_url", long = "url", value_name = "URL")]
    pub clickhouse_url: Option<String>,
    /// The cluster of ClickHouse whose machines read the files of a bucket together.
    #[arg(id = "clickhouse_cluster", long = "cluster", value_name = "NAME")]
    pub cluster: Option<String>,
    /// The location of the event files for ClickHouse: a directory, or the URL of a bucket with the prefix of the events.
    #[arg(id = "clickhouse_files", long = "files", value_name = "PLACE")]
    pub files: Option<String>,
}

/// `pennon impact`
#[derive(Debug, Args)]
pub struct Impact {
    /// The flag, by its id or its key.
    pub flag: String,
    /// The metric: a file with a FunnelsQuery or a TrendsQuery as JSON, or - for standard input.
    pub metric: String,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project; optional if there is only one.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// What counts as exposure: feature_flag_called ($feature_flag_called events) or property (events with $feature/KEY).
    #[arg(long, value_name = "EXPOSURE")]
    pub exposure: Option<String>,
    /// The event whose property is read with --exposure property; by default every event.
    #[arg(long, value_name = "EVENT")]
    pub exposure_event: Option<String>,
    /// How uncertainty is calculated: bayesian or frequentist.
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// The level of intervals, such as 0.95.
    #[arg(long, value_name = "LEVEL")]
    pub confidence_level: Option<f64>,
    /// Exposed persons that a variant and the control need for a verdict.
    #[arg(long, value_name = "PERSONS")]
    pub minimum_sample: Option<u64>,
    /// The variant that the others are compared with.
    #[arg(long, value_name = "VARIANT")]
    pub control: Option<String>,
    /// The first day or instant, such as -30d or 2024-01-31; by default that of the metric.
    #[arg(long, value_name = "DATE", allow_hyphen_values = true)]
    pub date_from: Option<String>,
    /// The last day or instant; by default that of the metric.
    #[arg(long, value_name = "DATE", allow_hyphen_values = true)]
    pub date_to: Option<String>,
    /// Print the result as JSON, as the API returns it.
    #[arg(long, overrides_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long, overrides_with = "json")]
    pub csv: bool,
    /// Print duration and statistics of the scans on stderr.
    #[arg(long)]
    pub stats: bool,
    /// Use this instant as the current time; dates such as -7d are relative to it, and the result is not stored.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
}

/// The engine that calculates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Pennon itself.
    Pennon,
    /// ClickHouse, over the same files.
    Clickhouse,
}
