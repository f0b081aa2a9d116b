//! The line that the log gets for every request: who asked for what, how it ended, and what it took.
//!
//! Must stay true: it holds no key, no token, no path as it was sent (which may have either) and nothing of a body; what
//! else is logged while a request is answered stands in a span with its id.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use tracing::{Instrument, Level};

use crate::ids::new_uuid;
use crate::request_metrics::{RequestMetrics, with_metrics};
use crate::traces::{self, Parent, RequestSpan};

/// Target of the line, by which filters and other readers of the log know it.
pub const REQUEST_TARGET: &str = "pennon::request";

/// The id by which whoever passed the request on knows it.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// A request that is being answered.
pub(super) struct Watched {
    id: String,
    method: Method,
    began: Instant,
    metrics: Arc<RequestMetrics>,
    /// Of which trace it is, where it is traced, and when it came.
    traced: Option<(Parent, SystemTime)>,
}

impl Watched {
    pub fn new(request: &Request) -> Watched {
        let given = request.extensions().get::<RequestId>().map(|id| id.0.clone());
        let is_told = tracing::enabled!(target: REQUEST_TARGET, Level::INFO);
        // An id that nobody will read is not made.
        let own = || if is_told { new_uuid().to_string() } else { String::new() };
        let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let traced = traces::begin(traceparent).map(|parent| (parent, SystemTime::now()));
        Watched {
            id: given.unwrap_or_else(own),
            method: request.method().clone(),
            began: Instant::now(),
            metrics: Arc::new(RequestMetrics::new(traced.is_some())),
            traced,
        }
    }

    /// What `answer` comes to. Its line is written before it is handed on, because a function stops with its answer.
    pub async fn answered(self, answer: impl Future<Output = Response>) -> Response {
        let span = tracing::info_span!(target: REQUEST_TARGET, "request", request_id = self.id);
        let response = with_metrics(self.metrics.clone(), answer).instrument(span).await;
        let status = response.status().as_u16();
        self.tell(status);
        if let Some((parent, began)) = self.traced {
            traces::send(self.span(parent, began, status)).await;
        }
        response
    }

    fn span(&self, parent: Parent, began: SystemTime, status: u16) -> RequestSpan {
        RequestSpan {
            parent,
            times: (began, SystemTime::now()),
            method: self.method.to_string(),
            route: self.metrics.route().to_owned(),
            status,
            project: self.metrics.project(),
            key: self.metrics.key().to_owned(),
            request_id: self.id.clone(),
            calls: self.metrics.calls(),
        }
    }

    fn tell(&self, status: u16) {
        let metrics = &self.metrics;
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
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
            "request"
        );
    }
}
