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
    /// The directory to make, or the file, if its name ends in .tar. Nothing may be there.
    #[arg(long, value_name = "PLACE")]
    pub out: PathBuf,
    /// Make hard links of the event files and no copies: quick and small, on the same file system only, and damage of the
    /// disk damages both.
    #[arg(long)]
    pub link: bool,
    /// Put the key of secret payloads into it too: anyone who has the backup can then read them.
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
    /// The data directory to make; it must not be there, or be empty.
    #[arg(long, value_name = "DIR", default_value = "pennon-data")]
    pub data: PathBuf,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon adopt`: deletes nothing. Event files that the tables do not know are moved to the folder `kept`, which nothing
/// ever removes.
#[derive(Debug, Args)]
pub struct Adopt {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}
