//! The function `worker`: compacts and sweeps when the clock calls, and takes note of the records table's stream.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use pennon_core::clock::Clock;
use pennon_core::config::Config;
use pennon_core::lambda;
use pennon_core::store::Store;
use pennon_eventstore::EventStore;
use pennon_worker::{PURGE_TIME, RUN_TIME, Trigger, compact_all, sweep_purged, trigger};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL says where the events lie, and is not set")?;
    let store = Store::from_env(&config.store).await;
    let events = EventStore::open(store.clone(), &url)?;
    lambda_runtime::run(service_fn(move |event| answer(store.clone(), events.clone(), event))).await
}

async fn answer(store: Store, events: EventStore, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let trigger = trigger(&event.payload);
    match trigger {
        Trigger::Schedule => {
            // Whatever becomes of it, events have their turn.
            let purged = sweep_purged(&store.records, PURGE_TIME).await;
            let run = compact_all(&events, Clock::Running.now(None), RUN_TIME).await?;
            if run.failed > 0 {
                return Err(
                    format!("{} of {} projects could not be compacted", run.failed, run.projects).into()
                );
            }
            purged?;
        }
        Trigger::Stream { records } => {
            tracing::debug!(records, "no background work follows from records yet")
        }
        Trigger::Unknown => tracing::warn!("an event that this function does not know was ignored"),
    }
    Ok(trigger.answer())
}
