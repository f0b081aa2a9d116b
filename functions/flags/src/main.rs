//! Lambda entry point of the function `flags`.

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, payload_keys};
use pennon_core::http::edge;
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_core::throttle::Rates;
use pennon_eventstore::EventStore;
use pennon_flags::Flags;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let rates = Rates::from_config(&config)?;
    let url = config.events_url.ok_or(
        "PENNON_EVENTS_URL is not set. Set it to the location of the events, such as s3://bucket/prefix.",
    )?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::api_key("-")).await, Clock::Running)
        .with_rate_limits(rates)
        .with_payload_keys(payload_keys("")?);
    let events = EventStore::open(app.store.clone(), &url)?;
    let state = Flags::new(app, events);
    lambda::run(edge(pennon_flags::function_router(&state), state.app.clock), state.app.keys).await
}
