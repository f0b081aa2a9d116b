//! The only reader of the environment: what a function is told by its deployment.

use std::time::Duration;

use tracing_subscriber::filter::Targets;

use crate::payload_keys::{self, PayloadKeys};
use crate::throttle::Rates;

/// Longest that a request may wait for a calculation.
const ANSWER_SECONDS_MAX: u64 = 25;

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

/// How many bytes of memory the events of questions may take: `PENNON_EVENTS_MEMORY_MB`, or half of what a Lambda function
/// has; none where neither is said.
pub fn events_memory() -> Option<u64> {
    events_memory_of(|name| std::env::var(name).ok())
}

fn events_memory_of(variable: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let megabytes = |name| variable(name)?.trim().parse::<u64>().ok().filter(|megabytes| *megabytes > 0);
    let own = megabytes("PENNON_EVENTS_MEMORY_MB").map(|own| own.saturating_mul(1 << 20));
    own.or_else(|| megabytes("AWS_LAMBDA_FUNCTION_MEMORY_SIZE").map(|all| all.saturating_mul(1 << 19)))
}

/// How long a request may wait for a calculation before that goes on in the background: `PENNON_ANSWER_SECONDS`, from 1 to
/// 25 because gateways give up after 29; none where nothing is said.
pub fn answer_time() -> Option<Duration> {
    answer_time_of(|name| std::env::var(name).ok())
}

fn answer_time_of(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let seconds = variable("PENNON_ANSWER_SECONDS")?.trim().parse::<u64>().ok()?;
    (1..=ANSWER_SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// A variable whose form its reader knows.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The name of the function whose metrics are to be written: that of this one where `PENNON_METRICS` is `on`.
pub fn metrics_of() -> Option<String> {
    let is_on = std::env::var("PENNON_METRICS").is_ok_and(|setting| setting == "on");
    is_on.then(|| std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|_| "pennon".to_owned()))
}

/// Whether connections have to trust other certificates than those of AWS's public endpoints: an endpoint that shows any, a proxy, or
/// certificates are named, or the region is of a partition with endpoints of its own.
pub fn trusts_others() -> bool {
    trusts_others_of(|name| std::env::var(name).ok())
}

fn trusts_others_of(variable: impl Fn(&str) -> Option<String>) -> bool {
    const NAMED: [&str; 11] = [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_DYNAMODB",
        "AWS_ENDPOINT_URL_S3",
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
    let apart = ["cn-", "us-iso", "us-gov", "eu-iso", "eusc-"];
    let is_apart = region.is_empty() || apart.iter().any(|start| region.starts_with(start));
    // Without encryption there is nothing to trust.
    let counts = |name: &str, value: &str| {
        !value.is_empty() && (!name.starts_with("AWS_ENDPOINT") || !is_plain(value))
    };
    is_apart || NAMED.iter().any(|name| variable(name).is_some_and(|value| counts(name, &value)))
}

/// Whether the object store is one that speaks without encryption: what names its endpoint says so.
pub fn objects_are_plain() -> bool {
    const NAMED: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    NAMED.iter().any(|name| std::env::var(name).is_ok_and(|value| is_plain(&value)))
}

fn is_plain(endpoint: &str) -> bool {
    endpoint.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

/// What `PENNON_LOG` says of what is logged: a level (`info`), levels of crates (`pennon_core=debug`), or several of them with
/// commas between. What is not understood is said once, and `absent` counts, as it does where nothing is said.
pub fn logged(absent: &str) -> Targets {
    let said = std::env::var("PENNON_LOG").ok();
    said.and_then(|said| levels(&said)).or_else(|| levels(absent)).unwrap_or_default()
}

fn levels(said: &str) -> Option<Targets> {
    said.parse().inspect_err(|error| eprintln!("PENNON_LOG: {said:?} says no levels: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn absent_names_are_those_of_the_embedded_tables() {
        assert_eq!(Config::read(|_| None).store, StoreConfig::local());
    }

    #[test]
    fn levels_are_of_everything_or_of_a_crate() {
        let levels = levels("warn,pennon_core=debug,dynoxide=error").unwrap_or_default();
        let enabled = |target, level| levels.would_enable(target, &level);
        assert!(enabled("hyper", Level::WARN) && !enabled("hyper", Level::INFO));
        assert!(enabled("pennon_core::http", Level::DEBUG) && !enabled("dynoxide", Level::WARN));
        assert!(super::levels("pennon_core=loud").is_none());
    }

    #[test]
    fn names_come_from_the_environment() {
        let config = Config::read(|name| Some(name.to_lowercase()));
        assert_eq!(config.store.records_table, "pennon_records_table");
        assert_eq!(config.events_url.as_deref(), Some("pennon_events_url"));
        assert!(config.rates().is_err());
    }

    #[test]
    fn certificates_of_aws_alone_are_trusted_where_nothing_else_is_named() {
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
        assert!(!of_plain("AWS_ENDPOINT_URL") && !of_plain("AWS_ENDPOINT_URL_S3"), "no certificate is shown");
        assert!(of_plain("HTTPS_PROXY"), "what is behind it shows some");
        assert!(!of("eu-central-1", None) && !of("us-east-1", Some("PATH")));
        for named in ["AWS_ENDPOINT_URL_DYNAMODB", "SSL_CERT_FILE", "HTTPS_PROXY", "AWS_CA_BUNDLE"] {
            assert!(of("eu-central-1", Some(named)), "{named}");
        }
        assert!(of("", None) && of("cn-north-1", None) && of("us-gov-west-1", None));
    }

    #[test]
    fn memory_for_events_is_what_is_said_or_half_of_the_functions() {
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
    fn requests_wait_as_long_as_is_said_and_a_gateway_allows() {
        let of = |text: Option<&str>| answer_time_of(|_| text.map(str::to_owned));
        assert_eq!(of(None), None);
        assert_eq!(of(Some("1")), Some(Duration::from_secs(1)));
        assert_eq!(of(Some(" 25 ")), Some(Duration::from_secs(25)));
        for wrong in ["0", "26", "-1", "long", ""] {
            assert_eq!(of(Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn rates_are_limited_only_where_it_says_so() {
        let rates = |value: &str| Config::read(|_| Some(value.to_owned())).rates();
        assert_eq!(rates("off"), Ok(None));
        assert_eq!(rates("on"), Ok(Some(Rates::default())));
        assert_eq!(Config::read(|_| None).rates(), Ok(None));
    }
}
