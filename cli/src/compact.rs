//! `pennon compact`: compacts waiting events into segments, and merges segments into few large ones, until nothing is left.
//!
//! Must stay true: it may be stopped at any time and run beside a server; it does what the background task does, without
//! waiting for the next interval.

use pennon_core::clock::Clock;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{CompactionReport, EventStore, EventStoreError, MergeMode};

/// The totals of a project.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactionTotals {
    /// The sum of all steps.
    pub all: CompactionReport,
    /// Removed objects and blocks that no reader uses.
    pub removed: usize,
}

/// Compacts `project` until there is nothing left to do. `step` is called after each step with the totals so far.
pub async fn compact_fully(
    events: &EventStore,
    project: ProjectId,
    step: &mut dyn FnMut(&CompactionReport),
) -> Result<CompactionTotals, EventStoreError> {
    let now = || Clock::Running.now(None).timestamp_micros();
    let mut done = CompactionTotals::default();
    loop {
        let blocks = events.compact_blocks(project, now()).await?;
        done.all.add(&blocks);
        step(&done.all);
        if blocks.has_more_work() {
            continue;
        }
        let merged = events.merge_segments(project, now(), MergeMode::Fewest).await?;
        done.all.add(&merged);
        step(&done.all);
        if !merged.has_more_work() {
            break;
        }
    }
    let swept = events.sweep(project, now()).await?;
    done.removed = swept.blocks + swept.segments;
    Ok(done)
}
