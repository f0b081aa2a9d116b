//! The events of a partition in the order of actor, time and arrival, block by block.
//!
//! Must stay true: a block has all counted events of its actors; memory is bounded by the size of a block, or by the events
//! of one actor; each run is read once from front to back. A block fits into a cache, so that sorting it is cheap.

use std::ops::Range;
use std::rc::Rc;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::items::{NO_ITEM, RowItems};
use crate::mask::Mask;
use crate::scan::{EventRun, Micros};

/// About as many rows are in a block, unless one actor has more.
const BLOCK_ROWS: usize = 1 << 14;

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

/// Reads the events of all runs in blocks of actors.
pub(super) struct EventBlocks<'a, 'p> {
    runs: &'a [ItemRun<'p>],
    /// By run: the next row.
    cursors: Vec<usize>,
    /// Actors of the partition, and the first one of the next block.
    actors: u32,
    next_actor: u32,
    actors_per_block: u32,
    rows: Vec<EventRow>,
}

impl<'a, 'p> EventBlocks<'a, 'p> {
    pub(super) fn new(runs: &'a [ItemRun<'p>], actors: usize) -> Self {
        let rows: usize = runs.iter().map(|run| run.run.times.len()).sum();
        let per_actor = rows / actors.max(1) + 1;
        Self {
            runs,
            cursors: vec![0; runs.len()],
            actors: u32::try_from(actors).unwrap_or(u32::MAX),
            next_actor: 0,
            actors_per_block: u32::try_from((BLOCK_ROWS / per_actor).max(1)).unwrap_or(u32::MAX),
            rows: Vec::new(),
        }
    }

    /// The events of the next actors; `None` at the end.
    pub(super) fn next(&mut self, work: &WorkBudget<'_>) -> CalcResult<Option<&[EventRow]>> {
        if self.next_actor >= self.actors {
            return Ok(None);
        }
        let end = self.next_actor.saturating_add(self.actors_per_block);
        self.next_actor = end;
        self.rows.clear();
        work.consume(self.runs.len())?;
        for (index, (run, cursor)) in (0..).zip(self.runs.iter().zip(&mut self.cursors)) {
            let first = *cursor;
            *cursor = first + run.run.actors[first..].partition_point(|actor| *actor < end);
            work.consume(2 * (*cursor - first))?;
            append_rows(run, index, first..*cursor, &mut self.rows);
        }
        if self.runs.len() > 1 {
            let runs = self.runs;
            let arrival = |event: &EventRow| {
                runs.get(event.run as usize).map_or(0, |run| run.run.order.at(event.row as usize))
            };
            // The rows of each run are sorted already; the stable sort merges them.
            self.rows.sort_by(|left, right| {
                let place = |event: &EventRow| (event.actor, event.time);
                place(left).cmp(&place(right)).then_with(|| arrival(left).cmp(&arrival(right)))
            });
        }
        Ok(Some(&self.rows))
    }
}

/// Appends those of some rows of a run that count.
fn append_rows(run: &ItemRun<'_>, index: u32, range: Range<usize>, rows: &mut Vec<EventRow>) {
    let ItemRun { run, items, mask, times } = run;
    let (actors, event_times) = (&run.actors[range.clone()], &run.times[range.clone()]);
    for ((row, actor), time) in range.zip(actors).zip(event_times) {
        if times.contains(row, *actor, *time) && mask.has(row) {
            let item = items.of(row);
            if item != NO_ITEM {
                // Row counts fit into 32 bits.
                let row = u32::try_from(row).unwrap_or(u32::MAX);
                rows.push(EventRow { time: *time, actor: *actor, item, run: index, row });
            }
        }
    }
}
