//! The Lambda function `parts`: calculates parts of large queries for the functions that calculate queries.

use std::alloc::System;
use std::time::{Duration, SystemTime};

use lambda_runtime::{Error, LambdaEvent, service_fn};
use pennon_allocator::{CountingAllocator, thread_bytes};
use pennon_calculation::Calculator;
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, events_memory};
use pennon_core::heap;
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_eventstore::{EventStore, Settings};
use serde_json::Value;

/// Time reserved at the end of an invocation for its response.
const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// Counts what each thread holds, for the memory budget of queries.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda::start_logging();
    heap::set_allocation_counter(thread_bytes);
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL, the location of the events, is not set")?;
    let store = Store::connect_at_start(&config.store, &keys::query_state(0, "-")).await;
    let app = App::new(store, Clock::Running);
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    let events = EventStore::open_with(app.store.clone(), &url, settings)?;
    let calculator = Calculator::new(&app, events);
    lambda_runtime::run(service_fn(move |event| handle_event(calculator.clone(), event))).await
}

async fn handle_event(calculator: Calculator, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let time_left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    Ok(calculator.respond_to_part(event.payload, time_left.saturating_sub(RESPONSE_TIME)).await?)
}
