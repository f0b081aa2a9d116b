//! Sends spans to an OTLP collector.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::settings::TraceSettings;

/// An HTTP client for the collector. Connections are reused.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoint: Uri,
    headers: Vec<(String, String)>,
    timeout: Duration,
}

impl Exporter {
    pub fn new(settings: &TraceSettings) -> Exporter {
        Exporter {
            client: Client::builder(TokioExecutor::new()).build_http(),
            endpoint: settings.endpoint.clone(),
            headers: settings.headers.clone(),
            timeout: settings.timeout,
        }
    }

    /// Sends `body`. A failure is only logged.
    pub fn send(&self, body: String) -> impl Future<Output = ()> + Send + use<> {
        let exporter = self.clone();
        async move {
            if let Err(cause) = exporter.post(body).await {
                tracing::warn!(%cause, "spans could not be sent");
            }
        }
    }

    async fn post(&self, body: String) -> Result<(), String> {
        let mut request =
            Request::post(self.endpoint.clone()).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
        let response = tokio::time::timeout(self.timeout, self.client.request(request)).await;
        let status = response
            .map_err(|_| "the collector does not respond")?
            .map_err(|error| error.to_string())?
            .status();
        if status.is_success() { Ok(()) } else { Err(format!("the collector returned {status}")) }
    }
}
