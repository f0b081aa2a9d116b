//! Visits the rows of several runs in blocks of actors, so that a calculation can keep a dense table of a bounded number of
//! actors whatever the number of runs.
//!
//! Must stay true: each row that passes its mask is visited exactly once, in the block of its actor; blocks ascend.

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
    rows: &'a [MatchingRows<'a>],
    /// By run: its first row that was not visited.
    cursors: Vec<usize>,
    actors_per_block: usize,
}

/// The rows of consecutive actors.
#[derive(Debug)]
pub(crate) struct ActorBlock<'a> {
    /// The first actor, an index into the actors of the partition.
    pub(crate) first_actor: usize,
    parts: Vec<(&'a MatchingRows<'a>, Range<usize>)>,
}

impl<'a> ActorBlocks<'a> {
    /// Blocks of so many actors, at least one.
    pub(crate) fn new(rows: &'a [MatchingRows<'a>], actors_per_block: usize) -> Self {
        Self { rows, cursors: vec![0; rows.len()], actors_per_block: actors_per_block.max(1) }
    }

    /// The next block; it starts with the next actor that has rows.
    pub(crate) fn next_block(&mut self) -> Option<ActorBlock<'a>> {
        let next_actor = |(rows, cursor): (&MatchingRows<'_>, &usize)| rows.run.actors.get(*cursor).copied();
        let first_actor = self.rows.iter().zip(&self.cursors).filter_map(next_actor).min()? as usize;
        let end = first_actor.saturating_add(self.actors_per_block);
        let mut parts = Vec::new();
        for (rows, cursor) in self.rows.iter().zip(&mut self.cursors) {
            let start = *cursor;
            let left = rows.run.actors.get(start..).unwrap_or_default();
            *cursor = start + left.partition_point(|actor| (*actor as usize) < end);
            if *cursor > start {
                parts.push((rows, start..*cursor));
            }
        }
        Some(ActorBlock { first_actor, parts })
    }
}

impl ActorBlock<'_> {
    /// Calls back with the actor, counted from the first one of the block, and the time of each row that counts.
    pub(crate) fn for_each_row(
        &self,
        work: &WorkBudget<'_>,
        mut visit: impl FnMut(usize, Micros),
    ) -> CalcResult<()> {
        for (rows, range) in &self.parts {
            let (actors, times) = (&rows.run.actors, &rows.run.times);
            for start in range.clone().step_by(WORK_PER_CHECK) {
                let end = range.end.min(start + WORK_PER_CHECK);
                work.consume(end - start)?;
                let rows_of_slice = actors[start..end].iter().zip(&times[start..end]);
                match &rows.mask {
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
            let mut blocks = ActorBlocks::new(&rows, size);
            let (mut got, mut after) = (Vec::new(), 0);
            while let Some(block) = blocks.next_block() {
                prop_assert!(block.first_actor >= after);
                block.for_each_row(&WorkBudget::new(&|| false), |actor, time| {
                    assert!(actor < size.max(1));
                    got.push((block.first_actor + actor, time));
                }).unwrap();
                after = block.first_actor + size.max(1);
            }
            got.sort_unstable();
            want.sort_unstable();
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
        let block = ActorBlocks::new(&rows, 5).next_block().unwrap();
        let mut visited = 0;
        block.for_each_row(&WorkBudget::new(&is_cancelled), |_, _| visited += 1).unwrap();
        assert_eq!(visited, 200_000);
        assert!(checks.get() >= 2, "{} checks", checks.get());
    }
}
