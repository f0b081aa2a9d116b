//! Options of the commands that read and write events.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::Args;

use super::{Output, Target};
use crate::import::{ExtraFields, FieldRule, Vendor};

/// `pennon import`
#[derive(Debug, Args)]
pub struct Import {
    /// JSON lines, a JSON array, CSV with a header, or Parquet; all but Parquet also as gzip or zstd. Recognised by the content.
    pub file: PathBuf,
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The project of lines that name none.
    #[arg(long, value_name = "ID")]
    pub project: Option<u64>,
    /// Whose export the file is; recognised by its content when left out.
    #[arg(long, value_enum, value_name = "VENDOR")]
    pub from: Option<Vendor>,
    /// A column or key of the file is this field of an event (project, event, distinct_id, timestamp, uuid, person_id,
    /// properties) or a property (properties.NAME); repeat for several.
    #[arg(long = "map", value_name = "COLUMN=FIELD")]
    pub map: Vec<FieldRule>,
    /// What is done with fields that are unknown; when left out, columns of Parquet become properties, all else is refused.
    #[arg(long, value_enum, value_name = "RULE")]
    pub extra: Option<ExtraFields>,
    /// The group type of Segment's group calls, which know no types; `company` when left out.
    #[arg(long, value_name = "NAME")]
    pub group_type: Option<String>,
    /// Check the file, print what becomes of its fields and its first three records, and store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
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
    /// Give up a damaged segment or block and all its events, for good.
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
    /// One project alone.
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
    /// Print what would be erased, and erase nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Erase without asking for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
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
    #[arg(long, overrides_with = "csv")]
    pub json: bool,
    /// Print the table as CSV.
    #[arg(long, overrides_with = "json")]
    pub csv: bool,
    /// Print on standard error how long it took, and what was read for it.
    #[arg(long)]
    pub stats: bool,
    /// Take this instant for now; dates such as -7d count from it, and the result is not kept.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
    /// The engine that calculates.
    #[arg(long, value_enum, default_value_t = Engine::Pennon)]
    pub engine: Engine,
    /// Print the query for another engine, and calculate nothing.
    #[arg(long)]
    pub print: bool,
    /// Where the other engine finds the event files: a directory, or the URL of a bucket down to the prefix of the events.
    #[arg(long, value_name = "PLACE", requires = "print")]
    pub files: Option<String>,
}

/// The engine that calculates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Pennon itself.
    Pennon,
    /// ClickHouse, over the same files.
    Clickhouse,
}
