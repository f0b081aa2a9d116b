//! Background work: calculation jobs, compaction of captured events into segments, and removal of replaced blocks and
//! segments and of unreferenced calculation results.
//!
//! Must stay true: a run may be interrupted anywhere, repeated, or run twice concurrently without changing any query
//! result; a project that fails does not block the others; a run ends at about its time limit.

mod jobs;
mod triggers;

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_calculation::Calculator;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{CompactionReport, EventStore, EventStoreError, MergeMode};
use tokio::time::Instant;

pub use jobs::{run_abandoned_jobs, run_stream_jobs};
pub use triggers::{StreamRecord, Trigger, batch_item_failures, parse_trigger};

/// Time limit of a compaction run. The function's timeout is ten minutes, which leaves enough for the step in progress.
pub const RUN_TIME: Duration = Duration::from_secs(7 * 60);
/// Time limit of a run of scheduled clean-up tasks; most runs have none.
pub const SCHEDULED_TASKS_TIME: Duration = Duration::from_secs(30);

/// One in this many runs removes unreferenced result objects: about once an hour.
const RESULT_SWEEP_ONE_IN: u64 = 12;
/// One in this many runs removes objects that no manifest references: a few a day, because S3 charges for listing.
const ORPHAN_SWEEP_ONE_IN: u64 = 500;

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

/// Compacts and sweeps every project that has events, starting at `now`, for about `time`.
///
/// Fails only if the projects cannot be listed, or if tables and bucket belong to different installations. If time runs
/// out, the next run starts with other projects.
pub async fn compact_all(
    events: &EventStore,
    now: DateTime<Utc>,
    time: Duration,
) -> Result<CompactionTotals, EventStoreError> {
    // Never compact or remove events of another installation, or of newer tables.
    events.claim_installation().await?;
    let clock = RunClock { start: Instant::now(), now, time };
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
        if let Err(error) = compact_project(events, project, &clock, &mut totals).await {
            totals.failed += 1;
            tracing::error!(project, %error, "the events of a project could not be compacted");
        }
    }
    tracing::info!(run = ?totals, oldest_block_seconds = totals.oldest_block_seconds, "compacted");
    Ok(totals)
}

/// In one of [`RESULT_SWEEP_ONE_IN`] runs, removes unreferenced result objects. Returns how many.
pub async fn sweep_results(calculator: &Calculator, now: DateTime<Utc>) -> Result<usize, EventStoreError> {
    match pennon_core::ids::random_below(RESULT_SWEEP_ONE_IN) {
        0 => calculator.sweep_results(now).await,
        _ => Ok(0),
    }
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

    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.time
    }
}

async fn compact_project(
    events: &EventStore,
    project: ProjectId,
    clock: &RunClock,
    totals: &mut CompactionTotals,
) -> Result<(), EventStoreError> {
    // Concurrently: a merge of large segments takes longer than blocks may wait.
    let blocks = repeat_until_done(clock, || events.compact_blocks(project, clock.now_micros()));
    let merges =
        repeat_until_done(clock, || events.merge_segments(project, clock.now_micros(), MergeMode::Due));
    let (blocks, merges) = tokio::join!(blocks, merges);
    // Blocks and segments that earlier runs replaced are removed even if compaction is not done.
    let swept = events.sweep(project, clock.now_micros()).await?;
    totals.removed += swept.blocks + swept.segments;
    if pennon_core::ids::random_below(ORPHAN_SWEEP_ONE_IN) == 0 {
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

/// Repeats `step` until it has nothing to do or time is over. Returns the sum of the results, and whether all work is done.
async fn repeat_until_done<F>(
    clock: &RunClock,
    step: impl Fn() -> F,
) -> Result<(CompactionReport, bool), EventStoreError>
where
    F: Future<Output = Result<CompactionReport, EventStoreError>>,
{
    let mut sum = CompactionReport::default();
    loop {
        let done = step().await?;
        sum.add(&done);
        if !done.has_more_work() {
            return Ok((sum, true));
        }
        if clock.is_over() {
            return Ok((sum, false));
        }
    }
}
