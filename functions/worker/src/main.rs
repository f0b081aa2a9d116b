//! The Lambda function `worker`: runs calculation jobs and compaction from the records table's stream, and everything that
//! nothing woke on a schedule.

use std::alloc::System;
use std::time::{Duration, SystemTime};

use lambda_runtime::{Error, LambdaEvent, service_fn};
use pennon_allocator::{CountingAllocator, thread_bytes};
use pennon_calculation::Calculator;
use pennon_calculation::clickhouse::ClickhouseServer;
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::{Config, events_memory, publishes_tables};
use pennon_core::heap;
use pennon_core::lambda::{self, batch_item_failures};
use pennon_core::store::{Store, keys};
use pennon_eventstore::{EventStore, Settings};
use pennon_worker::{
    CompactionRun, RUN_TIME, SCHEDULED_TASKS_TIME, StreamRecord, TableMaintenance, Trigger, compact_all,
    parse_trigger, run_abandoned_jobs, run_compaction_tasks, run_stream_jobs,
};
use serde_json::Value;
use tokio::time::Instant;

/// Time reserved at the end of an invocation for reporting its results.
const REPORT_TIME: Duration = Duration::from_secs(15);

/// Time of the publication of tables after tasks of the stream, whose next records wait.
const TABLES_TIME: Duration = Duration::from_secs(60);
/// Time that the publication of tables leaves to the rest of a scheduled run.
const JOBS_TIME: Duration = Duration::from_secs(60);

/// Counts what each thread holds, for the memory budget of queries.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

#[tokio::main]
async fn main() -> Result<(), Error> {
    lambda::start_logging();
    heap::set_allocation_counter(thread_bytes);
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL, the location of the events, is not set")?;
    let app = App::new(Store::connect_at_start(&config.store, &keys::project(0)).await, Clock::Running);
    let settings = events_memory().map_or_else(Settings::default, Settings::for_memory);
    let events = EventStore::open_with(app.store.clone(), &url, settings.for_dynamodb())?;
    let calculator = Calculator::new(&app, events.clone()).with_clickhouse(ClickhouseServer::from_env(&url)?);
    let calculator = calculator.in_parts_of(config.parts_function.as_deref()).await?;
    let tables = TableMaintenance::new(events.clone(), publishes_tables());
    let worker = Worker { app, events, calculator, tables };
    lambda_runtime::run(service_fn(move |event| handle_event(worker.clone(), event))).await
}

/// The state of the function.
#[derive(Debug, Clone)]
struct Worker {
    app: App,
    events: EventStore,
    calculator: Calculator,
    tables: TableMaintenance,
}

async fn handle_event(worker: Worker, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let time_left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
    let time_left = time_left.saturating_sub(REPORT_TIME);
    let end = Instant::now() + time_left;
    match parse_trigger(&event.payload) {
        Trigger::Schedule => run_schedule(&worker, end).await,
        Trigger::Stream(records) => {
            // A batch has either jobs or compaction tasks: each event source mapping filters for one of them.
            let tasks = records.iter().filter_map(StreamRecord::compaction_task).collect::<Vec<_>>();
            let now = worker.app.clock.now(None);
            run_compaction_tasks(&worker.events, tasks.clone(), now, time_left.min(RUN_TIME)).await?;
            let time = TABLES_TIME.min(end.saturating_duration_since(Instant::now()));
            worker.tables.publish_after_tasks(&tasks, worker.app.clock.now(None), time).await;
            let failed = run_stream_jobs(&worker.calculator, records, end).await;
            Ok(batch_item_failures(failed))
        }
        Trigger::Unknown => {
            tracing::warn!("ignored an event that is neither a schedule nor a DynamoDB stream batch");
            Ok(Value::Null)
        }
    }
}

async fn run_schedule(worker: &Worker, end: Instant) -> Result<Value, Error> {
    let Worker { app, events, calculator, tables } = worker;
    // A failure of one step must not keep the others from running.
    let tasks =
        pennon_insights::run_scheduled_tasks(&app.store.records, app.clock.now(None), SCHEDULED_TASKS_TIME)
            .await;
    let swept = calculator.sweep_results(app.clock.now(None)).await;
    let run = compact_all(events, app.clock.now(None), CompactionRun::HOURLY).await;
    let mut maintained = Ok(());
    if run.is_ok() {
        let time = end.saturating_duration_since(Instant::now()).saturating_sub(JOBS_TIME);
        let sweep_one_in = CompactionRun::HOURLY.orphan_sweep_one_in;
        maintained = tables.maintain_all(app.clock.now(None), time, sweep_one_in).await;
    }
    // Last, because a job may wait until `end` for a worker that is still running; most runs have none.
    let jobs = run_abandoned_jobs(calculator, &app.store.records, end).await;
    let run = run?;
    if run.failed > 0 {
        return Err(format!("{} of {} projects could not be compacted", run.failed, run.projects).into());
    }
    jobs?;
    swept?;
    maintained?;
    tasks.map_err(|error| error.detail().to_owned())?;
    Ok(Value::Null)
}
