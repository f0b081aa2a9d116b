//! The Lambda function `capture`.

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::Config;
use pennon_core::http::edge;
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_eventstore::EventStore;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL, the location of the events, is not set")?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::token("-")).await, Clock::Running);
    let events = EventStore::open_to_append(app.store.clone(), &url)?;
    lambda::run(edge(pennon_capture::router(&app, &events), app.clock), app.keys).await
}
