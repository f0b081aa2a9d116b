//! Strict funnels whose events take one step at most each, without looking at every event in between.
//!
//! First the runs of the steps alone say what paths there would be if nothing else had happened; then the other runs are
//! asked about the gaps of these paths ([`super::gaps`]); at last the paths are followed as far as their gaps are open.
//! Must stay true: outcomes are those of the scan over instants ([`super::scan`]); an actor with several events at an
//! instant that may bear on a path is left to it.

use super::Outcome;
use super::direct::Told;
use super::gaps::{End, Fate, Gap, settle};
use super::lane::{earliest, rows_of};
use super::merge::{MarkedRun, RowMarks, leap};
use super::scan::{Marks, Rules};
use crate::error::CalcResult;
use crate::scan::{Micros, Order};
use crate::work::WorkBudget;

/// More lanes than these are not merged quickly.
const LANES: usize = 64;

/// The rows of a run that take one step.
struct Lane<'a> {
    step: usize,
    actors: &'a [u32],
    times: &'a [Micros],
    /// What rows match, where that is not the same of all.
    marks: Option<&'a [Marks]>,
    /// The actor's rows that are within the range and not yet passed.
    next: usize,
    end: usize,
    /// The row behind all rows of the actor.
    behind: usize,
}

/// A pass over the actors of a partition.
pub(super) struct Strict<'a> {
    rules: Rules,
    bounds: (Micros, Micros),
    runs: &'a [MarkedRun<'a>],
    /// By step.
    lanes: Vec<Lane<'a>>,
    /// Some events of one actor may have one instant.
    ties: bool,
}

/// Somebody who took the first step.
struct Entrant {
    actor: u32,
    first: Micros,
    /// The gaps behind its own begin here.
    gaps: usize,
    /// Events of several steps have one instant.
    tied: bool,
}

/// A path that may go on.
#[derive(Clone, Copy)]
struct Path {
    depth: usize,
    start: Micros,
    /// When its last event was.
    last: Micros,
}

impl<'a> Strict<'a> {
    /// None when the funnel or its runs are not of the kind.
    pub(super) fn new(rules: Rules, bounds: (Micros, Micros), runs: &'a [MarkedRun<'a>]) -> Option<Self> {
        if !rules.strict || rules.optional != 0 {
            return None;
        }
        let mut lanes = Vec::new();
        for marked in runs {
            let steps = single_steps(&marked.marks)?;
            let steps = (0..rules.steps).filter(|step| steps >> step & 1 != 0);
            lanes.extend(steps.map(|step| Lane::new(step, marked)));
        }
        if lanes.len() > LANES {
            return None;
        }
        lanes.sort_by_key(|lane| lane.step);
        let ties = runs.iter().any(|marked| marked.run.order != Order::Untied);
        Some(Self { rules, bounds, runs, lanes, ties })
    }

    /// Calls back for every actor that took the first step, in their order.
    pub(super) fn run(
        mut self,
        work: &WorkBudget<'_>,
        mut back: impl FnMut(Told<'_>) -> CalcResult<()>,
    ) -> CalcResult<()> {
        let (mut entrants, mut gaps) = (Vec::new(), Vec::new());
        while let Some(actor) = self.next_actor() {
            let reach = self.seek(actor);
            work.consume(1 + self.lanes.iter().map(|lane| lane.end - lane.next).sum::<usize>())?;
            let starts = self.lanes.iter().take_while(|lane| lane.step == 0).filter_map(Lane::time);
            let Some(first) = starts.min().filter(|_| reach > 0) else { continue };
            let tied = reach > 1 && !self.find_gaps(actor, &mut gaps);
            entrants.push(Entrant { actor, first, gaps: gaps.len(), tied });
        }
        settle(&mut gaps, self.runs, work)?;
        let (mut best, mut path) = (Vec::new(), Vec::new());
        let mut done = 0;
        for Entrant { actor, first, gaps: end, tied } in entrants {
            let own = &gaps[done..end];
            done = end;
            work.consume(1 + own.len())?;
            best.clear();
            best.push(first);
            if tied || !follow(own, self.rules.steps, &mut path, &mut best) {
                back(Told::Tied(actor))?;
                continue;
            }
            let steps = u32::try_from((1_u64 << best.len()) - 1).unwrap_or(u32::MAX);
            back(Told::Outcome(Outcome { actor, value: 0, times: &best, steps }))?;
        }
        Ok(())
    }

    /// The next actor with a row of the first step.
    fn next_actor(&self) -> Option<u32> {
        let firsts = self.lanes.iter().take_while(|lane| lane.step == 0);
        firsts.filter_map(|lane| lane.actors.get(lane.behind).copied()).min()
    }

    /// Goes on to the next actor, and says how many steps it may have taken at most. Whoever has no second step has no
    /// use for the others.
    fn seek(&mut self, actor: u32) -> usize {
        let mut reach = 0;
        for lane in &mut self.lanes {
            if lane.step > reach && reach < 2 {
                (lane.next, lane.end) = (0, 0);
                continue;
            }
            lane.seek(actor, self.bounds);
            if lane.step == reach && lane.next < lane.end {
                reach += 1;
            }
        }
        reach
    }

    /// The gaps of the paths that an actor would have if there were no events but those of steps. False when several of
    /// these have one instant.
    fn find_gaps(&mut self, actor: u32, gaps: &mut Vec<Gap>) -> bool {
        let mut path: Option<Path> = None;
        let ties = self.ties;
        loop {
            let Some((index, time)) = earliest(self.lanes.iter().map(Lane::time)) else { return true };
            let Some(index) = index else { return false };
            let step = self.lanes[index].step;
            self.lanes[index].pass();
            let begun = (step == 0).then_some(Path { depth: 1, start: time, last: time });
            let Some(Path { depth, start, last }) =
                path.filter(|path| time - path.start <= self.rules.window)
            else {
                path = begun;
                continue;
            };
            let mut gap = |end: End| {
                let depth = u8::try_from(depth).unwrap_or(u8::MAX);
                gaps.push(Gap { actor, from: last, to: time, depth, end, fate: Fate::Open });
            };
            path = if step == depth {
                gap(End::Step);
                let longer = Path { depth: depth + 1, start, last: time };
                (depth + 1 < self.rules.steps).then_some(longer)
            } else if step > 0 && step + 1 == depth {
                gap(End::Repeat);
                Some(Path { depth, start, last: time })
            } else {
                // Of a path that begins anew nothing is left, whatever else happened. Others end, but not at an instant
                // with an event that is no step.
                if ties && (depth, step) != (1, 0) {
                    gap(End::Stop);
                }
                begun
            };
        }
    }
}

