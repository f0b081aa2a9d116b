//! Reads the rows of several runs in blocks of consecutive actors, so that a calculation keeps the counters or the events of a
//! bounded number of actors whatever the number of runs.
//!
//! Must stay true: each row is in exactly one block, that of its actor; blocks ascend; each run is read once from front to back.

use std::ops::Range;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::{WORK_PER_CHECK, WorkBudget};

use crate::mask::Mask;
use crate::scan::{EventRun, Micros};

/// A run, and which of its rows count.
#[derive(Debug)]
pub(crate) struct MatchingRows<'a> {
    pub(crate) run: &'a EventRun,
    pub(crate) mask: Mask,
}

/// The blocks of actors that have rows.
#[derive(Debug)]
pub(crate) struct ActorBlocks<'a> {
    /// By run: the actors of its rows, ascending.
    actors: Vec<&'a [u32]>,
    /// By run: its first row that is in no block yet.
    cursors: Vec<usize>,
    actors_per_block: usize,
    /// The rows of the current block.
    rows: Vec<RunRows>,
}

/// The rows of consecutive actors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActorBlock<'b> {
    /// The first actor, an index into the actors of the partition.
    pub(crate) first_actor: usize,
    /// The rows of each run that has any, ascending by run.
    pub(crate) rows: &'b [RunRows],
    actors: &'b [&'b [u32]],
}

/// Rows of one run, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRows {
    /// Index of the run.
    pub(crate) run: usize,
    pub(crate) rows: Range<usize>,
}

/// The rows of one actor in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActorRows {
    /// Index into the actors of the partition.
    pub(crate) actor: u32,
    /// Index of the run.
    pub(crate) run: usize,
    /// At least one.
    pub(crate) rows: Range<usize>,
}

impl<'a> ActorBlocks<'a> {
    /// Blocks of so many actors, at least one.
    pub(crate) fn new(runs: impl Iterator<Item = &'a EventRun>, actors_per_block: usize) -> Self {
        let actors: Vec<&[u32]> = runs.map(|run| &*run.actors).collect();
        let cursors = vec![0; actors.len()];
        Self { actors, cursors, actors_per_block: actors_per_block.max(1), rows: Vec::new() }
    }

    /// Blocks of about so many rows, unless one actor has more. The partition has `actors`.
    pub(crate) fn of_rows(
        runs: impl Iterator<Item = &'a EventRun>,
        actors: usize,
        rows_per_block: usize,
    ) -> Self {
        let mut blocks = Self::new(runs, 1);
        let rows: usize = blocks.actors.iter().map(|actors| actors.len()).sum();
        let rows_per_actor = rows / actors.max(1) + 1;
        blocks.actors_per_block = (rows_per_block / rows_per_actor).max(1);
        blocks
    }

    /// Blocks of at most so many actors.
    #[must_use]
    pub(crate) fn at_most(mut self, actors: usize) -> Self {
        self.actors_per_block = self.actors_per_block.min(actors.max(1));
        self
    }

