//! Background loops of the server: compaction of captured events, scheduled tasks, and deletion of expired data.

use std::time::Duration;

use pennon_core::clock::Clock;
use pennon_core::config::publishes_tables;
use pennon_worker::{CompactionRun, SCHEDULED_TASKS_TIME, TableMaintenance};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Services;
use crate::embedded::Embedded;

/// How often captured events are compacted.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(60);
/// Time of the publication of tables, during which nothing is compacted.
const TABLES_TIME: Duration = Duration::from_secs(300);
/// How often expired items and unreferenced result objects are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(3600);

/// Compacts captured events every minute and whenever enough of them wait, and runs scheduled tasks every minute, until
/// `stopped`.
pub async fn run_compaction(services: Services, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(COMPACTION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let tables = TableMaintenance::new(services.events.clone(), publishes_tables());
    // Skip the first tick, which is immediate, to keep the start fast.
    ticks.tick().await;
    loop {
        let is_tick = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => true,
            () = services.events.wait_until_compaction_due() => false,
        };
        let now = services.app.clock.now(None);
        let run = async {
            if is_tick
                && let Err(error) = pennon_insights::run_scheduled_tasks(
                    &services.app.store.records,
                    now,
                    SCHEDULED_TASKS_TIME,
                )
                .await
            {
                tracing::error!(cause = error.detail(), "scheduled tasks failed");
            }
            // Otherwise the events would be moved into a directory that is not the installation's.
            if let Some(problem) = services.health.find_lost_files().await {
                tracing::error!(problem, "events are not compacted");
                return;
            }
            if let Err(error) =
                pennon_worker::compact_all(&services.events, now, CompactionRun::EVERY_MINUTE).await
            {
                tracing::error!(%error, "events could not be compacted");
                return;
            }
            let sweep_one_in = CompactionRun::EVERY_MINUTE.orphan_sweep_one_in;
            let now = services.app.clock.now(None);
            if let Err(error) = tables.maintain_all(now, TABLES_TIME, sweep_one_in).await {
                tracing::error!(%error, "tables could not be published");
            }
        };
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = run => {}
        }
    }
}

/// Deletes expired items and unreferenced result objects every hour, until `stopped`.
pub async fn run_cleanup(embedded: Embedded, services: Services, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(CLEANUP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let run = async {
            ticks.tick().await;
            // The machine's clock, which DynamoDB and buckets use too, even if the service has a frozen clock.
            let now = Clock::Running.now(None);
            if let Err(error) = services.calculator.sweep_results(now).await {
                tracing::error!(%error, "result objects could not be removed");
            }
            if let Err(error) = embedded.clean_up().await {
                tracing::error!(%error, "expired items could not be removed");
            }
        };
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = run => {}
        }
    }
}
