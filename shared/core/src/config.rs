//! Configuration from environment variables. The only module that reads the environment.

use std::fmt;
use std::time::Duration;

use tracing_subscriber::filter::Targets;

use crate::payload_keys::{self, PayloadKeys};

/// Maximum of `PENNON_ANSWER_SECONDS`.
pub const RESPONSE_SECONDS_MAX: u64 = 25;

/// Names of the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The table of records.
    pub records_table: String,
    /// The table of freshly captured events.
    pub blocks_table: String,
}

impl StoreConfig {
    /// The table names of the embedded DynamoDB.
    pub fn local() -> StoreConfig {
        StoreConfig { records_table: "pennon-records".to_owned(), blocks_table: "pennon-blocks".to_owned() }
    }
}

/// The configuration of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The tables.
    pub store: StoreConfig,
    /// Where segments are stored: `s3://bucket/prefix` or `file:///directory`. `None` in functions that read no events.
    pub events_url: Option<String>,
    /// The rate limits per API key: `PENNON_RATE_LIMITS` in the format of [`crate::throttle::Rates`]; unlimited if unset or `off`.
    pub rate_limits: Option<String>,
    /// The URL of the queue that captured events wait in, of a deployment with a capture buffer: `PENNON_CAPTURE_QUEUE_URL`.
    pub capture_queue_url: Option<String>,
    /// The function that calculates parts of large queries: `PENNON_PARTS_FUNCTION`, its name or ARN.
    pub parts_function: Option<String>,
}

impl Config {
    /// Reads `PENNON_RECORDS_TABLE`, `PENNON_BLOCKS_TABLE`, `PENNON_EVENTS_URL`, `PENNON_RATE_LIMITS`,
    /// `PENNON_CAPTURE_QUEUE_URL` and `PENNON_PARTS_FUNCTION`; unset table names default to those of the embedded DynamoDB.
    pub fn from_env() -> Config {
        Config::read(set_variable)
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
            capture_queue_url: variable("PENNON_CAPTURE_QUEUE_URL"),
            parts_function: variable("PENNON_PARTS_FUNCTION"),
        }
    }
}

/// The ClickHouse server for queries that exceed the memory of this process.
#[derive(Clone, PartialEq, Eq)]
pub struct ClickhouseSettings {
    /// The address of its HTTP interface: `PENNON_CLICKHOUSE_URL`.
    pub url: String,
    /// The cluster whose machines read the files: `PENNON_CLICKHOUSE_CLUSTER`.
    pub cluster: Option<String>,
    /// The location of the event files for the server, if it is not that of `PENNON_EVENTS_URL`: `PENNON_CLICKHOUSE_FILES`.
    pub files: Option<String>,
    /// The name of the user: `PENNON_CLICKHOUSE_USER`.
    pub user: Option<String>,
    /// The password: `PENNON_CLICKHOUSE_PASSWORD`.
    pub password: Option<String>,
}

impl ClickhouseSettings {
    /// The server of `PENNON_CLICKHOUSE_URL`; `None` if it is unset.
    pub fn from_env() -> Option<ClickhouseSettings> {
        Some(ClickhouseSettings::at(&set_variable("PENNON_CLICKHOUSE_URL")?))
    }

    /// The server at `url`, with the other settings of the environment.
    pub fn at(url: &str) -> ClickhouseSettings {
        ClickhouseSettings {
            url: url.to_owned(),
            cluster: set_variable("PENNON_CLICKHOUSE_CLUSTER"),
            files: set_variable("PENNON_CLICKHOUSE_FILES"),
            user: set_variable("PENNON_CLICKHOUSE_USER"),
            password: set_variable("PENNON_CLICKHOUSE_PASSWORD"),
        }
    }
}

impl fmt::Debug for ClickhouseSettings {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClickhouseSettings { url, cluster, files, user, password: _ } = self;
        let mut shown = formatter.debug_struct("ClickhouseSettings");
        shown.field("url", url).field("cluster", cluster).field("files", files).field("user", user);
        shown.finish_non_exhaustive()
    }
}

/// An environment variable that is set and not empty.
fn set_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The payload keys of `PENNON_PAYLOAD_KEY`, followed by those in `more`; empty if neither has any.
pub fn payload_keys(more: &str) -> Result<PayloadKeys, String> {
    let configured = std::env::var(payload_keys::SETTING).unwrap_or_default();
    PayloadKeys::parse(&format!("{configured},{more}"))
}

/// The memory budget for events of running queries, in bytes: `PENNON_EVENTS_MEMORY_MB`, or half of the Lambda function's
/// memory; `None` if neither is set.
pub fn events_memory() -> Option<u64> {
    events_memory_of(|name| std::env::var(name).ok())
}

