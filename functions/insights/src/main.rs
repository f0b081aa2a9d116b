//! The function `insights`.

use std::alloc::System;

use pennon_allocator::{CountingAllocator, thread_bytes};
use pennon_calculation::clickhouse::ClickhouseServer;
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, events_memory, max_response_wait, payload_keys};
use pennon_core::heap;
use pennon_core::http::edge;
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_core::throttle::Rates;
use pennon_eventstore::{EventStore, Settings};
use pennon_insights::Insights;

/// Counts what each thread holds, for the memory budget of queries.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

#[tokio::main]
async fn main() -> Result<(), lambda::Error> {
    lambda::start_logging();
    heap::set_allocation_counter(thread_bytes);
    let config = Config::from_env();
    let rates = Rates::from_config(&config)?;
    let url = config.events_url.ok_or("PENNON_EVENTS_URL is not set: the address of the events")?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::api_key("-")).await, Clock::Running)
        .with_rate_limits(rates)
        .with_payload_keys(payload_keys("")?);
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    let events = EventStore::open_with(app.store.clone(), &url, settings)?;
    let calculator = Calculator::with_limits(&app, events, CalculationLimits::within(max_response_wait()))
        .with_clickhouse(ClickhouseServer::from_env(&url)?);
    let calculator = calculator.in_parts_of(config.parts_function.as_deref()).await?;
    let state = Insights::new(app, calculator);
    lambda::run(edge(pennon_insights::function_router(&state), state.app.clock), state.app.keys).await
}
