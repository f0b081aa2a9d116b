//! The function `worker`: works on the jobs that the records table's stream tells of; compacts and sweeps when the clock
//! calls.

use std::time::{Duration, SystemTime};

use lambda_runtime::{Error, LambdaEvent, service_fn};
use pennon_calculation::Calculator;
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, events_memory};
use pennon_core::lambda;
use pennon_core::store::{Store, keys};
use pennon_eventstore::{EventStore, Settings};
use pennon_worker::{
    DUE_TIME, RUN_TIME, Trigger, answer, compact_all, run_left_over, run_told, sweep_results, trigger,
};
use serde_json::Value;
use tokio::time::Instant;

/// What the function has left for telling what became of its work.
const SPARED: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda::start_logging();
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL says where the events lie, and is not set")?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::project(0)).await, Clock::Running);
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    let events = EventStore::open_with(app.store.clone(), &url, settings)?;
    let calculator = Calculator::new(&app, events.clone());
    let worker = Worker { app, events, calculator };
    lambda_runtime::run(service_fn(move |event| work(worker.clone(), event))).await
}

/// What the work needs.
#[derive(Debug, Clone)]
struct Worker {
    app: App,
    events: EventStore,
    calculator: Calculator,
}

async fn work(worker: Worker, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let end = Instant::now() + left.saturating_sub(SPARED);
    match trigger(&event.payload) {
        Trigger::Schedule => scheduled(&worker, end).await,
        Trigger::Stream(records) => Ok(answer(run_told(&worker.calculator, records, end).await)),
        Trigger::Unknown => {
            tracing::warn!("an event that this function does not know was ignored");
            Ok(Value::Null)
        }
    }
}

async fn scheduled(worker: &Worker, end: Instant) -> Result<Value, Error> {
    let Worker { app, events, calculator } = worker;
    // Whatever becomes of one, the others have their turn.
    let followed = pennon_insights::follow_due(&app.store.records, app.clock.now(None), DUE_TIME).await;
    let swept = sweep_results(calculator, app.clock.now(None)).await;
    let run = compact_all(events, app.clock.now(None), RUN_TIME).await;
    // Last, because one may wait as long as there is time for a worker that still lives; most runs find none.
    let jobs = run_left_over(calculator, &app.store.records, end).await;
    let run = run?;
    if run.failed > 0 {
        return Err(format!("{} of {} projects could not be compacted", run.failed, run.projects).into());
    }
    jobs?;
    swept?;
    followed.map_err(|error| error.detail().to_owned())?;
    Ok(Value::Null)
}
