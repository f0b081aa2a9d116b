//! Ordered funnels of the plainest kind: every run takes one step, no two runs the same, and nothing else bears on paths.
//!
//! Must stay true: outcomes are those of the scan over instants ([`super::scan`]); an actor with events of several runs at
//! one instant is left to it. Most actors lack a step, and then no row of the steps behind it is looked at.

use super::Outcome;
use super::lane::{earliest, rows_of};
use super::merge::{MarkedRun, RowMarks};
use super::scan::{Marks, Rules};
use super::values::{Codes, Touch};
use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

/// No path.
const NONE: Micros = Micros::MIN;

/// The rows that take one step.
#[derive(Clone, Copy, Default)]
struct Lane<'a> {
    actors: &'a [u32],
    times: &'a [Micros],
    /// What rows match, where some match nothing.
    marks: Option<&'a [Marks]>,
    values: Option<&'a Codes>,
    /// The actor's rows that are within the range and not yet passed.
    next: usize,
    end: usize,
    /// The row behind all rows of the actor.
    behind: usize,
}

/// A pass over the actors of a partition.
pub(super) struct Direct<'a> {
    rules: Rules,
    bounds: (Micros, Micros),
    /// By step.
    lanes: Vec<Lane<'a>>,
    /// Which event says under what value an actor counts; none without a breakdown.
    touch: Option<Touch>,
    /// By step: when the path began that took it last, and when each of its steps was taken.
    starts: Vec<Micros>,
    paths: Vec<Micros>,
    best: Vec<Micros>,
}

/// What is told of an actor.
pub(super) enum Told<'o> {
    /// How far it got.
    Outcome(Outcome<'o>),
    /// Several runs have events of it at one instant: the scan over instants has to find out.
    Tied(u32),
}

/// What became of an actor.
enum Found {
    /// So many steps were taken, in the best case.
    Depth(usize),
    /// See [`Told::Tied`].
    Tied,
}