fn events_memory_of(variable: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let megabytes = |name| variable(name)?.trim().parse::<u64>().ok().filter(|megabytes| *megabytes > 0);
    let configured = megabytes("PENNON_EVENTS_MEMORY_MB").map(|megabytes| megabytes.saturating_mul(1 << 20));
    configured.or_else(|| {
        megabytes("AWS_LAMBDA_FUNCTION_MEMORY_SIZE").map(|megabytes| megabytes.saturating_mul(1 << 19))
    })
}

/// Whether events are published as Iceberg tables: `PENNON_ICEBERG` is `on`.
pub fn publishes_tables() -> bool {
    set_variable("PENNON_ICEBERG").is_some_and(|setting| setting.trim() == "on")
}

/// The memory of the Lambda function, in bytes; `None` elsewhere.
pub fn function_memory() -> Option<u64> {
    let megabytes = variable("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")?.trim().parse::<u64>().ok()?;
    megabytes.checked_mul(1 << 20)
}

/// The rows above which a function calculates a query in parts: `PENNON_ROWS_PER_PART`; `None` for the default.
pub fn rows_per_part() -> Option<u64> {
    variable("PENNON_ROWS_PER_PART")?.trim().parse().ok().filter(|rows| *rows > 0)
}

/// The GB-seconds that the parts of a project's queries may take in a day: `PENNON_PART_GB_SECONDS_PER_DAY`; `None` for the default.
/// An invalid one is an error message: it is a bound of costs.
pub fn part_gb_seconds_per_day() -> Result<Option<f64>, String> {
    let Some(text) = variable("PENNON_PART_GB_SECONDS_PER_DAY") else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if number >= 0.0 => Ok(Some(number)),
        _ => Err(format!(
            "PENNON_PART_GB_SECONDS_PER_DAY is {text:?}; it takes a number of GB-seconds, such as 50000"
        )),
    }
}

/// How long a request waits for a calculation before that continues in the background: `PENNON_ANSWER_SECONDS`, from 1 to 25
/// because API Gateway times out after 29; `None` if it is unset or invalid.
pub fn max_response_wait() -> Option<Duration> {
    response_time_of(|name| std::env::var(name).ok())
}

