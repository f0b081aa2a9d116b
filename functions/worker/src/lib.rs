//! Background work: calculation jobs, compaction of captured events into segments, and removal of replaced blocks and
//! segments and of unreferenced calculation results.
//!
//! Must stay true: a run may be interrupted anywhere, repeated, or run twice concurrently without changing any query
//! result; a project that fails does not block the others; a run ends at about its time limit.

mod compaction_tasks;
mod jobs;
mod tables;
mod triggers;

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{CompactionTask, EventStore, EventStoreError};
use tokio::time::Instant;

pub use compaction_tasks::run_compaction_tasks;
use compaction_tasks::{TaskMode, run_under_lease};
pub use jobs::{run_abandoned_jobs, run_stream_jobs};
pub use tables::TableMaintenance;
pub use triggers::{StreamRecord, Trigger, parse_trigger};

/// Time limit of a compaction run. The function's timeout is ten minutes, which leaves enough for the step in progress.
pub const RUN_TIME: Duration = Duration::from_secs(7 * 60);
/// Time limit of a run of scheduled clean-up tasks; most runs have none.
pub const SCHEDULED_TASKS_TIME: Duration = Duration::from_secs(30);

/// How the compaction of all projects runs.
#[derive(Debug, Clone, Copy)]
pub struct CompactionRun {
    /// Time limit of the run.
    pub time: Duration,
    /// Whether a project is skipped while another process compacts it, by a lease in the table.
    pub leased: bool,
    /// One in this many runs removes objects that no manifest references: a few a day, because S3 charges for listing.
    pub orphan_sweep_one_in: u64,
}

impl CompactionRun {
    /// The hourly run of the worker.
    pub const HOURLY: CompactionRun = CompactionRun { time: RUN_TIME, leased: true, orphan_sweep_one_in: 8 };

    /// The run of a local server, which is the only process on its data, every minute.
    pub const EVERY_MINUTE: CompactionRun =
        CompactionRun { time: Duration::from_secs(50), leased: false, orphan_sweep_one_in: 500 };
}

/// Totals of a compaction run over all projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Projects that were processed.
    pub projects: usize,
    /// Projects with a failure; the log has the errors.
    pub failed: usize,
    /// Blocks that were compacted into segments.
    pub blocks: usize,
    /// Events in these blocks, without duplicates.
    pub events: u64,
    /// How long the oldest of these blocks had waited. An alarm of the template watches it.
    pub oldest_block_seconds: u64,
    /// Segments that were merged into larger ones.
    pub merged_segments: usize,
    /// Blocks and segments that were removed.
    pub removed: usize,
    /// Whether time ran out before all work was done; the next run continues.
    pub unfinished: bool,
}

/// Compacts and sweeps every project that has events, starting at `now`.
///
/// Fails only if the projects cannot be listed, or if tables and bucket belong to different installations. If time runs
/// out, the next run starts with other projects.
pub async fn compact_all(
    events: &EventStore,
    now: DateTime<Utc>,
    run: CompactionRun,
) -> Result<CompactionTotals, EventStoreError> {
    // Never compact or remove events of another installation, or of newer tables.
    events.claim_installation().await?;
    let clock = RunClock { start: Instant::now(), now, time: run.time };
    let mut projects = events.projects().await?;
    // Start with a random project, so that runs that always time out still reach all of them.
    let first = usize::try_from(pennon_core::ids::random_below(projects.len() as u64)).unwrap_or(0);
    projects.rotate_left(first);
    let mut totals = CompactionTotals::default();
    for project in projects {
        if clock.is_over() {
            totals.unfinished = true;
            break;
        }
        totals.projects += 1;
        if let Err(error) = compact_project(events, project, run, &clock, &mut totals).await {
            totals.failed += 1;
            tracing::error!(project, %error, "the events of a project could not be compacted");
        }
    }
    tracing::info!(run = ?totals, oldest_block_seconds = totals.oldest_block_seconds, "compacted");
    Ok(totals)
}

/// The clock and time limit of a run.
struct RunClock {
    start: Instant,
    /// The instant at the start.
    now: DateTime<Utc>,
    time: Duration,
}

impl RunClock {
    /// The current instant in microseconds since the epoch. Rows that are written late in a long run must not look older
    /// than they are, because readers rely on the grace period.
    fn now_micros(&self) -> i64 {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.now.timestamp_micros().saturating_add(elapsed)
    }

    /// The same clock, whose time is over `time` from now, if it is not earlier.
    fn within(&self, time: Duration) -> RunClock {
        RunClock { time: (self.start.elapsed() + time).min(self.time), ..*self }
    }

    /// The instant `later` from now.
    fn micros_in(&self, later: Duration) -> i64 {
        self.now_micros().saturating_add(i64::try_from(later.as_micros()).unwrap_or(i64::MAX))
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.time
    }

    fn time_left(&self) -> Duration {
        self.time.saturating_sub(self.start.elapsed())
    }
}

async fn compact_project(
    events: &EventStore,
    project: ProjectId,
    run: CompactionRun,
    clock: &RunClock,
    totals: &mut CompactionTotals,
) -> Result<(), EventStoreError> {
    // Concurrently: a merge of large segments takes longer than blocks may wait.
    let (blocks, merges) = (CompactionTask::Blocks(project), CompactionTask::Merges(project));
    let mode = if run.leased { TaskMode::Leased } else { TaskMode::Alone };
    let (blocks, merges) = tokio::join!(
        run_under_lease(events, blocks, mode, clock),
        run_under_lease(events, merges, mode, clock)
    );
    // Blocks and segments that earlier runs replaced are removed even if compaction is not done.
    let swept = events.sweep(project, clock.now_micros()).await?;
    totals.removed += swept.blocks + swept.segments;
    if pennon_core::ids::random_below(run.orphan_sweep_one_in) == 0 {
        totals.removed += events.sweep_orphans(project, clock.now_micros()).await?;
    }
    let (mut failed_merges, mut damaged_blocks) = (0, 0);
    for result in [blocks, merges] {
        let (done, is_complete) = result?;
        failed_merges += done.failed_merges;
        damaged_blocks += done.damaged_blocks;
        totals.blocks += done.blocks;
        totals.events += done.events;
        totals.oldest_block_seconds = totals.oldest_block_seconds.max(done.waited_micros / 1_000_000);
        totals.merged_segments += done.merged_segments;
        totals.unfinished |= !is_complete;
    }
    // The log has the errors; the rest of the project is done.
    totals.failed += usize::from(failed_merges + damaged_blocks > 0);
    Ok(())
}
