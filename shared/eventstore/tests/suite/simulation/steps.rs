//! The steps of a history.

use std::fmt;

use pennon_eventstore::{ErasureTarget, Event, MergeMode};
use serde_json::Value;

use super::model::Effect;
use super::switch::Fate;

pub const MINUTE: i64 = 60_000_000;
/// 2023-11-11T00:00:00Z; the events are of this day and the two after it.
pub const FIRST_DAY: i64 = 1_699_660_800_000_000;

/// An operation of one process.
#[derive(Clone)]
pub enum Operation {
    Capture(Vec<Event>),
    Import(Vec<Event>),
    CompactBlocks,
    CompactDueBlocks,
    Compact,
    FoldMerges,
    MergeSegments(MergeMode),
    Sweep,
    SweepOrphans,
    Erase(ErasureTarget),
    Check,
}

impl Operation {
    /// What it changes, in order, if it begins at `now`.
    pub fn effects(&self, now: i64) -> Vec<Effect> {
        match self {
            Operation::Capture(events) => {
                vec![Effect::Merges(events.clone()), Effect::Captured(events.clone(), now)]
            }
            Operation::Import(events) => vec![Effect::Imported(events.clone(), now)],
            Operation::Erase(target) => vec![Effect::Erased(target.clone())],
            _ => Vec::new(),
        }
    }

    /// The events that it adds.
    pub fn events(&self) -> &[Event] {
        match self {
            Operation::Capture(events) | Operation::Import(events) => events,
            _ => &[],
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Capture(_) => out.write_str("capture")?,
            Operation::Import(_) => out.write_str("import")?,
            Operation::CompactBlocks => out.write_str("compact blocks")?,
            Operation::CompactDueBlocks => out.write_str("compact due blocks")?,
            Operation::Compact => out.write_str("compact")?,
            Operation::FoldMerges => out.write_str("fold merges if due")?,
            Operation::MergeSegments(mode) => write!(out, "merge segments, {mode:?}")?,
            Operation::Sweep => out.write_str("sweep")?,
            Operation::SweepOrphans => out.write_str("sweep orphans")?,
            Operation::Erase(target) => write!(out, "erase {target:?}")?,
            Operation::Check => out.write_str("check")?,
        }
        for event in self.events() {
            let (uuid, time) = (event.uuid.as_u128(), (event.timestamp - FIRST_DAY) / MINUTE);
            let properties = Value::Object(event.properties.clone());
            write!(
                out,
                "\n      {uuid} {} of {} at minute {time} {properties}",
                event.event, event.distinct_id
            )?;
        }
        Ok(())
    }
}

/// One step of a history.
#[derive(Debug, Clone)]
pub enum Step {
    Run {
        process: usize,
        project: u64,
        operation: Operation,
        fate: Fate,
    },
    /// While an operation waits, the other process does the rest.
    RunBeside {
        process: usize,
        project: u64,
        operation: Operation,
        at: u64,
        others: Vec<(u64, Operation)>,
    },
    /// A client sends the batch again that was not acknowledged last.
    SendAgain {
        process: usize,
    },
    AdvanceClock(i64),
    Restart(usize),
}