impl<'a> Direct<'a> {
    /// None when the funnel or its runs are not of the kind.
    pub(super) fn new(
        rules: Rules,
        bounds: (Micros, Micros),
        runs: &'a [MarkedRun<'a>],
        touch: Option<Touch>,
    ) -> Option<Self> {
        if rules.strict || rules.optional != 0 {
            return None;
        }
        let mut lanes: Vec<Option<Lane<'a>>> = vec![None; rules.steps];
        for marked in runs {
            let marks = marked.all_marks();
            let step = marks.steps().trailing_zeros() as usize;
            let lane = lanes.get_mut(step).filter(|lane| lane.is_none() && marks == Marks::step(step))?;
            *lane = Some(Lane::new(marked));
        }
        // A step that nobody took ends all paths; events of the steps behind it still say what somebody counts under.
        let lanes = lanes.into_iter().map(Option::unwrap_or_default).collect();
        let steps = rules.steps;
        let (starts, paths, best) = (vec![NONE; steps], vec![0; steps * steps], vec![0; steps]);
        Some(Self { rules, bounds, lanes, touch, starts, paths, best })
    }

    /// Calls back for every actor that began a path, in their order.
    pub(super) fn run(
        mut self,
        work: &WorkBudget<'_>,
        mut back: impl FnMut(Told<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        while let Some(actor) = self.lanes.first().and_then(|first| first.actors.get(first.behind)).copied() {
            let reach = self.seek(actor);
            work.consume(1 + self.lanes.iter().map(|lane| lane.end - lane.next).sum::<usize>())?;
            if reach == 0 {
                continue;
            }
            let value = match self.touch {
                None => Some(0),
                Some(touch) => self.touched(touch),
            };
            match (value, self.follow(reach)) {
                (Some(value), Found::Depth(depth)) => {
                    let steps = u32::try_from((1_u64 << depth) - 1).unwrap_or(u32::MAX);
                    back(Told::Outcome(Outcome { actor, value, times: &self.best[..depth], steps }))?;
                }
                _ => back(Told::Tied(actor))?,
            }
        }
        Ok(())
    }

    /// Goes on to the next actor, and says how many steps it may have taken at most.
    fn seek(&mut self, actor: u32) -> usize {
        let (mut reach, mut open) = (0, true);
        for lane in &mut self.lanes {
            // Without a breakdown nobody asks for what lies behind a missing step.
            if !open && self.touch.is_none() {
                (lane.next, lane.end) = (0, 0);
                continue;
            }
            lane.seek(actor, self.bounds);
            open &= lane.next < lane.end;
            reach += usize::from(open);
        }
        reach
    }

    /// The value of the first or last event that has one; none when several events at one instant are the first.
    fn touched(&self, touch: Touch) -> Option<u32> {
        let mut found: Option<(Micros, u32)> = None;
        for lane in &self.lanes {
            let Some((time, value)) = lane.touch(touch) else { continue };
            found = match found {
                Some((other, _)) if other == time => return None,
                Some((other, known)) if (other < time) != touch.last => Some((other, known)),
                _ => Some((time, value)),
            };
        }
        Some(found.map_or(0, |(_, value)| value))
    }

    /// The best path of an actor with events of the first `reach` steps.
    fn follow(&mut self, reach: usize) -> Found {
        let Some((first, later)) = self.lanes.split_first_mut() else { return Found::Depth(0) };
        let later = &mut later[..reach - 1];
        self.best[0] = first.times[first.next];
        let mut depth = 1;
        self.starts.fill(NONE);
        loop {
            let Some((index, time)) = earliest(later.iter().map(Lane::time)) else {
                return Found::Depth(depth);
            };
            let Some(index) = index else { return Found::Tied };
            // Of first steps only the latest one matters.
            while first.next < first.end && first.times[first.next] <= time {
                if first.counts(first.next) {
                    let start = first.times[first.next];
                    if start == time {
                        return Found::Tied;
                    }
                    (self.starts[0], self.paths[0]) = (start, start);
                }
                first.next += 1;
            }
            later[index].pass();
            let (step, start) = (index + 1, self.starts[index]);
            if start == NONE || time - start > self.rules.window || self.starts[step] == start {
                continue;
            }
            let (before, own) = self.paths.split_at_mut(step * self.rules.steps);
            own[..step].copy_from_slice(&before[index * self.rules.steps..][..step]);
            own[step] = time;
            self.starts[step] = start;
            if step == depth {
                depth += 1;
                self.best[..depth].copy_from_slice(&own[..depth]);
                if depth == reach {
                    return Found::Depth(depth);
                }
            }
        }
    }
}

impl<'a> Lane<'a> {
    fn new(marked: &'a MarkedRun<'a>) -> Self {
        let marks = match &marked.marks {
            RowMarks::Same(_) => None,
            RowMarks::Each(marks) => Some(marks.as_slice()),
        };
        let (actors, times) = (&marked.run.actors, &marked.run.times);
        Self { actors, times, marks, values: marked.values.as_ref(), ..Self::default() }
    }

    /// The time of the next row.
    #[inline]
    fn time(&self) -> Option<Micros> {
        (self.next < self.end).then(|| self.times[self.next])
    }

    #[inline]
    fn counts(&self, row: usize) -> bool {
        self.marks.is_none_or(|marks| !marks[row].is_empty())
    }

    /// Goes on to the rows of an actor that are within the range and count, from the first to the last of these.
    fn seek(&mut self, actor: u32, bounds: (Micros, Micros)) {
        let mut next = self.behind;
        while next < self.actors.len() && self.actors[next] < actor {
            next += 1;
        }
        let (rows, behind) = rows_of((self.actors, self.times), next, actor, bounds, |row| self.counts(row));
        (self.next, self.end, self.behind) = (rows.start, rows.end, behind);
    }

    /// Goes on to the next row that counts.
    fn pass(&mut self) {
        self.next += 1;
        while self.next < self.end && !self.counts(self.next) {
            self.next += 1;
        }
    }

    /// The time and the value of the first or last row that counts, empty values passed over where that is asked for.
    fn touch(&self, touch: Touch) -> Option<(Micros, u32)> {
        let value = |row: usize| {
            let value = self.values.map_or(0, |values| values.of(row));
            (self.counts(row) && (value != 0 || !touch.skip_empty)).then(|| (self.times[row], value))
        };
        let mut rows = self.next..self.end;
        if touch.last { rows.rev().find_map(value) } else { rows.find_map(value) }
    }
}