/// Follows the paths of an actor along its gaps to the first of the longest. False when an instant of several events
/// bears on them.
fn follow(gaps: &[Gap], steps: usize, path: &mut Vec<Micros>, best: &mut Vec<Micros>) -> bool {
    let mut alive = false;
    for gap in gaps {
        if gap.depth == 1 {
            path.clear();
            path.push(gap.from);
            alive = true;
        }
        if !alive {
            continue;
        }
        match (gap.fate, gap.end) {
            (Fate::Tied, _) => return false,
            (Fate::Broken, _) | (Fate::Open, End::Stop) => alive = false,
            (Fate::Open, End::Repeat) => {}
            (Fate::Open, End::Step) => {
                path.push(gap.to);
                if path.len() > best.len() {
                    best.clone_from(path);
                    if best.len() == steps {
                        return true;
                    }
                }
            }
        }
    }
    true
}

/// One bit a step that rows take; none when a row takes several or is an exclusion.
fn single_steps(marks: &RowMarks) -> Option<u32> {
    let single = |marks: Marks| marks.steps().count_ones() <= 1 && marks.exclusions() == 0;
    match marks {
        RowMarks::Same(marks) => single(*marks).then(|| marks.steps()),
        RowMarks::Each(marks) => {
            let all = marks.iter().fold(0, |all, marks| all | marks.steps());
            marks.iter().all(|marks| single(*marks)).then_some(all)
        }
    }
}

impl<'a> Lane<'a> {
    fn new(step: usize, marked: &'a MarkedRun<'a>) -> Self {
        let marks = match &marked.marks {
            RowMarks::Same(_) => None,
            RowMarks::Each(marks) => Some(marks.as_slice()),
        };
        let (actors, times) = (&marked.run.actors, &marked.run.times);
        Self { step, actors, times, marks, next: 0, end: 0, behind: 0 }
    }

    /// The time of the next row.
    #[inline]
    fn time(&self) -> Option<Micros> {
        (self.next < self.end).then(|| self.times[self.next])
    }

    #[inline]
    fn counts(&self, row: usize) -> bool {
        self.marks.is_none_or(|marks| marks[row].takes(self.step))
    }

    /// Goes on to the rows of an actor that are within the range and take the step, from the first to the last of these.
    fn seek(&mut self, actor: u32, bounds: (Micros, Micros)) {
        let next = leap(self.behind, self.actors.len(), |row| self.actors[row] < actor);
        let (rows, behind) = rows_of((self.actors, self.times), next, actor, bounds, |row| self.counts(row));
        (self.next, self.end, self.behind) = (rows.start, rows.end, behind);
    }

    /// Goes on to the next row that takes the step.
    fn pass(&mut self) {
        self.next += 1;
        while self.next < self.end && !self.counts(self.next) {
            self.next += 1;
        }
    }
}
