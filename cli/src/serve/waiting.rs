//! Calculations in the background, which a local server works on itself.
//!
//! Must stay true: jobs that an earlier server left are worked on like those that come; one that fails or panics holds up
//! no other and comes again.

use std::collections::HashMap;
use std::time::Duration;

use pennon_calculation::jobs::{JobKey, JobLimits, left_over};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Services;

/// How often it is looked for jobs: eight small reads of a local file.
const LOOKED_EVERY: Duration = Duration::from_millis(500);
/// Jobs that are worked on side by side; how many calculate at once the calculator decides.
const AT_ONCE: usize = 4;

/// Works on what waits, until `stopped`. What is then under way is left to the next server.
pub async fn work(services: Services, mut stopped: watch::Receiver<bool>) {
    // Nobody else works on this installation: whoever had claimed a job before is gone.
    let limits = JobLimits { lease: Duration::ZERO, ..JobLimits::default() };
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Id, JobKey> = HashMap::new();
    let mut ticks = tokio::time::interval(LOOKED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let ended = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            Some(ended) = tasks.join_next_with_id() => Some(ended),
            _ = ticks.tick() => None,
        };
        match ended {
            Some(Ok((id, _))) => drop(running.remove(&id)),
            Some(Err(error)) => {
                tracing::error!(%error, "a job panicked");
                running.remove(&error.id());
            }
            None => match left_over(&services.app.store.records).await {
                Ok(found) => {
                    let new = found.into_iter().filter(|job| !running.values().any(|known| known == job));
                    let new: Vec<JobKey> = new.take(AT_ONCE.saturating_sub(running.len())).collect();
                    for job in new {
                        let calculator = services.calculator.clone();
                        let task = tasks.spawn(async move { calculator.run_job(job, limits).await });
                        running.insert(task.id(), job);
                    }
                }
                Err(error) => tracing::error!(%error, "calculations that wait could not be looked for"),
            },
        }
    }
}
