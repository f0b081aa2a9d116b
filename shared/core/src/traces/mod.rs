//! Traces of requests for a collector of OpenTelemetry, where the environment names one.
//!
//! A request is a span, and so is each call to DynamoDB that it waited for. Sent as OTLP over HTTP in JSON, to a collector
//! beside the process (a Lambda extension, an agent). The form and the variables are OpenTelemetry's; what of them is
//! served stands in docs/operations.md. The crates of OpenTelemetry bring a client, protocol buffers and a processor with
//! a thread of its own, which would run on behind a function's answer and weigh more than the rest of a small function
//! may grow; so these few spans are written here.
//!
//! Must stay true: where nothing names a collector nothing is counted or sent; spans hold what the log's line of the
//! request holds and no more; a collector that does not answer changes no answer and delays it by at most the time
//! that the environment sets.

mod context;
mod export;
mod settings;
mod span;

use std::future::Future;
use std::sync::OnceLock;

use export::Exporter;
use settings::Settings;

pub(crate) use context::Parent;
pub use span::CallSpan;
pub(crate) use span::RequestSpan;

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// When spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Before the answer goes out, because the process is halted behind it.
    Before,
    /// Beside the answer.
    Beside,
}

struct Tracer {
    settings: Settings,
    exporter: Exporter,
    sending: Sending,
}

/// Begins to trace if the environment says so, once a process. The error tells what is wrong with what it says.
pub fn start(sending: Sending) -> Result<(), String> {
    let Some(settings) = Settings::read(crate::config::variable)? else { return Ok(()) };
    let exporter = Exporter::new(&settings);
    // Whoever began first is heard.
    let _ = TRACER.set(Tracer { settings, exporter, sending });
    Ok(())
}

/// What a request with this `traceparent` is traced as; none where it is not.
pub(crate) fn begin(traceparent: Option<&str>) -> Option<Parent> {
    let tracer = TRACER.get()?;
    let parent = traceparent.filter(|_| tracer.settings.reads_parents).and_then(Parent::parse);
    let context = parent.unwrap_or_else(Parent::none);
    tracer.settings.sampler.takes(&context).then_some(context)
}

/// Sends the span of a request that has ended.
pub(crate) async fn send(span: RequestSpan) {
    let Some(tracer) = TRACER.get() else { return };
    let body = span.request(&tracer.settings.resource).to_string();
    let sent = tracer.exporter.send(body);
    match tracer.sending {
        Sending::Before => sent.await,
        Sending::Beside => beside(sent),
    }
}

fn beside(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}