    /// The next block; it starts with the next actor that has rows.
    pub(crate) fn next_block(&mut self, work: &WorkBudget<'_>) -> CalcResult<Option<ActorBlock<'_>>> {
        work.consume(self.actors.len())?;
        let next_actor = |(actors, cursor): (&&[u32], &usize)| actors.get(*cursor).copied();
        let Some(first) = self.actors.iter().zip(&self.cursors).filter_map(next_actor).min() else {
            return Ok(None);
        };
        let first_actor = first as usize;
        let end = first_actor.saturating_add(self.actors_per_block);
        self.rows.clear();
        for (run, (actors, cursor)) in self.actors.iter().zip(&mut self.cursors).enumerate() {
            let start = *cursor;
            let left = actors.get(start..).unwrap_or_default();
            *cursor = start + left.partition_point(|actor| (*actor as usize) < end);
            if *cursor > start {
                self.rows.push(RunRows { run, rows: start..*cursor });
            }
        }
        Ok(Some(ActorBlock { first_actor, rows: &self.rows, actors: &self.actors }))
    }
}

impl ActorBlock<'_> {
    /// Calls back with the actor, counted from the first one of the block, and the time of each row that counts. `matching`
    /// has the runs of the blocks.
    pub(crate) fn for_each_row(
        &self,
        matching: &[MatchingRows<'_>],
        work: &WorkBudget<'_>,
        mut visit: impl FnMut(usize, Micros),
    ) -> CalcResult<()> {
        for RunRows { run, rows } in self.rows {
            let Some(MatchingRows { run, mask }) = matching.get(*run) else { continue };
            for start in rows.clone().step_by(WORK_PER_CHECK) {
                let end = rows.end.min(start + WORK_PER_CHECK);
                work.consume(end - start)?;
                let rows_of_slice = run.actors[start..end].iter().zip(&run.times[start..end]);
                match mask {
                    Mask::Nothing => {}
                    Mask::Every => rows_of_slice
                        .for_each(|(actor, time)| visit(*actor as usize - self.first_actor, *time)),
                    Mask::Rows(passes) => {
                        for ((actor, time), passes) in rows_of_slice.zip(&passes[start..end]) {
                            if *passes {
                                visit(*actor as usize - self.first_actor, *time);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Splits the rows of the block by actor: `split` is set to them, ascending by actor, then by run.
    pub(crate) fn split_by_actor(&self, split: &mut Vec<ActorRows>, work: &WorkBudget<'_>) -> CalcResult<()> {
        split.clear();
        for RunRows { run, rows } in self.rows {
            work.consume(rows.len())?;
            let mut first = rows.start;
            for same in self.actors[*run][rows.clone()].chunk_by(|left, right| left == right) {
                let next = first + same.len();
                split.push(ActorRows { actor: same[0], run: *run, rows: first..next });
                first = next;
            }
        }
        if self.rows.len() > 1 {
            work.consume(split.len())?;
            // The rows of each run are sorted already; the stable sort merges them.
            split.sort_by_key(|rows| rows.actor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn run(mut rows: Vec<(u32, i64)>) -> EventRun {
        rows.sort_unstable();
        EventRun {
            actors: rows.iter().map(|row| row.0).collect(),
            times: rows.iter().map(|row| row.1).collect(),
            ..EventRun::default()
        }
    }

    proptest! {
        #[test]
        fn each_passing_row_is_in_the_block_of_its_actor(
            runs in prop::collection::vec(prop::collection::vec((0..40_u32, 0..9_i64, any::<bool>()), 0..20), 0..4),
            size in 0..12_usize,
        ) {
            let mut want = Vec::new();
            let runs: Vec<(EventRun, Vec<bool>)> = runs.into_iter().map(|mut rows| {
                rows.sort_unstable();
                want.extend(rows.iter().filter(|row| row.2).map(|row| (row.0 as usize, row.1)));
                let passes = rows.iter().map(|row| row.2).collect();
                (run(rows.into_iter().map(|row| (row.0, row.1)).collect()), passes)
            }).collect();
            // Rows of equal actor and time keep their order, so their masks stay theirs.
            let rows: Vec<MatchingRows<'_>> =
                runs.iter().map(|(run, passes)| MatchingRows { run, mask: Mask::Rows(passes.clone()) }).collect();
            let work = &WorkBudget::new(&|| false);
            let mut blocks = ActorBlocks::new(rows.iter().map(|rows| rows.run), size);
            let (mut got, mut after) = (Vec::new(), 0);
            while let Some(block) = blocks.next_block(work).unwrap() {
                prop_assert!(block.first_actor >= after);
                block.for_each_row(&rows, work, |actor, time| {
                    assert!(actor < size.max(1));
                    got.push((block.first_actor + actor, time));
                }).unwrap();
                after = block.first_actor + size.max(1);
            }
            got.sort_unstable();
            want.sort_unstable();
            prop_assert_eq!(got, want);
        }

        /// Whatever the size of the blocks, each actor comes once, with all of its rows.
        #[test]
        fn actors_come_in_order_with_their_rows_of_every_run(
            runs in prop::collection::vec(prop::collection::vec(0..30_u32, 0..20), 0..4), size in 0..60_usize,
        ) {
            let runs: Vec<EventRun> = runs.into_iter()
                .map(|actors| run(actors.into_iter().map(|actor| (actor, 0)).collect())).collect();
            let mut want = Vec::new();
            for actor in 0..30 {
                for (at, run) in runs.iter().enumerate() {
                    let rows: Vec<usize> = (0..run.actors.len()).filter(|row| run.actors[*row] == actor).collect();
                    if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
                        want.push(ActorRows { actor, run: at, rows: *first..*last + 1 });
                    }
                }
            }
            let work = &WorkBudget::new(&|| false);
            let mut blocks = ActorBlocks::of_rows(runs.iter(), 30, size);
            let (mut got, mut split) = (Vec::new(), Vec::new());
            while let Some(block) = blocks.next_block(work).unwrap() {
                block.split_by_actor(&mut split, work).unwrap();
                got.append(&mut split);
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn a_long_run_is_visited_in_slices() {
        let rows = run((0..200_000).map(|row| (0, row)).collect());
        let rows = [MatchingRows { run: &rows, mask: Mask::Every }];
        let checks = std::cell::Cell::new(0);
        let is_cancelled = || {
            checks.set(checks.get() + 1);
            false
        };
        let work = &WorkBudget::new(&is_cancelled);
        let mut blocks = ActorBlocks::new(rows.iter().map(|rows| rows.run), 5);
        let block = blocks.next_block(work).unwrap().unwrap();
        let mut visited = 0;
        block.for_each_row(&rows, work, |_, _| visited += 1).unwrap();
        assert_eq!(visited, 200_000);
        assert!(checks.get() >= 2, "{} checks", checks.get());
    }
}
