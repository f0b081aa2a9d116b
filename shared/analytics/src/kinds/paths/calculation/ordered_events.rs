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

/// One event that is in the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathEvent {
    pub(super) actor: u32,
    pub(super) time: Micros,
    pub(super) item: u32,
}

/// An event while it is sorted: small, with actor and time in one number, because sorting is most of the work of paths.
#[derive(Debug, Clone, Copy)]
struct SortedEvent {
    /// The actor, counted from the first one of the block, then the time.
    key: u64,
    item: u32,
    /// Index into the places.
    place: u32,
}

/// The events of one block after the other. The buffers of a block are used again for the next one.
#[derive(Debug)]
pub(super) struct OrderedEvents {
    /// All counted times are from here on, and less than two to the power of `time_bits` later.
    from: Micros,
    time_bits: u32,
    first_actor: u32,
    events: Vec<SortedEvent>,
    /// The run and the row of each event, in the order in which they were read.
    places: Vec<(u32, u32)>,
}

impl OrderedEvents {
    /// For events whose times count within these bounds.
    pub(super) fn new((from, to): TimeBounds) -> Self {
        let time_bits = u64::BITS - to.max(from).abs_diff(from).leading_zeros();
        Self { from, time_bits, first_actor: 0, events: Vec::new(), places: Vec::new() }
    }

    /// The actors of a block, at most: so many can be distinguished by the bits that the time leaves in a key, at least one.
    pub(super) fn actors_per_block(&self) -> usize {
        1_usize.checked_shl(u64::BITS - self.time_bits).unwrap_or(usize::MAX)
    }

    /// Reads and sorts the counted events of a block of these runs.
    pub(super) fn read_block(
        &mut self,
        runs: &[ItemRun<'_>],
        block: ActorBlock<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        // Row counts, and so numbers of actors and of runs, fit into 32 bits.
        self.first_actor = u32::try_from(block.first_actor).unwrap_or(u32::MAX);
        self.events.clear();
        self.places.clear();
        for RunRows { run, rows } in block.rows {
            let Some(of_run) = runs.get(*run) else { continue };
            work.consume(2 * rows.len())?;
            self.append_rows(of_run, u32::try_from(*run).unwrap_or(u32::MAX), rows.clone());
        }
        if block.rows.len() > 1 {
            // The rows of each run are sorted already; the stable sort merges them.
            self.events.sort_by_key(|event| event.key);
            self.sort_ties(runs);
        }
        Ok(())
    }

    /// Appends those of some rows of a run that count.
    fn append_rows(&mut self, run: &ItemRun<'_>, index: u32, range: Range<usize>) {
        let ItemRun { run, items, mask, times } = run;
        let (actors, event_times) = (&run.actors[range.clone()], &run.times[range.clone()]);
        for ((row, actor), time) in range.zip(actors).zip(event_times) {
            if times.contains(row, *actor, *time) && mask.has(row) {
                let item = items.of(row);
                if item != NO_ITEM {
                    let actor = u64::from(*actor - self.first_actor);
                    let key = actor.checked_shl(self.time_bits).unwrap_or(0) | time.abs_diff(self.from);
                    let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
                    self.events.push(SortedEvent { key, item, place });
                    self.places.push((index, u32::try_from(row).unwrap_or(u32::MAX)));
                }
            }
        }
    }

    /// Sorts events of equal actor and time by their arrival.
    fn sort_ties(&mut self, runs: &[ItemRun<'_>]) {
        let arrival = |event: &SortedEvent| {
            let (run, row) = self.places.get(event.place as usize).copied().unwrap_or_default();
            runs.get(run as usize).map_or(0, |run| run.run.order.at(row as usize))
        };
        for tied in self.events.chunk_by_mut(|left, right| left.key == right.key) {
            if tied.len() > 1 {
                tied.sort_by_key(arrival);
            }
        }
    }

    /// The events of the block, in order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = PathEvent> {
        let time_mask = u64::MAX.checked_shr(u64::BITS - self.time_bits).unwrap_or(0);
        self.events.iter().map(move |event| {
            let actor = event.key.checked_shr(self.time_bits).unwrap_or(0);
            PathEvent {
                actor: self.first_actor + actor as u32,
                time: self.from.wrapping_add_unsigned(event.key & time_mask),
                item: event.item,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::actor_blocks::ActorBlocks;
    use crate::scan::ArrivalOrder;

    proptest! {
        /// Whatever the bounds, and so the bits of a key.
        #[test]
        fn events_are_in_order_of_actor_time_and_arrival(
            runs in prop::collection::vec(
                prop::collection::vec(
                    (0..9_u32, prop_oneof![0..4_i64, -9..9_i64, any::<i64>()], any::<bool>()), 0..12), 0..4),
            bounds in prop_oneof![
                Just((Micros::MIN, Micros::MAX)), Just((0, 3)), Just((2, 2)), Just((5, 4)), (any::<i64>(), any::<i64>()),
            ],
            rows_per_block in 1..40_usize,
        ) {
            let mut want = Vec::new();
            let parts: Vec<(EventRun, RowItems, Mask)> = (0..).zip(runs).map(|(index, mut rows)| {
                rows.sort_unstable();
                // Later runs arrived earlier.
                let items: Vec<u32> = (0..rows.len()).map(|row| (9 - index) * 100 + row as u32).collect();
                for ((actor, time, passes), item) in rows.iter().zip(&items) {
                    if *passes && bounds.0 <= *time && *time <= bounds.1 {
                        want.push(PathEvent { actor: *actor, time: *time, item: *item });
                    }
                }
                let run = EventRun {
                    actors: rows.iter().map(|row| row.0).collect(),
                    times: rows.iter().map(|row| row.1).collect(),
                    order: items.iter().map(|item| u128::from(*item)).collect::<ArrivalOrder>(),
                    ..EventRun::default()
                };
                let codes: Vec<u32> = (0..).take(items.len()).collect();
                let items = RowItems::Column { codes: codes.into(), table: items, missing: NO_ITEM };
                (run, items, Mask::Rows(rows.iter().map(|row| row.2).collect()))
            }).collect();
            let runs: Vec<ItemRun<'_>> = parts.iter().map(|(run, items, mask)| ItemRun {
                run, items: items.clone(), mask: mask.clone(), times: RowTimes::Same(bounds),
            }).collect();
            want.sort_unstable_by_key(|event| (event.actor, event.time, event.item));
            let work = &WorkBudget::new(&|| false);
            let mut events = OrderedEvents::new(bounds);
            let mut blocks = ActorBlocks::of_rows(runs.iter().map(|run| run.run), 9, rows_per_block)
                .at_most(events.actors_per_block());
            let mut got = Vec::new();
            while let Some(block) = blocks.next_block(work).unwrap() {
                events.read_block(&runs, block, work).unwrap();
                got.extend(events.iter());
            }
            prop_assert_eq!(got, want);
        }
    }
}
