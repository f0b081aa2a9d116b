//! Requests to a server or a deployment over HTTP.
//!
//! Must stay true: the key comes from the environment, never from the command line, where other processes would see it; it is
//! sent to the address of `--url` only, because redirects are not followed; time and size of a response are limited.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use reqwest::{Client, Method, redirect};
use serde_json::Value;

use super::ApiFailure;

/// The environment variable with the personal API key for `--url`.
pub const API_KEY_VARIABLE: &str = "PENNON_API_KEY";
/// How long a connection may take to open, and a request until its response is complete.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// An HTTP client without a key.
pub struct HttpClient {
    client: Client,
    /// The address, without a trailing slash.
    pub url: String,
}

/// A response, its headers as far as commands use them.
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The clock of the server, to the second.
    pub date: Option<DateTime<Utc>>,
    /// The body.
    pub body: Vec<u8>,
    /// How long it took.
    pub elapsed: Duration,
}

impl HttpClient {
    /// A client for the address `url`, with this timeout of a request.
    pub fn new(url: &str, timeout: Duration) -> Result<HttpClient, String> {
        let client = Client::builder()
            .user_agent(concat!("pennon/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            .timeout(timeout)
            .build()
            .map_err(|e| format!("no HTTP client can be created: {}", causes(&e)))?;
        Ok(HttpClient { client, url: url.to_owned() })
    }

    /// Sends a request; a body of `null` is no body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Result<HttpResponse, String> {
        let begun = Instant::now();
        let method = Method::from_bytes(method.as_bytes()).map_err(|e| e.to_string())?;
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let mut response = request.send().await.map_err(|e| causes(&e))?;
        let status = response.status().as_u16();
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()).map(|date| date.to_utc());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| causes(&e))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > RESPONSE_BYTES_MAX {
                return Err(format!("the response is larger than {RESPONSE_BYTES_MAX} bytes"));
            }
        }
        Ok(HttpResponse { status, date, body: bytes, elapsed: begun.elapsed() })
    }
}

/// The API at `--url`, with the key of the environment.
pub(super) struct HttpTransport {
    http: HttpClient,
    key: String,
}

impl HttpTransport {
    pub(super) fn new(url: &str) -> Result<HttpTransport, String> {
        let key = std::env::var(API_KEY_VARIABLE).ok().filter(|key| !key.is_empty()).ok_or_else(|| {
            format!(
                "--url needs a personal API key in the environment variable {API_KEY_VARIABLE}; `pennon keys create` on the \
                 server's machine prints a new one"
            )
        })?;
        Ok(HttpTransport { http: HttpClient::new(url, REQUEST_TIMEOUT)?, key })
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, ApiFailure> {
        let url = &self.http.url;
        let response = self.http.send(method, path, Some(&self.key), body).await.map_err(|cause| {
            ApiFailure::without_response(format!(
                "{url} did not respond ({cause}); check the address, the network and that the server runs"
            ))
        })?;
        let status = response.status;
        if !(200..300).contains(&status) {
            let mut failure = ApiFailure::of_response(status, &response.body);
            failure.detail = match status {
                300..=399 => format!("{url} redirects ({status}); use the address that it redirects to"),
                401 => format!(
                    "{url} rejected the key of {API_KEY_VARIABLE} ({}); `pennon keys create` on the server's machine prints a \
                     new one",
                    failure.detail
                ),
                403 => format!("{}; use a key in {API_KEY_VARIABLE} with that right", failure.detail),
                429 | 503 => format!("{url} is busy ({}); try again later", failure.detail),
                _ => failure.detail,
            };
            return Err(failure);
        }
        serde_json::from_slice(&response.body).map_err(|_| {
            ApiFailure::without_response(format!(
                "{url}{path} is no API of Pennon: its response is not JSON; check --url"
            ))
        })
    }
}

/// The messages of an error and its causes on one line. An error of the client ends with its URL, which the caller names.
fn causes(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "no response in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{message}");
        }
        cause = inner.source();
    }
    if text.is_empty() { error.to_string() } else { text }.split_whitespace().collect::<Vec<_>>().join(" ")
}
