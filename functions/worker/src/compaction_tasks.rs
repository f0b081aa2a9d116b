//! Compaction of single projects: blocks and merges apart, each under its lease.
//!
//! Must stay true: at most one process runs a task, until its lease expires; a task that time ended, or that finds merges due,
//! wakes the worker again; a task that fails does not block the others, and the scheduled run repeats and reports it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use pennon_eventstore::{
    CompactionLease, CompactionReport, CompactionTask, EventStore, EventStoreError, MergeMode,
};
use tokio::time::Instant;

use crate::RunClock;

/// Time after which a task that a stream record woke starts no further step: later records of its shard wait for it.
const TASK_TIME: Duration = Duration::from_secs(120);
/// Time to live of the lease of each task. A merge is one step of minutes; blocks must not wait long for a process that crashed.
const BLOCKS_LEASE: Duration = Duration::from_secs(90);
const MERGES_LEASE: Duration = Duration::from_secs(600);
/// A lease is renewed before a step, if this time has passed.
const RENEWED_AFTER: Duration = Duration::from_secs(30);
/// Compactions of blocks that run concurrently, mostly waiting. Merges run one by one after them: each takes a good part of the
/// memory.
const BLOCKS_AT_ONCE: usize = 2;

/// Runs the tasks that stream records woke, starting at `now`, for at most `time`. Failures are logged.
pub async fn run_compaction_tasks(
    events: &EventStore,
    mut tasks: Vec<CompactionTask>,
    now: DateTime<Utc>,
    time: Duration,
) -> Result<(), EventStoreError> {
    tasks.sort_unstable();
    tasks.dedup();
    if tasks.is_empty() {
        return Ok(());
    }
    // Never compact events of another installation, or of newer tables.
    events.claim_installation().await?;
    let batch = RunClock { start: Instant::now(), now, time };
    let merges = tasks.partition_point(|task| matches!(task, CompactionTask::Blocks(_)));
    let merges = tasks.split_off(merges);
    for (tasks, at_once) in [(tasks, BLOCKS_AT_ONCE), (merges, 1)] {
        let runs = tasks.into_iter().map(|task| run_task(events, task, &batch)).collect::<Vec<_>>();
        futures::stream::iter(runs).buffer_unordered(at_once).collect::<()>().await;
    }
    Ok(())
}

/// Runs one task of a batch, or wakes the worker for it if the time of the batch is over.
async fn run_task(events: &EventStore, task: CompactionTask, batch: &RunClock) {
    if batch.is_over() {
        if let Err(error) = events.wake_compaction(task, batch.now_micros()).await {
            tracing::error!(?task, %error, "compaction was not woken; the schedule runs it");
        }
        return;
    }
    let clock = &batch.within(TASK_TIME);
    match run_and_wake(events, task, clock).await {
        // Another process runs it, or it is not due.
        Ok(report) if report == CompactionReport::default() => {}
        Ok(report) => tracing::info!(
            ?task,
            run = ?report,
            oldest_block_seconds = report.waited_micros / 1_000_000,
            "compacted"
        ),
        Err(error) => tracing::error!(?task, %error, "the events of a project could not be compacted"),
    }
}

/// Runs a task, removes what earlier runs replaced, and wakes the worker for what is left.
async fn run_and_wake(
    events: &EventStore,
    task: CompactionTask,
    clock: &RunClock,
) -> Result<CompactionReport, EventStoreError> {
    let (report, is_complete) = run_under_lease(events, task, TaskMode::Woken, clock).await?;
    if report == CompactionReport::default() && is_complete {
        return Ok(report);
    }
    if let CompactionTask::Blocks(project) = task {
        events.sweep(project, clock.now_micros()).await?;
        if events.is_merge_due(project, clock.now_micros()).await? {
            events.wake_compaction(CompactionTask::Merges(project), clock.now_micros()).await?;
        }
    }
    if !is_complete {
        events.wake_compaction(task, clock.now_micros()).await?;
    }
    Ok(report)
}

/// How a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskMode {
    /// Under its lease, and blocks only if they are due.
    Woken,
    /// Under its lease.
    Leased,
    /// By the only process on its data.
    Alone,
}

/// Repeats the steps of a task until there is nothing to do or time is over. Returns the sum of
/// the results, and whether all work is done. Does nothing while another process holds the lease.
pub(crate) async fn run_under_lease(
    events: &EventStore,
    task: CompactionTask,
    mode: TaskMode,
    clock: &RunClock,
) -> Result<(CompactionReport, bool), EventStoreError> {
    let mut lease = None;
    if mode != TaskMode::Alone {
        lease = Lease::take(events, task, clock).await?;
        if lease.is_none() {
            return Ok((CompactionReport::default(), true));
        }
    }
    let run = repeat_until_done(events, task, mode, lease.as_mut(), clock).await;
    if let Some(lease) = lease {
        events.release_compaction(lease.held).await?;
    }
    run
}

async fn repeat_until_done(
    events: &EventStore,
    task: CompactionTask,
    mode: TaskMode,
    mut lease: Option<&mut Lease>,
    clock: &RunClock,
) -> Result<(CompactionReport, bool), EventStoreError> {
    let mut sum = CompactionReport::default();
    loop {
        if let Some(lease) = &mut lease
            && !lease.renew(events, clock).await?
        {
            // Another process runs the task.
            return Ok((sum, true));
        }
        let now = clock.now_micros();
        let done = match task {
            CompactionTask::Blocks(project) if mode == TaskMode::Woken => {
                events.compact_due_blocks(project, now).await?
            }
            CompactionTask::Blocks(project) => events.compact_blocks(project, now).await?,
            CompactionTask::Merges(project) => events.merge_segments(project, now, MergeMode::Due).await?,
        };
        sum.add(&done);
        if !done.has_more_work() {
            return Ok((sum, true));
        }
        if clock.is_over() {
            return Ok((sum, false));
        }
    }
}

/// A lease that is renewed while its task runs.
struct Lease {
    held: CompactionLease,
    time_to_live: Duration,
    renewed: Instant,
}

impl Lease {
    async fn take(
        events: &EventStore,
        task: CompactionTask,
        clock: &RunClock,
    ) -> Result<Option<Lease>, EventStoreError> {
        let time_to_live = match task {
            CompactionTask::Blocks(_) => BLOCKS_LEASE,
            CompactionTask::Merges(_) => MERGES_LEASE,
        };
        let renewed = Instant::now();
        let until = clock.micros_in(time_to_live);
        let held = events.lease_compaction(task, clock.now_micros(), until).await?;
        Ok(held.map(|held| Lease { held, time_to_live, renewed }))
    }

    /// Renews it if it is due. Returns false if it is lost.
    async fn renew(&mut self, events: &EventStore, clock: &RunClock) -> Result<bool, EventStoreError> {
        if self.renewed.elapsed() < RENEWED_AFTER {
            return Ok(true);
        }
        self.renewed = Instant::now();
        events.renew_compaction(&self.held, clock.micros_in(self.time_to_live)).await
    }
}
