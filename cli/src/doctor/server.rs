//! Checks of a server or a deployment over HTTP: whether it responds, how fast, its version, its clock and the key.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::{Finding, Report};
use crate::args::Health;
use crate::client::{API_KEY_VARIABLE, HttpClient, HttpResponse};
use crate::data::DataDirectory;

const TIMEOUT: Duration = Duration::from_secs(15);
const HEALTH_PATH: &str = "/_health";
const DOCUMENT_PATH: &str = "/api/schema/";
/// A response that takes longer is a warning.
const SLOW: Duration = Duration::from_secs(2);
/// Differences between two clocks: of seconds in headers and latency; and at which AWS rejects signatures.
const SKEW_WARNING: TimeDelta = TimeDelta::seconds(5);
const SKEW_FAILURE: TimeDelta = TimeDelta::seconds(300);

/// The address whose health is checked: that of the option, or of the server that runs on the data directory.
pub fn health_url(options: &Health) -> Result<String, String> {
    if let Some(url) = &options.url {
        return Ok(url.clone());
    }
    let path = &options.data.data;
    let server = DataDirectory::for_reading(path).ok().and_then(|directory| directory.server());
    server.map(|info| info.http).ok_or_else(|| {
        format!("no server runs on {}; start `pennon serve`, or name an address with --url", path.display())
    })
}

/// The problems of the server at `url`; none if it is healthy. Sends one request.
pub async fn check_health(url: &str, timeout_seconds: u64) -> Vec<String> {
    let client = match HttpClient::new(url, Duration::from_secs(timeout_seconds)) {
        Ok(client) => client,
        Err(error) => return vec![error],
    };
    match client.send("GET", HEALTH_PATH, None, &Value::Null).await {
        Ok(response) => problems(&response),
        Err(cause) => vec![format!("it does not respond ({cause})")],
    }
}

