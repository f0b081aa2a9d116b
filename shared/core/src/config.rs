//! The only reader of the environment: what a function is told by its deployment.

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
}

impl Config {
    /// Reads `PENNON_RECORDS_TABLE`, `PENNON_BLOCKS_TABLE` and `PENNON_EVENTS_URL`; absent table names are those of
    /// the embedded DynamoDB.
    pub fn from_env() -> Config {
        Config::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Config {
        let local = StoreConfig::local();
        Config {
            store: StoreConfig {
                records_table: variable("PENNON_RECORDS_TABLE").unwrap_or(local.records_table),
                blocks_table: variable("PENNON_BLOCKS_TABLE").unwrap_or(local.blocks_table),
            },
            events_url: variable("PENNON_EVENTS_URL"),
        }
    }
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
    }
}
