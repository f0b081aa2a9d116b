//! Work beside requests: calculations in the background; captured events become segments; what segments have replaced is
//! removed, and so are results that nothing names.
//!
//! Must stay true: a run may stop anywhere and be started again, or run twice at once, and no answer changes by it; a
//! project that fails does not keep the others from their turn; a run ends in about the time that it is given.

mod events;
mod jobs;

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_calculation::Calculator;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{Compacted, Effort, EventStore, EventStoreError};
use tokio::time::Instant;

pub use events::{Record, Trigger, answer, trigger};
pub use jobs::{run_left_over, run_told};

/// Time for a run where a function may take ten minutes: enough is left for the step that is going on.
pub const RUN_TIME: Duration = Duration::from_secs(7 * 60);
/// Time of a run for what is due after deletions; most runs find nothing.
pub const DUE_TIME: Duration = Duration::from_secs(30);

/// One in so many runs looks for objects of results that nothing names: about once an hour.
const RESULTS_ONE_IN: u64 = 12;
/// One in so many runs looks for objects that no manifest names: a few a day, because listing has its price.
const ORPHANS_ONE_IN: u64 = 500;

/// What a run did, over all projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// Projects that were looked at.
    pub projects: usize,
    /// Projects in which something failed; the log says what.
    pub failed: usize,
    /// Blocks that segments hold now.
    pub blocks: usize,
    /// Events of them that were new.
    pub events: u64,
    /// Segments that were merged into larger ones.
    pub merged_segments: usize,
    /// Blocks and segments that were removed.
    pub removed: usize,
    /// Whether time ran out before everything was done; the next run goes on.
    pub unfinished: bool,
}

/// Compacts and sweeps every project that has events, from `now` on, for about `time`.
///
/// Fails only when the projects cannot be listed, or tables and objects do not belong together. Where time runs out, the next run begins with other projects.
pub async fn compact_all(
    events: &EventStore,
    now: DateTime<Utc>,
    time: Duration,
) -> Result<Run, EventStoreError> {
    // Nothing is compacted or removed beside events of another installation, or of newer tables.
    events.claim_installation().await?;
    let span = Span { begun: Instant::now(), now, time };
    let mut projects = events.projects().await?;
    // Another first project each time, so that a run that is always cut short reaches all of them in the end.
    let first = usize::try_from(pennon_core::ids::random_below(projects.len() as u64)).unwrap_or(0);
    projects.rotate_left(first);
    let mut run = Run::default();
    for project in projects {
        if span.is_over() {
            run.unfinished = true;
            break;
        }
        run.projects += 1;
        if let Err(error) = compact_one(events, project, &span, &mut run).await {
            run.failed += 1;
            tracing::error!(project, %error, "the events of a project could not be compacted");
        }
    }
    tracing::info!(?run, "compacted");
    Ok(run)
}

/// Removes, in some runs, the objects of results that nothing names. Returns how many.
pub async fn sweep_results(calculator: &Calculator, now: DateTime<Utc>) -> Result<usize, EventStoreError> {
    match pennon_core::ids::random_below(RESULTS_ONE_IN) {
        0 => calculator.sweep_results(now).await,
        _ => Ok(0),
    }
}

/// The time of a run.
struct Span {
    begun: Instant,
    /// The instant that it began at.
    now: DateTime<Utc>,
    time: Duration,
}

impl Span {
    /// The instant that it is by now: what is written late in a long run must not look older than it is, because readers
    /// rely on the grace period.
    fn micros(&self) -> i64 {
        let gone = i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.now.timestamp_micros().saturating_add(gone)
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.time
    }
}

async fn compact_one(
    events: &EventStore,
    project: ProjectId,
    span: &Span,
    run: &mut Run,
) -> Result<(), EventStoreError> {
    // Side by side: a merge of large segments takes longer than blocks may wait.
    let blocks = until_done(span, || events.compact_blocks(project, span.micros()));
    let merges = until_done(span, || events.merge_segments(project, span.micros(), Effort::Due));
    let (blocks, merges) = tokio::join!(blocks, merges);
    // What was replaced before goes, whether or not there was more to do.
    let swept = events.sweep(project, span.micros()).await?;
    run.removed += swept.blocks + swept.segments;
    if pennon_core::ids::random_below(ORPHANS_ONE_IN) == 0 {
        run.removed += events.sweep_orphans(project, span.micros()).await?;
    }
    let (mut failed_merges, mut damaged_blocks) = (0, 0);
    for done in [blocks, merges] {
        let (done, is_all) = done?;
        failed_merges += done.failed_merges;
        damaged_blocks += done.damaged_blocks;
        run.blocks += done.blocks;
        run.events += done.events;
        run.merged_segments += done.merged_segments;
        run.unfinished |= !is_all;
    }
    // The log says which; all else of the project has been done.
    run.failed += usize::from(failed_merges + damaged_blocks > 0);
    Ok(())
}

/// Does `step` until it finds nothing to do, or time is over. Returns what was done, and whether it was all.
async fn until_done<F>(span: &Span, step: impl Fn() -> F) -> Result<(Compacted, bool), EventStoreError>
where
    F: Future<Output = Result<Compacted, EventStoreError>>,
{
    let mut all = Compacted::default();
    loop {
        let done = step().await?;
        all.add(&done);
        if !done.goes_on() {
            return Ok((all, true));
        }
        if span.is_over() {
            return Ok((all, false));
        }
    }
}
