//! Options of `backup`, `restore` and `adopt`.

use std::path::PathBuf;

use clap::Args;

use super::{Output, Target};

/// `pennon backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// The directory to create, or the file if its name ends in .tar. It must not exist.
    #[arg(long, value_name = "PLACE")]
    pub out: PathBuf,
    /// Hard-link the event files instead of copying them: fast and small, but only on the same file system, and a damaged disk
    /// damages both.
    #[arg(long)]
    pub link: bool,
    /// Include the key of secret payloads: anyone who has the backup can then read them.
    #[arg(long)]
    pub with_payload_key: bool,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup: a directory or a file.
    #[arg(value_name = "BACKUP")]
    pub from: PathBuf,
    /// The data directory to create; it must not exist, or be empty.
    #[arg(long, value_name = "DIR", default_value = "pennon-data")]
    pub data: PathBuf,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon adopt`: deletes nothing. Event files that the tables do not list are moved to the folder `kept`, which is never
/// removed.
#[derive(Debug, Args)]
pub struct Adopt {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}