fn response_time_of(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let seconds = variable("PENNON_ANSWER_SECONDS")?.trim().parse::<u64>().ok()?;
    (1..=RESPONSE_SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// An environment variable, for modules that parse their own settings.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The function name for CloudWatch metrics; `None` unless `PENNON_METRICS` is `on`.
pub fn metrics_function_name() -> Option<String> {
    let is_on = std::env::var("PENNON_METRICS").is_ok_and(|setting| setting == "on");
    is_on.then(|| std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|_| "pennon".to_owned()))
}

/// Whether TLS connections need other root certificates than Amazon's: an HTTPS endpoint, a proxy or certificates are
/// configured, or the region is in a partition with endpoints of its own, or unknown.
pub fn needs_system_roots() -> bool {
    trusts_others_of(|name| std::env::var(name).ok())
}

fn trusts_others_of(variable: impl Fn(&str) -> Option<String>) -> bool {
    const VARIABLES: [&str; 12] = [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_DYNAMODB",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL_SQS",
        "AWS_ENDPOINT",
        "AWS_CA_BUNDLE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    let region = variable("AWS_REGION").unwrap_or_default();
    let partitions = ["cn-", "us-iso", "us-gov", "eu-iso", "eusc-"];
    let is_other_partition = region.is_empty() || partitions.iter().any(|start| region.starts_with(start));
    // An endpoint without TLS needs no certificates.
    let needs_roots =
        |name: &str, value: &str| !value.is_empty() && (!name.starts_with("AWS_ENDPOINT") || !is_http(value));
    is_other_partition
        || VARIABLES.iter().any(|name| variable(name).is_some_and(|value| needs_roots(name, &value)))
}

/// Another endpoint of Lambda, by the variable of AWS's tools.
pub(crate) fn lambda_endpoint() -> Option<String> {
    variable("AWS_ENDPOINT_URL_LAMBDA").filter(|url| !url.is_empty())
}

/// Whether the configured endpoint of the object store uses plain HTTP.
pub fn object_store_uses_http() -> bool {
    const VARIABLES: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    VARIABLES.iter().any(|name| std::env::var(name).is_ok_and(|value| is_http(&value)))
}

/// Whether an endpoint of the object store is configured by the environment.
pub fn names_s3_endpoint() -> bool {
    const VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"];
    VARIABLES.iter().any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
}

fn is_http(endpoint: &str) -> bool {
    endpoint.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

/// The log filter of `PENNON_LOG`: a level (`info`), levels of crates (`pennon_core=debug`), or several of them separated by
/// commas. `default` if it is unset, or invalid, which is reported on standard error.
pub fn logged(default: &str) -> Targets {
    let setting = std::env::var("PENNON_LOG").ok();
    setting.and_then(|setting| parse_levels(&setting)).or_else(|| parse_levels(default)).unwrap_or_default()
}

fn parse_levels(text: &str) -> Option<Targets> {
    text.parse().inspect_err(|error| eprintln!("PENNON_LOG: {text:?} is not a log filter: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn table_names_default_to_the_embedded_tables() {
        assert_eq!(Config::read(|_| None).store, StoreConfig::local());
    }

    #[test]
    fn log_levels_are_global_or_per_crate() {
        let levels = parse_levels("warn,pennon_core=debug,dynoxide=error").unwrap_or_default();
        let enabled = |target, level| levels.would_enable(target, &level);
        assert!(enabled("hyper", Level::WARN) && !enabled("hyper", Level::INFO));
        assert!(enabled("pennon_core::http", Level::DEBUG) && !enabled("dynoxide", Level::WARN));
        assert!(parse_levels("pennon_core=loud").is_none());
    }

    #[test]
    fn settings_come_from_the_environment() {
        let config = Config::read(|name| Some(name.to_lowercase()));
        assert_eq!(config.store.records_table, "pennon_records_table");
        assert_eq!(config.events_url.as_deref(), Some("pennon_events_url"));
        assert_eq!(config.rate_limits.as_deref(), Some("pennon_rate_limits"));
        assert_eq!(config.capture_queue_url.as_deref(), Some("pennon_capture_queue_url"));
        assert_eq!(config.parts_function.as_deref(), Some("pennon_parts_function"));
        assert_eq!(Config::read(|_| None).capture_queue_url, None);
    }

    #[test]
    fn a_password_is_not_shown() {
        let settings = ClickhouseSettings {
            url: "http://127.0.0.1:8123".to_owned(),
            cluster: None,
            files: None,
            user: Some("reader".to_owned()),
            password: Some("secret".to_owned()),
        };
        let shown = format!("{settings:?}");
        assert!(shown.contains("reader") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn only_amazon_roots_are_trusted_by_default() {
        let of = |region: &str, named: Option<&str>| {
            trusts_others_of(|name| match name {
                "AWS_REGION" => Some(region.to_owned()),
                other => (Some(other) == named).then(|| "https://x".to_owned()),
            })
        };
        let of_plain = |named: &str| {
            trusts_others_of(|name| match name {
                "AWS_REGION" => Some("eu-central-1".to_owned()),
                other => (other == named).then(|| "http://127.0.0.1:8000".to_owned()),
            })
        };
        assert!(
            !of_plain("AWS_ENDPOINT_URL") && !of_plain("AWS_ENDPOINT_URL_S3"),
            "plain HTTP needs no certificate"
        );
        assert!(of_plain("HTTPS_PROXY"), "the hosts behind the proxy are unknown");
        assert!(!of("eu-central-1", None) && !of("us-east-1", Some("PATH")));
        for named in [
            "AWS_ENDPOINT_URL_DYNAMODB",
            "AWS_ENDPOINT_URL_SQS",
            "SSL_CERT_FILE",
            "HTTPS_PROXY",
            "AWS_CA_BUNDLE",
        ] {
            assert!(of("eu-central-1", Some(named)), "{named}");
        }
        assert!(of("", None) && of("cn-north-1", None) && of("us-gov-west-1", None));
    }

    #[test]
    fn events_memory_is_the_setting_or_half_of_the_functions_memory() {
        let of = |own: Option<&str>, function: Option<&str>| {
            events_memory_of(|name| {
                let value = if name.starts_with("PENNON") { own } else { function };
                value.map(str::to_owned)
            })
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("1769")), Some(1769 << 19));
        assert_eq!(of(Some("300"), Some("1769")), Some(300 << 20));
        assert_eq!(of(Some("many"), Some("1024")), Some(1 << 29));
        assert_eq!(of(Some("0"), None), None);
    }

    #[test]
    fn response_seconds_are_between_1_and_25() {
        let of = |text: Option<&str>| response_time_of(|_| text.map(str::to_owned));
        assert_eq!(of(None), None);
        assert_eq!(of(Some("1")), Some(Duration::from_secs(1)));
        assert_eq!(of(Some(" 25 ")), Some(Duration::from_secs(25)));
        for wrong in ["0", "26", "-1", "long", ""] {
            assert_eq!(of(Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn rate_limits_are_optional() {
        let limits = |value: &str| Config::read(|_| Some(value.to_owned())).rate_limits;
        assert_eq!(limits("off"), None);
        assert_eq!(limits("on").as_deref(), Some("on"));
        assert_eq!(Config::read(|_| None).rate_limits, None);
    }
}
