//! The log line of every request: caller, route, status, duration and consumed resources.
//!
//! Must stay true: the line contains no key, no token, no path as sent (which may contain either) and nothing of a body;
//! everything else that is logged during a request is in a span with the request's id.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use tracing::{Instrument, Level};

use crate::ids::new_uuid;
use crate::request_metrics::{RequestMetrics, with_metrics};
use crate::traces::{self, RequestSpan, TraceContext};

/// The `tracing` target of the line, for filters and metrics.
pub const REQUEST_TARGET: &str = "pennon::request";

/// The request id that the gateway assigned. A request extension.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// The log entry of a request in progress.
pub(super) struct RequestLog {
    id: String,
    method: Method,
    start: Instant,
    metrics: Arc<RequestMetrics>,
    /// The trace context and the time of arrival, if the request is traced.
    traced: Option<(TraceContext, SystemTime)>,
}

impl RequestLog {
    pub fn new(request: &Request) -> RequestLog {
        let gateway_id = request.extensions().get::<RequestId>().map(|id| id.0.clone());
        let is_logged = tracing::enabled!(target: REQUEST_TARGET, Level::INFO);
        // Without a log line no id is needed.
        let new_id = || if is_logged { new_uuid().to_string() } else { String::new() };
        let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let traced = traces::start_span(traceparent).map(|context| (context, SystemTime::now()));
        RequestLog {
            id: gateway_id.unwrap_or_else(new_id),
            method: request.method().clone(),
            start: Instant::now(),
            metrics: Arc::new(RequestMetrics::new(traced.is_some())),
            traced,
        }
    }

    /// Runs the request. The line is written before the response is returned, because Lambda freezes a function after its
    /// response.
    pub async fn run(self, response: impl Future<Output = Response>) -> Response {
        let span = tracing::info_span!(target: REQUEST_TARGET, "request", request_id = self.id);
        let response = with_metrics(self.metrics.clone(), response).instrument(span).await;
        let status = response.status().as_u16();
        self.write_line(status);
        if let Some((context, start)) = self.traced {
            traces::send(self.span(context, start, status)).await;
        }
        response
    }

    fn span(&self, context: TraceContext, start: SystemTime, status: u16) -> RequestSpan {
        RequestSpan {
            context,
            times: (start, SystemTime::now()),
            method: self.method.to_string(),
            route: self.metrics.route().to_owned(),
            status,
            project: self.metrics.project(),
            key: self.metrics.key().to_owned(),
            request_id: self.id.clone(),
            calls: self.metrics.calls(),
        }
    }

    fn write_line(&self, status: u16) {
        let metrics = &self.metrics;
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: REQUEST_TARGET,
            parent: None,
            request_id = self.id,
            method = self.method.as_str(),
            route = metrics.route(),
            project = metrics.project(),
            key = metrics.key(),
            status,
            duration_ms = micros as f64 / 1e3,
            round_trips = metrics.round_trips(),
            read_units = metrics.read_units(),
            write_units = metrics.write_units(),
            bytes_read = metrics.bytes_read(),
            gets = metrics.gets(),
            "request"
        );
    }
}