/// The problems that a response of `/_health` names.
fn problems(response: &HttpResponse) -> Vec<String> {
    if response.status == 200 {
        return Vec::new();
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    let listed = body["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let problems: Vec<String> = listed.map(str::to_owned).collect();
    if problems.is_empty() {
        vec![format!("{HEALTH_PATH} returned status {}", response.status)]
    } else {
        problems
    }
}

/// Checks the server at `url`.
pub(super) async fn examine(url: &str, report: &mut Report) {
    let client = match HttpClient::new(url, TIMEOUT) {
        Ok(client) => client,
        Err(error) => return report.push(Finding::error("server", error)),
    };
    let get = |path| client.send("GET", path, None, &Value::Null);
    let health = match get(HEALTH_PATH).await {
        Ok(response) => response,
        Err(cause) => {
            let next = "check the address, the network, and that the server runs";
            return report.push(Finding::failure(
                "server",
                format!("{url} does not respond ({cause})"),
                next,
            ));
        }
    };
    // A deployment has no such path: its functions are started for each request.
    match (health.status, problems(&health)) {
        (404, _) => report.push(Finding::ok("server", format!("{url} responds"))),
        (_, problems) if problems.is_empty() => {
            report.push(Finding::ok("server", format!("{url} is healthy")))
        }
        (_, problems) => {
            problems.into_iter().for_each(|problem| report.push(Finding::error("server", problem)))
        }
    }
    report.push(latency_finding(health.elapsed));
    report.extend_clock(health.date);
    match get(DOCUMENT_PATH).await {
        Ok(response) => report.push(version_finding(url, &response)),
        Err(cause) => {
            report.push(Finding::failure("server version", cause, "check the network, and try again"))
        }
    }
    check_key(&client, report).await;
}

impl Report {
    /// Adds the check of the clocks, if the server sent its own.
    pub(super) fn extend_clock(&mut self, date: Option<DateTime<Utc>>) {
        if let Some(date) = date {
            self.push(clock_finding(date - Utc::now()));
        }
    }
}

/// The finding for a server clock that is `ahead` of this machine's.
fn clock_finding(ahead: TimeDelta) -> Finding {
    let seconds = ahead.num_seconds().abs();
    let direction = if ahead > TimeDelta::zero() { "behind" } else { "ahead of" };
    let text = format!("this machine is {seconds} s {direction} the server");
    let next = "set the clock of the machine that is wrong, with NTP for example";
    match ahead.abs() {
        skew if skew >= SKEW_FAILURE => {
            Finding::failure("clock", format!("{text}; AWS rejects such requests"), next)
        }
        skew if skew >= SKEW_WARNING => Finding::warning("clock", text, next),
        _ => Finding::ok("clock", "as the server's, within a few seconds"),
    }
}

fn latency_finding(elapsed: Duration) -> Finding {
    let text = format!("{} ms", elapsed.as_millis());
    if elapsed > SLOW {
        return Finding::warning(
            "latency",
            text,
            "run it again; if it stays slow, check the network and the server's load",
        );
    }
    Finding::ok("latency", text)
}

fn version_finding(url: &str, response: &HttpResponse) -> Finding {
    let document: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    let own = env!("CARGO_PKG_VERSION");
    match document["info"]["version"].as_str() {
        Some(version) if version == own => Finding::ok("server version", version),
        Some(version) => Finding::warning(
            "server version",
            format!("{version}, and this command is {own}"),
            "use commands of the server's version; docs/exit.md describes upgrades",
        ),
        None => Finding::failure(
            "server version",
            format!("{url}{DOCUMENT_PATH} has no API document of Pennon (status {})", response.status),
            "check that the address is that of Pennon, with its stage",
        ),
    }
}

/// Checks the key of the environment.
async fn check_key(client: &HttpClient, report: &mut Report) {
    let Some(key) = std::env::var(API_KEY_VARIABLE).ok().filter(|key| !key.is_empty()) else {
        return;
    };
    let finding = match client.send("GET", "/api/projects/?limit=1", Some(&key), &Value::Null).await {
        Ok(response) if response.status == 200 => {
            let page: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
            Finding::ok("API key", format!("{API_KEY_VARIABLE} is valid; projects: {}", page["count"]))
        }
        Ok(response) if response.status == 401 => Finding::failure(
            "API key",
            format!("the server rejected the key of {API_KEY_VARIABLE}"),
            "create another one with `pennon keys create`",
        ),
        Ok(response) if response.status == 403 => Finding::ok(
            "API key",
            format!("{API_KEY_VARIABLE} is valid; it may not list projects, so commands need --project"),
        ),
        Ok(response) => Finding::failure(
            "API key",
            format!("the list of projects has status {}", response.status),
            "check the log of the server",
        ),
        Err(cause) => Finding::failure("API key", cause, "check the network, and try again"),
    };
    report.push(finding);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn response(status: u16, body: &str) -> HttpResponse {
        HttpResponse { status, date: None, body: body.as_bytes().to_vec(), elapsed: Duration::ZERO }
    }

    #[test]
    fn a_clock_may_differ_by_a_few_seconds() {
        let state = |seconds: i64| clock_finding(TimeDelta::seconds(seconds)).state;
        assert_eq!((state(0), state(4), state(-4)), (State::Ok, State::Ok, State::Ok));
        assert_eq!((state(5), state(-5), state(299)), (State::Warning, State::Warning, State::Warning));
        assert_eq!((state(300), state(-300)), (State::Failure, State::Failure));
        assert!(clock_finding(TimeDelta::seconds(60)).detail.contains("60 s behind"));
    }

    #[test]
    fn the_problems_are_those_of_the_response() {
        assert!(problems(&response(200, "ok")).is_empty());
        let body = r#"{"status": "unavailable", "problems": ["the disk is full", "x"]}"#;
        assert_eq!(problems(&response(503, body)), ["the disk is full", "x"]);
        assert_eq!(problems(&response(502, "<html>")), ["/_health returned status 502"]);
    }

    #[test]
    fn another_version_is_a_warning_and_another_product_a_failure() {
        let finding = |body: &str| version_finding("http://a", &response(200, body)).state;
        assert_eq!(
            finding(&format!(r#"{{"info": {{"version": "{}"}}}}"#, env!("CARGO_PKG_VERSION"))),
            State::Ok
        );
        assert_eq!(finding(r#"{"info": {"version": "99.0.0"}}"#), State::Warning);
        assert_eq!(finding("<html>"), State::Failure);
    }
}
