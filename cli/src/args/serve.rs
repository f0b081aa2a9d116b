//! Options of `pennon serve`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use clap::Args;
use pennon_core::throttle::Rates;

use super::{ConnectionLimits, Data, Output};

/// `pennon serve`
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Where the data is.
    #[command(flatten)]
    pub data: Data,
    /// IP address on which the API listens; 0.0.0.0 or :: for every interface. API keys and events are not encrypted: use a
    /// proxy with TLS for access from other machines.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: ListenAddress,
    /// Port of the API; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Port of the embedded DynamoDB, always on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub dynamodb_port: u16,
    /// Workspace file to apply at the start. With it, no demo project is created.
    #[arg(long, value_name = "FILE")]
    pub workspace: Option<PathBuf>,
    /// Create no demo project in an empty installation.
    #[arg(long)]
    pub no_demo: bool,
    /// Freeze the clock at this instant; requests may set another one in the header X-Pennon-Now.
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<DateTime<Utc>>,
    /// Limit the requests of each API key: `on` for 480 a minute and 4800 an hour, and 600 a minute for flag
    /// definitions, or some of burst=N,sustained=N,definitions=N; `off` for no limit.
    #[arg(long, value_name = "RATES", default_value = "off")]
    pub rate_limits: RateLimits,
    /// Calculate queries that read more than --rows-per-part events in parts, in so many further processes; 0 for none.
    #[arg(long, value_name = "PROCESSES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub parts: u32,
    /// Events that a part of a query reads, about.
    #[arg(long, value_name = "EVENTS", default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_part: u64,
    /// Limits of connections.
    #[command(flatten)]
    pub connections: ConnectionLimits,
    /// JSON lines: one for each new key, and one when the server is ready.
    #[command(flatten)]
    pub output: Output,
}

/// The address of `--host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub IpAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        if text == "localhost" {
            return Ok(ListenAddress(Ipv4Addr::LOCALHOST.into()));
        }
        let address = text.trim_start_matches('[').trim_end_matches(']').parse();
        address.map(ListenAddress).map_err(|_| {
            "expected an IP address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1, or localhost"
                .to_owned()
        })
    }
}

/// The limits of `--rate-limits`; `None` for `off`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimits(pub Option<Rates>);

impl FromStr for RateLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<RateLimits, String> {
        if text.trim() == "off" { Ok(RateLimits(None)) } else { text.parse().map(Some).map(RateLimits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_ip_address_or_localhost() {
        let parse = |text: &str| text.parse().map(|ListenAddress(address)| address.to_string());
        assert_eq!(parse("localhost"), Ok("127.0.0.1".to_owned()));
        assert_eq!(parse("0.0.0.0"), Ok("0.0.0.0".to_owned()));
        assert_eq!(parse("[::1]"), Ok("::1".to_owned()));
        for wrong in ["", "example.com", "127.0.0.1:80", "256.0.0.1"] {
            assert!(parse(wrong).is_err_and(|error| error.contains("expected an IP address")), "{wrong}");
        }
    }

    #[test]
    fn rate_limits_can_be_off() {
        assert_eq!("off".parse(), Ok(RateLimits(None)));
        assert_eq!("on".parse(), Ok(RateLimits(Some(Rates::default()))));
        assert!("of".parse::<RateLimits>().is_err());
    }
}
