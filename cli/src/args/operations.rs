//! Options of `tail`, `doctor` and `health`.

use clap::Args;

use super::address::parse_url;
use super::{ApiTarget, Data, Output, Target};

/// `pennon tail`: prints the latest events, then each new one, until Ctrl-C.
#[derive(Debug, Args)]
pub struct Tail {
    /// Which installation.
    #[command(flatten)]
    pub target: ApiTarget,
    /// Only events with this name.
    #[arg(long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Only events of this distinct id.
    #[arg(long, value_name = "ID")]
    pub distinct_id: Option<String>,
    /// How many of the latest events are printed first.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub lines: u32,
    /// Seconds between two requests.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Print the latest events and end.
    #[arg(long)]
    pub once: bool,
    /// JSON lines: one event in each, as the API returns it.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Which installation.
    #[command(flatten)]
    pub target: Target,
    /// Check the API at this address, such as http://127.0.0.1:8080; with the personal API key in PENNON_API_KEY, if it is set.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub url: Option<String>,
    /// The port that `pennon serve` would use on this machine.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}

/// `pennon health`: exit status 0 if the server is healthy, else 1.
#[derive(Debug, Args)]
pub struct Health {
    /// The address of the server; by default that of the server which runs on the data directory.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub url: Option<String>,
    /// Where the data is.
    #[command(flatten)]
    pub data: Data,
    /// Seconds until a response must be complete.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub timeout: u64,
    /// How the result is printed.
    #[command(flatten)]
    pub output: Output,
}
