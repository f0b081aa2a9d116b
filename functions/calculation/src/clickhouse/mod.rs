//! Requests to a ClickHouse server over HTTP.
//!
//! Must stay true: user and password are sent in headers, to the configured address alone, because redirects are not
//! followed, and are in no error, log or address; the time, the size and the number of responses are limited.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pennon_analytics::clickhouse::{FORMAT, FileLocation};
use pennon_core::config::ClickhouseSettings;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Largest response that is read.
pub const RESPONSE_BYTES_MAX: usize = 32 << 20;
/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests at once; further ones wait.
const REQUESTS_AT_ONCE: usize = 4;
/// Largest response with an error that is read.
const ERROR_BYTES_MAX: usize = 1 << 16;
/// The longest statement that a server accepts by default. One with many files or merged persons is longer.
const STATEMENT_BYTES_DEFAULT: usize = 262_144;
/// Characters of a reason that are reported.
const REASON_CHARACTERS_MAX: usize = 300;

const USER: HeaderName = HeaderName::from_static("x-clickhouse-user");
const PASSWORD: HeaderName = HeaderName::from_static("x-clickhouse-key");

/// A ClickHouse server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct ClickhouseServer {
    client: Client,
    url: Url,
    location: FileLocation,
    requests: Arc<Semaphore>,
    response_bytes_max: usize,
}

/// Why a request failed, without user, password or address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// There was no response by the deadline.
    Timeout,
    /// The server could not be reached, or returned something else than rows; a short reason.
    Failed(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Timeout => formatter.write_str("no response in time"),
            RequestError::Failed(reason) => formatter.write_str(reason),
        }
    }
}

impl From<reqwest::Error> for RequestError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() && !error.is_connect() {
            return RequestError::Timeout;
        }
        let mut reason = String::new();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            let message = inner.to_string();
            if !reason.contains(&message) {
                let separator = if reason.is_empty() { "" } else { ": " };
                reason = format!("{reason}{separator}{message}");
            }
            cause = inner.source();
        }
        let reason = if reason.is_empty() { error.without_url().to_string() } else { reason };
        RequestError::shortened(&reason)
    }
}

impl RequestError {
    /// The beginning of a reason, on one line.
    pub(crate) fn shortened(reason: &str) -> RequestError {
        let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        RequestError::Failed(line.chars().take(REASON_CHARACTERS_MAX).collect())
    }
}

impl ClickhouseServer {
    /// The server of the environment, if one is set; it reads the files at `events_url` unless the settings name another
    /// location.
    pub fn from_env(events_url: &str) -> Result<Option<ClickhouseServer>, String> {
        let settings = ClickhouseSettings::from_env();
        settings.map(|settings| ClickhouseServer::new(&settings, events_url)).transpose()
    }

    /// The server of `settings`.
    pub fn new(settings: &ClickhouseSettings, events_url: &str) -> Result<ClickhouseServer, String> {
        let url = parse_address(&settings.url)?;
        let mut location = FileLocation::parse(settings.files.as_deref(), events_url)?;
        if let Some(cluster) = &settings.cluster {
            location = location.on_cluster(cluster)?;
        }
        let mut headers = HeaderMap::new();
        for (header, value, setting) in [
            (USER, &settings.user, "PENNON_CLICKHOUSE_USER"),
            (PASSWORD, &settings.password, "PENNON_CLICKHOUSE_PASSWORD"),
        ] {
            if let Some(value) = value {
                let mut value = HeaderValue::from_str(value)
                    .map_err(|_| format!("{setting} has characters that a header cannot have"))?;
                value.set_sensitive(true);
                headers.insert(header, value);
            }
        }
        let client = Client::builder()
            .user_agent(concat!("pennon/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .default_headers(headers)
            .build()
            .map_err(|error| format!("no HTTP client can be created: {}", RequestError::from(error)))?;
        let requests = Arc::new(Semaphore::new(REQUESTS_AT_ONCE));
        Ok(ClickhouseServer { client, url, location, requests, response_bytes_max: RESPONSE_BYTES_MAX })
    }

    /// The same server with another limit of responses.
    #[must_use]
    pub fn with_response_limit(self, bytes: usize) -> ClickhouseServer {
        ClickhouseServer { response_bytes_max: bytes, ..self }
    }

    /// The location of the event files for the server.
    pub(crate) fn location(&self) -> &FileLocation {
        &self.location
    }

    /// Runs a statement. Returns its rows in [`FORMAT`].
    pub(crate) async fn run(&self, statement: String, deadline: Instant) -> Result<Vec<u8>, RequestError> {
        let _permit =
            self.requests.acquire().await.map_err(|error| RequestError::shortened(&error.to_string()))?;
        let left = deadline.saturating_duration_since(Instant::now());
        let address = self.address(left, statement.len());
        let request = self.client.post(address).timeout(left).body(statement);
        let response = request.send().await?;
        let status = response.status();
        if !status.is_success() {
            let text = read_start(response, ERROR_BYTES_MAX).await?;
            let text = String::from_utf8_lossy(&text);
            return Err(RequestError::shortened(&format!("HTTP {}: {text}", status.as_u16())));
        }
        read_whole(response, self.response_bytes_max).await
    }

    /// The address with the parameters of a request for a statement of so many bytes. The server stops soon after the
    /// deadline, and when the connection is closed.
    fn address(&self, left: Duration, statement_bytes: usize) -> Url {
        let seconds = (left.as_secs() + 1).to_string();
        let statement_bytes = statement_bytes.max(STATEMENT_BYTES_DEFAULT).to_string();
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("default_format", FORMAT)
            .append_pair("wait_end_of_query", "1")
            .append_pair("max_execution_time", &seconds)
            .append_pair("max_query_size", &statement_bytes)
            .append_pair("cancel_http_readonly_queries_on_client_close", "1");
        url
    }
}

/// The address of a server. One with a user or a password is an error that does not repeat it.
pub(crate) fn parse_address(url: &str) -> Result<Url, String> {
    let address = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let Some(address) = address else {
        return Err(
            "the address of ClickHouse (PENNON_CLICKHOUSE_URL) is no URL such as http://HOST:8123".to_owned()
        );
    };
    let names_credentials = |name: &str| ["user", "password"].contains(&name);
    if !address.username().is_empty()
        || address.password().is_some()
        || address.query_pairs().any(|(name, _)| names_credentials(&name))
    {
        return Err("the address of ClickHouse (PENNON_CLICKHOUSE_URL) has a user or a password; set PENNON_CLICKHOUSE_USER and \
                    PENNON_CLICKHOUSE_PASSWORD"
            .to_owned());
    }
    Ok(address)
}

/// Reads a response of at most `bytes_max` bytes; a larger one is an error.
async fn read_whole(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > bytes_max {
            return Err(RequestError::Failed(format!("the response is larger than {bytes_max} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Reads the first `bytes_max` bytes of a response.
async fn read_start(mut response: Response, bytes_max: usize) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    while bytes.len() < bytes_max
        && let Some(chunk) = response.chunk().await?
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(bytes_max);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
