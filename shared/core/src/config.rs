//! The only reader of the environment: what a function is told by its deployment.

use crate::payload_keys::{self, PayloadKeys};
use crate::throttle::Rates;

/// Names of the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The table of records.
    pub records_table: String,
    /// The table of freshly captured events.
    pub blocks_table: String,
}

impl StoreConfig {
    /// The names that the embedded DynamoDB has.
    pub fn local() -> StoreConfig {
        StoreConfig { records_table: "pennon-records".to_owned(), blocks_table: "pennon-blocks".to_owned() }
    }
}

/// What a function needs to know of its surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The tables.
    pub store: StoreConfig,
    /// Where segments lie: `s3://bucket/prefix` or `file:///directory`. None in functions that read no events.
    pub events_url: Option<String>,
    /// How often a key may ask: `PENNON_RATE_LIMITS` in the form of [`crate::throttle::Rates`]; not limited when absent
    /// or `off`.
    pub rate_limits: Option<String>,
}

impl Config {
    /// Reads `PENNON_RECORDS_TABLE`, `PENNON_BLOCKS_TABLE`, `PENNON_EVENTS_URL` and `PENNON_RATE_LIMITS`; absent table names are those of
    /// the embedded DynamoDB.
    pub fn from_env() -> Config {
        Config::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The limits, read.
    pub fn rates(&self) -> Result<Option<Rates>, String> {
        self.rate_limits.as_deref().map(str::parse).transpose()
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Config {
        let local = StoreConfig::local();
        Config {
            store: StoreConfig {
                records_table: variable("PENNON_RECORDS_TABLE").unwrap_or(local.records_table),
                blocks_table: variable("PENNON_BLOCKS_TABLE").unwrap_or(local.blocks_table),
            },
            events_url: variable("PENNON_EVENTS_URL"),
            rate_limits: variable("PENNON_RATE_LIMITS").filter(|limits| limits != "off"),
        }
    }
}

/// The keys in `PENNON_PAYLOAD_KEY`, after which those in `more` are tried; none where neither names one.
pub fn payload_keys(more: &str) -> Result<PayloadKeys, String> {
    let named = std::env::var(payload_keys::SETTING).unwrap_or_default();
    PayloadKeys::parse(&format!("{named},{more}"))
}

/// What `PENNON_LOG` says about log levels, in the form of `tracing_subscriber::EnvFilter`; `info` when absent.
pub fn log_filter() -> String {
    std::env::var("PENNON_LOG").unwrap_or_else(|_| "info".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_names_are_those_of_the_embedded_tables() {
        assert_eq!(Config::read(|_| None).store, StoreConfig::local());
    }

    #[test]
    fn names_come_from_the_environment() {
        let config = Config::read(|name| Some(name.to_lowercase()));
        assert_eq!(config.store.records_table, "pennon_records_table");
        assert_eq!(config.events_url.as_deref(), Some("pennon_events_url"));
        assert!(config.rates().is_err());
    }

    #[test]
    fn rates_are_limited_only_where_it_says_so() {
        let rates = |value: &str| Config::read(|_| Some(value.to_owned())).rates();
        assert_eq!(rates("off"), Ok(None));
        assert_eq!(rates("on"), Ok(Some(Rates::default())));
        assert_eq!(Config::read(|_| None).rates(), Ok(None));
    }
}
