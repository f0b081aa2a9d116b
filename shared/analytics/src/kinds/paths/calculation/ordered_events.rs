//! The events of a block of actors in the order of actor, time and arrival.
//!
//! Must stay true: all counted events of the actors of the block are there; nothing is allocated per event or per block. A block
//! fits into a cache, so that sorting it is cheap.

use std::ops::Range;
use std::rc::Rc;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::items::{NO_ITEM, RowItems};
use crate::actor_blocks::{ActorBlock, RunRows};
use crate::mask::Mask;
use crate::scan::{EventRun, Micros};

/// About as many rows are in a block of actors.
pub(super) const BLOCK_ROWS: usize = 1 << 14;

/// A run with the items of its rows, and the rows that count.
pub(super) struct ItemRun<'p> {
    pub(super) run: &'p EventRun,
    pub(super) items: RowItems,
    pub(super) mask: Mask,
    pub(super) times: RowTimes,
}

/// The instants within which the rows of a run count, both inclusive.
pub(super) enum RowTimes {
    /// The same for all rows.
    Same(TimeBounds),
    /// By actor.
    OfActors(Rc<Vec<TimeBounds>>),
    /// By row.
    OfRows(Vec<TimeBounds>),
}

/// The first and the last instant; none lies between if the first one is later.
pub(super) type TimeBounds = (Micros, Micros);

/// Bounds that no instant is within.
pub(super) const NEVER: TimeBounds = (Micros::MAX, Micros::MIN);

impl RowTimes {
    /// Whether a row of an actor counts at its time.
    #[inline]
    pub(super) fn contains(&self, row: usize, actor: u32, time: Micros) -> bool {
        let (from, to) = match self {
            Self::Same(bounds) => *bounds,
            Self::OfActors(bounds) => bounds.get(actor as usize).copied().unwrap_or(NEVER),
            Self::OfRows(bounds) => bounds.get(row).copied().unwrap_or(NEVER),
        };
        from <= time && time <= to
    }
}

/// One event.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRow {
    pub(super) time: Micros,
    pub(super) actor: u32,
    pub(super) item: u32,
    run: u32,
    row: u32,
}

/// The events of one block after the other. The buffer of a block is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct OrderedEvents {
    events: Vec<EventRow>,
}

impl OrderedEvents {
    /// The counted events of the actors of a block of these runs.
    pub(super) fn of_block(
        &mut self,
        runs: &[ItemRun<'_>],
        block: ActorBlock<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<&[EventRow]> {
        self.events.clear();
        for RunRows { run: index, rows } in block.rows {
            let Some(run) = runs.get(*index) else { continue };
            work.consume(2 * rows.len())?;
            append_rows(run, *index, rows.clone(), &mut self.events);
        }
        if block.rows.len() > 1 {
            let arrival = |event: &EventRow| {
                runs.get(event.run as usize).map_or(0, |run| run.run.order.at(event.row as usize))
            };
            // The rows of each run are sorted already; the stable sort merges them.
            self.events.sort_by(|left, right| {
                let place = |event: &EventRow| (event.actor, event.time);
                place(left).cmp(&place(right)).then_with(|| arrival(left).cmp(&arrival(right)))
            });
        }
        Ok(&self.events)
    }
}

/// Appends those of some rows of a run that count.
fn append_rows(run: &ItemRun<'_>, index: usize, range: Range<usize>, rows: &mut Vec<EventRow>) {
    let ItemRun { run, items, mask, times } = run;
    // There are fewer runs than rows, and row counts fit into 32 bits.
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let (actors, event_times) = (&run.actors[range.clone()], &run.times[range.clone()]);
    for ((row, actor), time) in range.zip(actors).zip(event_times) {
        if times.contains(row, *actor, *time) && mask.has(row) {
            let item = items.of(row);
            if item != NO_ITEM {
                let row = u32::try_from(row).unwrap_or(u32::MAX);
                rows.push(EventRow { time: *time, actor: *actor, item, run: index, row });
            }
        }
    }
}
