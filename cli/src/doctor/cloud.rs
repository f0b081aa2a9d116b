//! Checks of a deployment: settings, region, credentials, tables, stream, bucket, latency and clock.

use std::time::{Duration, Instant};

use pennon_core::config::Config;
use pennon_core::store::{ConnectError, Key, Store, StoreError, Table, keys};
use serde_json::Value;

use super::{Finding, Report};
use crate::client::HttpClient;
use crate::installation::open_verified_events;

/// Time limit of each check.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Reads whose median is the latency.
const READS: usize = 5;
/// A slower read is a warning: commands make many.
const SLOW: Duration = Duration::from_millis(500);

/// Checks the deployment that the environment names.
pub(super) async fn examine(report: &mut Report) {
    let config = Config::from_env();
    let Some(events_url) = config.events_url else {
        return report.push(Finding::failure(
            "settings",
            "PENNON_EVENTS_URL is not set",
            "set PENNON_EVENTS_URL, PENNON_RECORDS_TABLE and PENNON_BLOCKS_TABLE to the outputs of the stack",
        ));
    };
    let tables = &config.store;
    report.push(Finding::ok(
        "settings",
        format!("tables {} and {}, events {events_url}", tables.records_table, tables.blocks_table),
    ));
    let probe = Key::new(keys::INSTALLATION, "DOCTOR");
    let store = match Store::connect(tables, &probe).await {
        Ok(store) => store,
        Err(error) => return push_connect_error(&error, report),
    };
    let access = store.access.as_ref();
    let region = access.map_or_else(String::new, |access| access.region.clone());
    report.push(Finding::ok("region", region.clone()));
    report.push(Finding::ok("credentials", "valid, and allowed to read the records table"));
    check_table("records table", &store.records, true, report).await;
    check_table("blocks table", &store.blocks, false, report).await;
    check_latency(&store, &probe, report).await;
    check_bucket(&store, &events_url, report).await;
    let configured = std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok().filter(|url| !url.is_empty());
    let endpoint = configured.or_else(|| access.and_then(|access| access.endpoint.clone()));
    check_clock(endpoint.unwrap_or_else(|| format!("https://dynamodb.{region}.amazonaws.com")), report).await;
}

/// Adds what is known when the tables cannot be used.
fn push_connect_error(error: &ConnectError, report: &mut Report) {
    let check = match error {
        ConnectError::NoRegion => "region",
        ConnectError::NoCredentials { .. } | ConnectError::Refused(_) => "credentials",
        ConnectError::NoTable { .. } => "records table",
        ConnectError::Unreachable { .. } => "network",
        ConnectError::Store(_) => "records table",
    };
    report.push(Finding::error(check, error.to_string()));
}

async fn check_table(check: &'static str, table: &Table, needs_stream: bool, report: &mut Report) {
    let name = table.name();
    match tokio::time::timeout(TIMEOUT, table.describe()).await {
        Ok(Ok(status)) if !status.is_active() => report.push(Finding::failure(
            check,
            format!("{name} is {}", status.state),
            "wait until it is ACTIVE, or check the events of the stack",
        )),
        Ok(Ok(status)) => {
            report.push(Finding::ok(check, format!("{name} is active")));
            if needs_stream && status.has_stream() {
                report.push(Finding::ok("stream", "enabled; the worker follows it"));
            } else if needs_stream {
                report.push(Finding::failure(
                    "stream",
                    format!(
                        "{name} has no stream of keys: background calculations and compaction do not start"
                    ),
                    "deploy the template again; it enables the stream",
                ));
            }
        }
        Ok(Err(error)) => report.push(describe_error(check, name, &error)),
        Err(_) => report.push(Finding::failure(check, format!("{name}: no response in time"), "try again")),
    }
}

/// A table that cannot be described may still be used.
fn describe_error(check: &'static str, name: &str, error: &StoreError) -> Finding {
    let text = error.to_string();
    if text.contains("AccessDenied") {
        let next = "allow dynamodb:DescribeTable to check state and stream; commands work without it";
        return Finding::warning(check, format!("{name} cannot be described with these credentials"), next);
    }
    Finding::failure(check, text, "check the name of the table in the outputs of the stack")
}

async fn check_latency(store: &Store, probe: &Key, report: &mut Report) {
    let mut times = Vec::new();
    for _ in 0..READS {
        let begun = Instant::now();
        if let Err(error) = store.records.get(probe).await {
            return report.push(Finding::failure("latency", error.to_string(), "try again"));
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times[READS / 2];
    let text = format!("{} ms for a read of the records table (median of {READS})", median.as_millis());
    report.push(if median > SLOW {
        Finding::warning(
            "latency",
            text,
            "run commands in the region of the deployment, in CloudShell for example",
        )
    } else {
        Finding::ok("latency", text)
    });
}

async fn check_bucket(store: &Store, events_url: &str, report: &mut Report) {
    let begun = Instant::now();
    let opened = tokio::time::timeout(TIMEOUT, open_verified_events(store, events_url)).await;
    report.push(match opened {
        Ok(Ok(_)) => {
            let elapsed = begun.elapsed().as_millis();
            Finding::ok(
                "bucket",
                format!("{events_url} is readable and belongs to the tables ({elapsed} ms)"),
            )
        }
        Ok(Err(error)) => Finding::error("bucket", error),
        Err(_) => {
            Finding::failure("bucket", "no response in time", "check AWS_ENDPOINT_URL_S3 and the network")
        }
    });
}

/// Compares the clocks by the header `Date`, which every response has.
async fn check_clock(endpoint: String, report: &mut Report) {
    let Ok(client) = HttpClient::new(&endpoint, TIMEOUT) else { return };
    if let Ok(response) = client.send("GET", "/", None, &Value::Null).await {
        report.extend_clock(response.date);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_missing_permission_to_describe_is_only_a_warning() {
        let error =
            |text: &str| describe_error("records table", "r", &StoreError::Failed(text.to_owned())).state;
        assert_eq!(
            error("AccessDeniedException: not authorized to perform dynamodb:DescribeTable"),
            State::Warning
        );
        assert_eq!(error("there is no such table"), State::Failure);
    }
}
