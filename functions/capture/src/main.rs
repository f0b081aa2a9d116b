//! The Lambda function `capture`: requests with events, and the messages of its buffer.

use std::sync::Arc;

use pennon_capture::{CaptureBuffer, buffered_router, store_messages};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::Config;
use pennon_core::http::edge;
use pennon_core::lambda;
use pennon_core::queue::SqsQueue;
use pennon_core::store::{Store, keys};
use pennon_eventstore::EventStore;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL, the location of the events, is not set")?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::token("-")).await, Clock::Running);
    let events = EventStore::open_to_append(app.store.clone(), &url)?;
    let mut buffer = None;
    if let Some(url) = &config.capture_queue_url {
        buffer = Some(CaptureBuffer::new(Arc::new(SqsQueue::connect(url, app.store.roots).await)));
    }
    let router = edge(buffered_router(&app, &events, buffer), app.clock);
    let clock = app.clock;
    // Without a queue too: one that is switched off still delivers what it has.
    let consume = move |messages, end| {
        let events = events.clone();
        async move { store_messages(&events, messages, clock.now(None).timestamp_micros(), end).await }
    };
    lambda::run_with_queue(router, app.keys, consume).await
}
