//! Options of `pennon serve` that limit connections: their number, time and memory.

use std::time::Duration;

use clap::Args;

/// Limits of both ports of `pennon serve`, together.
#[derive(Debug, Clone, Copy, Args)]
pub struct ConnectionLimits {
    /// Most open connections on both ports together, at most half of the process's limit of open files. At the limit a new
    /// connection replaces the one that has been idle longest.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,
    /// Seconds until a connection without a request is closed.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, value_parser = seconds())]
    pub idle_timeout: u64,
    /// Seconds from the first byte of a request until its headers are complete.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = seconds())]
    pub header_timeout: u64,
    /// Seconds in which at least 8 KiB of an unfinished body, or its end, must arrive.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    pub body_timeout: u64,
    /// Seconds until a connection is closed whose client does not read a response.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds())]
    pub write_timeout: u64,
    /// Most MiB of unfinished requests of all connections together.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub unfinished_mb: u32,
}

fn seconds() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits {
            max_connections: 4096,
            idle_timeout: 75,
            header_timeout: 15,
            body_timeout: 10,
            write_timeout: 30,
            unfinished_mb: 256,
        }
    }
}

impl ConnectionLimits {
    /// How long a connection may be idle.
    pub fn idle_time(&self) -> Duration {
        Duration::from_secs(self.idle_timeout)
    }

    /// How long the headers of a request may take.
    pub fn header_time(&self) -> Duration {
        Duration::from_secs(self.header_timeout)
    }

    /// How long the next 8 KiB of an unfinished body may take.
    pub fn body_time(&self) -> Duration {
        Duration::from_secs(self.body_timeout)
    }

    /// How long a client may read nothing of its response.
    pub fn write_time(&self) -> Duration {
        Duration::from_secs(self.write_timeout)
    }

    /// Bytes of unfinished requests at once.
    pub fn unfinished_bytes(&self) -> usize {
        usize::try_from(self.unfinished_mb).unwrap_or(usize::MAX).saturating_mul(1 << 20)
    }
}
