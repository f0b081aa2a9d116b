//! Walks the runs of a partition actor by actor.
//!
//! Must stay true: each actor with rows comes once, in ascending order, with its rows of every run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The rows of one actor in one run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActorSegment {
    /// Index of the run.
    pub(super) run: usize,
    /// The rows, at least one.
    pub(super) rows: Range<usize>,
}

/// A walk over the actors of several runs.
#[derive(Debug)]
pub(super) struct ActorWalk<'a> {
    /// The actors of the rows of each run, ascending.
    runs: Vec<&'a [u32]>,
    /// By run: the first row that was not visited.
    positions: Vec<usize>,
    /// The next actor of each run that has rows left.
    next: BinaryHeap<Reverse<(u32, usize)>>,
}

impl<'a> ActorWalk<'a> {
    pub(super) fn new(runs: Vec<&'a [u32]>) -> Self {
        let next = runs.iter().enumerate();
        let next = next.filter_map(|(run, actors)| Some(Reverse((*actors.first()?, run)))).collect();
        Self { positions: vec![0; runs.len()], runs, next }
    }

    /// The next actor; `segments` are set to its rows.
    pub(super) fn next(&mut self, segments: &mut Vec<ActorSegment>) -> Option<u32> {
        segments.clear();
        let Reverse((actor, _)) = *self.next.peek()?;
        while let Some(Reverse((next_actor, run))) = self.next.peek().copied()
            && next_actor == actor
        {
            self.next.pop();
            let (actors, from) = (self.runs[run], self.positions[run]);
            let count = actors[from..].iter().take_while(|other| **other == actor).count();
            let to = from + count;
            segments.push(ActorSegment { run, rows: from..to });
            self.positions[run] = to;
            if let Some(following) = actors.get(to) {
                self.next.push(Reverse((*following, run)));
            }
        }
        Some(actor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_come_in_order_with_the_rows_of_every_run() {
        let mut walk = ActorWalk::new(vec![&[0, 0, 2], &[], &[1, 2, 2]]);
        let (mut segments, mut visited) = (Vec::new(), Vec::new());
        while let Some(actor) = walk.next(&mut segments) {
            let rows: Vec<_> = segments.iter().map(|segment| (segment.run, segment.rows.clone())).collect();
            visited.push((actor, rows));
        }
        let expected = [(0, vec![(0, 0..2)]), (1, vec![(2, 0..1)]), (2, vec![(0, 2..3), (2, 1..3)])];
        assert_eq!(visited, expected);
    }
}
