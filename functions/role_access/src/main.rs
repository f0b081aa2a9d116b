//! Lambda entry point of the function `role_access`.

use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, payload_keys};
use pennon_core::http::edge;
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_core::throttle::Rates;

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let rates = Rates::from_config(&config)?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::api_key("-")).await, Clock::Running)
        .with_rate_limits(rates)
        .with_payload_keys(payload_keys("")?);
    lambda::run(edge(pennon_role_access::router(&app), app.clock), app.keys).await
}
