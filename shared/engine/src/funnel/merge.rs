//! The events of one actor from several runs, instant by instant.
//!
//! Must stay true: instants ascend, events of an instant stand in order of arrival, rows that match nothing are not seen.
//! Actors are visited in ascending order, so that each run is read once from its first row to its last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::scan::{Marks, StepEvent};
use super::values::Codes;
use crate::filter::Mask;
use crate::scan::{Micros, Run, Seq};

/// What the rows of a run match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowMarks {
    /// Every row the same.
    Same(Marks),
    /// One entry a row.
    Each(Vec<Marks>),
}

impl RowMarks {
    /// Adds marks to the rows that pass a mask.
    #[must_use]
    pub(super) fn with(self, more: Marks, mask: &Mask) -> Self {
        match (self, mask) {
            (marks, Mask::Nothing) => marks,
            (Self::Same(marks), Mask::Every) => Self::Same(marks.with(more)),
            (Self::Each(mut marks), Mask::Every) => {
                marks.iter_mut().for_each(|marks| *marks = marks.with(more));
                Self::Each(marks)
            }
            (Self::Same(marks), Mask::Rows(rows)) => {
                Self::Each(rows.iter().map(|passes| if *passes { marks.with(more) } else { marks }).collect())
            }
            (Self::Each(mut marks), Mask::Rows(rows)) => {
                for (marks, _) in marks.iter_mut().zip(rows).filter(|(_, passes)| **passes) {
                    *marks = marks.with(more);
                }
                Self::Each(marks)
            }
        }
    }

    #[inline]
    fn of(&self, row: usize) -> Marks {
        match self {
            Self::Same(marks) => *marks,
            Self::Each(marks) => marks.get(row).copied().unwrap_or_default(),
        }
    }
}

/// A run and what its rows match.
pub(super) struct MarkedRun<'a> {
    pub(super) run: &'a Run,
    pub(super) marks: RowMarks,
    /// The codes of the rows' values of the breakdown; none without one.
    pub(super) values: Option<Codes>,
}

impl<'a> MarkedRun<'a> {
    pub(super) fn new(run: &'a Run, marks: RowMarks, values: Option<Codes>) -> Self {
        Self { run, marks, values }
    }

    /// What any of its rows matches.
    pub(super) fn all_marks(&self) -> Marks {
        match &self.marks {
            RowMarks::Same(marks) => *marks,
            RowMarks::Each(marks) => marks.iter().fold(Marks::default(), |all, marks| all.with(*marks)),
        }
    }

    #[inline]
    fn event(&self, row: usize, time: Micros) -> StepEvent {
        let value = self.values.as_ref().map_or(0, |values| values.of(row));
        StepEvent { time, marks: self.marks.of(row), value }
    }
}

/// The first place from `from` on that is not `before`; all places that are stand in front of all that are not. Near
/// places are found fast.
#[inline]
pub(super) fn leap(from: usize, end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    // All places in front of `low` are before.
    let mut high = loop {
        let probe = low + step - 1;
        if probe >= end {
            break end;
        }
        if !before(probe) {
            break probe;
        }
        low = probe + 1;
        step *= 2;
    };
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The actors with an event that may begin a path, ascending.
pub(super) fn entrants(runs: &[MarkedRun<'_>], begins: impl Fn(Marks) -> bool) -> Vec<u32> {
    let mut actors: Vec<u32> = Vec::new();
    for MarkedRun { run, marks, .. } in runs {
        let mut newest = None;
        for (row, actor) in run.actors.iter().enumerate() {
            if newest != Some(*actor) && begins(marks.of(row)) {
                newest = Some(*actor);
                actors.push(*actor);
            }
        }
    }
    // Each run is in order already; the stable sort merges them.
    actors.sort();
    actors.dedup();
    actors
}

/// Walks through the instants of one actor after the other. Runs are found by heaps, because there may be one for each of
/// thousands of event names, and an actor has events of a few.
pub(super) struct Ticks<'a> {
    runs: &'a [MarkedRun<'a>],
    bounds: (Micros, Micros),
    /// By run.
    heads: Vec<Head>,
    /// The runs that have more actors, by the next of these.
    upcoming: BinaryHeap<Reverse<(u32, usize)>>,
    /// The runs with events of the actor, by time and arrival of the next of these.
    active: BinaryHeap<Reverse<(Micros, Seq, usize)>>,
    tick: Vec<StepEvent>,
}

/// Where one run stands.
#[derive(Clone, Copy)]
struct Head {
    /// The actor's first row that is not yet given out, and the row after its last.
    next: usize,
    end: usize,
}

impl<'a> Ticks<'a> {
    /// Only events from the first to the last of these instants are given out.
    pub(super) fn new(runs: &'a [MarkedRun<'a>], bounds: (Micros, Micros)) -> Self {
        let heads = vec![Head { next: 0, end: 0 }; runs.len()];
        let first = |(index, marked): (usize, &MarkedRun<'_>)| {
            marked.run.actors.first().map(|actor| Reverse((*actor, index)))
        };
        let upcoming = runs.iter().enumerate().filter_map(first).collect();
        Self { runs, bounds, heads, upcoming, active: BinaryHeap::new(), tick: Vec::new() }
    }

    /// Goes on to an actor, who must stand behind the one before. The number of runs that were looked at.
    pub(super) fn seek(&mut self, actor: u32) -> usize {
        self.active.clear();
        let mut visited = 0;
        while let Some(mut top) = self.upcoming.peek_mut()
            && top.0.0 <= actor
        {
            visited += 1;
            let index = top.0.1;
            let (marked, head) = (&self.runs[index], &mut self.heads[index]);
            let actors = &marked.run.actors;
            head.next = leap(head.end, actors.len(), |row| actors[row] < actor);
            head.end = head.next;
            while actors.get(head.end) == Some(&actor) {
                head.end += 1;
            }
            if let Some(time) = head.load(marked, self.bounds) {
                self.active.push(Reverse((time, marked.run.order.at(head.next), index)));
            }
            match actors.get(head.end) {
                Some(next) => *top = Reverse((*next, index)),
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        visited
    }

    /// The events of the actor's next instant.
    pub(super) fn next(&mut self) -> Option<&[StepEvent]> {
        self.tick.clear();
        let Reverse((time, ..)) = *self.active.peek()?;
        while let Some(mut top) = self.active.peek_mut()
            && top.0.0 == time
        {
            let index = top.0.2;
            let (marked, head) = (&self.runs[index], &mut self.heads[index]);
            self.tick.push(marked.event(head.next, time));
            head.next += 1;
            match head.load(marked, self.bounds) {
                Some(next) => *top = Reverse((next, marked.run.order.at(head.next), index)),
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        Some(&self.tick)
    }

    /// All events of the actor that are left.
    pub(super) fn collect(&mut self, events: &mut Vec<StepEvent>) {
        events.clear();
        while let Some(tick) = self.next() {
            events.extend_from_slice(tick);
        }
    }
}

impl Head {
    /// Finds the next row that matters, and when that was. None when the actor has no more of them.
    #[inline]
    fn load(&mut self, marked: &MarkedRun<'_>, bounds: (Micros, Micros)) -> Option<Micros> {
        while self.next < self.end {
            let time = marked.run.times[self.next];
            if time >= bounds.0 && !marked.marks.of(self.next).is_empty() {
                return (time <= bounds.1).then_some(time);
            }
            self.next += 1;
        }
        None
    }
}
