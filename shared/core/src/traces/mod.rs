//! OpenTelemetry traces of requests, if the environment configures a collector.
//!
//! A request is a span, and each call to DynamoDB is a child span. Spans are sent as OTLP/HTTP in JSON to a collector on the
//! same host (a Lambda extension, an agent). The supported subset of OpenTelemetry's variables is in docs/operations.md.
//!
//! Written by hand: `opentelemetry-otlp` 0.33 with its smallest features (JSON over hyper) adds 16 crates to a function, among
//! them protocol buffers, and would replace only `export.rs` and the JSON of `span.rs`, about 130 lines. Its batch processor has
//! a thread of its own, which Lambda freezes with the response, so that spans would be sent from here all the same.
//!
//! Must stay true: without a configured collector nothing is recorded or sent; spans contain the same data as the request
//! log line and no more; an unreachable collector changes no response and delays it by at most the configured timeout.

mod export;
mod settings;
mod span;
mod trace_context;

use std::future::Future;
use std::sync::OnceLock;

use export::Exporter;
use settings::TraceSettings;

pub use span::CallSpan;
pub(crate) use span::RequestSpan;
pub(crate) use trace_context::TraceContext;

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// When spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendTiming {
    /// Before the response is returned, because Lambda freezes the process after it.
    Before,
    /// In the background.
    Beside,
}

struct Tracer {
    settings: TraceSettings,
    exporter: Exporter,
    sending: SendTiming,
}

/// Starts tracing if the environment configures it, once per process. Returns an error message for invalid settings.
pub fn start(sending: SendTiming) -> Result<(), String> {
    let Some(settings) = TraceSettings::read(crate::config::variable)? else { return Ok(()) };
    let exporter = Exporter::new(&settings);
    // Only the first call has an effect.
    let _ = TRACER.set(Tracer { settings, exporter, sending });
    Ok(())
}

/// The trace context of a request with this `traceparent` header; `None` if the request is not sampled.
pub(crate) fn start_span(traceparent: Option<&str>) -> Option<TraceContext> {
    let tracer = TRACER.get()?;
    let received = traceparent.filter(|_| tracer.settings.reads_traceparent).and_then(TraceContext::parse);
    let context = received.unwrap_or_else(TraceContext::new_trace);
    tracer.settings.sampler.samples(&context).then_some(context)
}

/// Sends the span of a request that has ended.
pub(crate) async fn send(span: RequestSpan) {
    let Some(tracer) = TRACER.get() else { return };
    let body = span.export_request(&tracer.settings.resource).to_string();
    let sent = tracer.exporter.send(body);
    match tracer.sending {
        SendTiming::Before => sent.await,
        SendTiming::Beside => send_in_background(sent),
    }
}

fn send_in_background(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}
