//! The function `worker`: compacts when the clock calls, and takes note of the records table's stream.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use pennon_core::clock::Clock;
use pennon_core::config::Config;
use pennon_core::lambda;
use pennon_core::store::Store;
use pennon_eventstore::EventStore;
use pennon_worker::{RUN_TIME, Trigger, compact_all, trigger};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL says where the events lie, and is not set")?;
    let events = EventStore::open(Store::from_env(&config.store).await, &url)?;
    lambda_runtime::run(service_fn(move |event| answer(events.clone(), event))).await
}

async fn answer(events: EventStore, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let trigger = trigger(&event.payload);
    match trigger {
        Trigger::Schedule => {
            let run = compact_all(&events, Clock::Running.now(None), RUN_TIME).await?;
            if run.failed > 0 {
                return Err(
                    format!("{} of {} projects could not be compacted", run.failed, run.projects).into()
                );
            }
        }
        Trigger::Stream { records } => {
            tracing::debug!(records, "no background work follows from records yet")
        }
        Trigger::Unknown => tracing::warn!("an event that this function does not know was ignored"),
    }
    Ok(trigger.answer())
}
