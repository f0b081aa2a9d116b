//! `pennon compact`: waiting events become segments, and segments few large ones, now and to the end.
//!
//! Must stay true: it may be stopped at any time and run beside a server; what it does is what the background task does,
//! only without waiting for the next turn.

use pennon_core::clock::Clock;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{Compacted, Effort, EventStore, EventStoreError};

/// What was done to a project.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finished {
    /// By all steps together.
    pub all: Compacted,
    /// Objects and blocks that nobody reads any more.
    pub removed: usize,
}

/// Compacts `project` until there is nothing left to do. `step` hears of each step that did something, with what was done
/// so far.
pub async fn finish(
    events: &EventStore,
    project: ProjectId,
    step: &mut dyn FnMut(&Compacted),
) -> Result<Finished, EventStoreError> {
    let now = || Clock::Running.now(None).timestamp_micros();
    let mut done = Finished::default();
    loop {
        let blocks = events.compact_blocks(project, now()).await?;
        done.all.add(&blocks);
        step(&done.all);
        if blocks.goes_on() {
            continue;
        }
        let merged = events.merge_segments(project, now(), Effort::Fewest).await?;
        done.all.add(&merged);
        step(&done.all);
        if !merged.goes_on() {
            break;
        }
    }
    let swept = events.sweep(project, now()).await?;
    done.removed = swept.blocks + swept.segments;
    Ok(done)
}
