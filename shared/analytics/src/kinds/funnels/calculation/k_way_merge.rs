//! K-way merge of an actor's events from several runs, one instant at a time.
//!
//! Must stay true: instants ascend, events of an instant are in order of arrival, and rows that match nothing are skipped.
//! Actors are visited in ascending order, so each run is read once from front to back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::breakdown::ValueCodes;
use super::scan::{MatchBits, StepEvent};
use crate::mask::Mask;
use crate::scan::{EventRun, Micros, Seq};

/// What each row of a run matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowMatches {
    /// All rows match the same.
    Same(MatchBits),
    /// One entry per row.
    Each(Vec<MatchBits>),
}

impl RowMatches {
    /// Adds matches to the rows that pass a mask.
    #[must_use]
    pub(super) fn with(self, more: MatchBits, mask: &Mask) -> Self {
        match (self, mask) {
            (matches, Mask::Nothing) => matches,
            (Self::Same(matches), Mask::Every) => Self::Same(matches.with(more)),
            (Self::Each(mut matches), Mask::Every) => {
                matches.iter_mut().for_each(|matches| *matches = matches.with(more));
                Self::Each(matches)
            }
            (Self::Same(matches), Mask::Rows(rows)) => Self::Each(
                rows.iter().map(|passes| if *passes { matches.with(more) } else { matches }).collect(),
            ),
            (Self::Each(mut matches), Mask::Rows(rows)) => {
                for (matches, _) in matches.iter_mut().zip(rows).filter(|(_, passes)| **passes) {
                    *matches = matches.with(more);
                }
                Self::Each(matches)
            }
        }
    }

    #[inline]
    fn of_row(&self, row: usize) -> MatchBits {
        match self {
            Self::Same(matches) => *matches,
            Self::Each(matches) => matches.get(row).copied().unwrap_or_default(),
        }
    }
}

/// A run, what its rows match, and their breakdown values.
pub(super) struct MatchedRun<'a> {
    pub(super) run: &'a EventRun,
    pub(super) matches: RowMatches,
    /// Codes of the rows' breakdown values; `None` without a breakdown.
    pub(super) values: Option<ValueCodes>,
}

impl<'a> MatchedRun<'a> {
    pub(super) fn new(run: &'a EventRun, matches: RowMatches, values: Option<ValueCodes>) -> Self {
        Self { run, matches, values }
    }

    /// The union of what its rows match.
    pub(super) fn all_matches(&self) -> MatchBits {
        match &self.matches {
            RowMatches::Same(matches) => *matches,
            RowMatches::Each(matches) => {
                matches.iter().fold(MatchBits::default(), |all, matches| all.with(*matches))
            }
        }
    }

    #[inline]
    fn event(&self, row: usize, time: Micros) -> StepEvent {
        let value = self.values.as_ref().map_or(0, |values| values.code_of(row));
        StepEvent { time, matches: self.matches.of_row(row), value }
    }
}

/// Galloping (exponential) search: the first index from `from` on for which `before` is false. `before` must be
/// monotonic. Takes O(log distance) steps.
#[inline]
pub(super) fn gallop(from: usize, end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    // Invariant: `before` is true for all indexes below `low`.
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

/// The actors with an event that can begin a path, ascending.
pub(super) fn entering_actors(runs: &[MatchedRun<'_>], begins: impl Fn(MatchBits) -> bool) -> Vec<u32> {
    let mut actors: Vec<u32> = Vec::new();
    for MatchedRun { run, matches, .. } in runs {
        let mut last_actor = None;
        for (row, actor) in run.actors.iter().enumerate() {
            if last_actor != Some(*actor) && begins(matches.of_row(row)) {
                last_actor = Some(*actor);
                actors.push(*actor);
            }
        }
    }
    // Each run is sorted already; the stable sort merges them.
    actors.sort();
    actors.dedup();
    actors
}

/// Merges the events of one actor after the other, instant by instant. Two heaps find the runs to read, because there can
/// be thousands of runs (one per event name) while an actor has events in only a few.
pub(super) struct KWayMerge<'a> {
    runs: &'a [MatchedRun<'a>],
    bounds: (Micros, Micros),
    /// By run.
    cursors: Vec<RunCursor>,
    /// Runs with more actors, keyed by the next actor.
    upcoming: BinaryHeap<Reverse<(u32, usize)>>,
    /// Runs with events of the current actor, keyed by time and arrival of the next event.
    active: BinaryHeap<Reverse<(Micros, Seq, usize)>>,
    instant_events: Vec<StepEvent>,
}

/// The read position in a run.
#[derive(Clone, Copy)]
struct RunCursor {
    /// The actor's next row, and the index behind its last row.
    next: usize,
    end: usize,
}

impl<'a> KWayMerge<'a> {
    /// Creates the merge. `bounds` are the first and last instant to return events for.
    pub(super) fn new(runs: &'a [MatchedRun<'a>], bounds: (Micros, Micros)) -> Self {
        let cursors = vec![RunCursor { next: 0, end: 0 }; runs.len()];
        let first = |(index, matched): (usize, &MatchedRun<'_>)| {
            matched.run.actors.first().map(|actor| Reverse((*actor, index)))
        };
        let upcoming = runs.iter().enumerate().filter_map(first).collect();
        Self { runs, bounds, cursors, upcoming, active: BinaryHeap::new(), instant_events: Vec::new() }
    }

    /// Moves to an actor, which must be greater than the one before. Returns the number of runs visited.
    pub(super) fn seek(&mut self, actor: u32) -> usize {
        self.active.clear();
        let mut visited = 0;
        while let Some(mut top) = self.upcoming.peek_mut()
            && top.0.0 <= actor
        {
            visited += 1;
            let index = top.0.1;
            let (matched, cursor) = (&self.runs[index], &mut self.cursors[index]);
            let actors = &matched.run.actors;
            cursor.next = gallop(cursor.end, actors.len(), |row| actors[row] < actor);
            cursor.end = cursor.next;
            while actors.get(cursor.end) == Some(&actor) {
                cursor.end += 1;
            }
            if let Some(time) = cursor.skip_to_match(matched, self.bounds) {
                self.active.push(Reverse((time, matched.run.order.at(cursor.next), index)));
            }
            match actors.get(cursor.end) {
                Some(next) => *top = Reverse((*next, index)),
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        visited
    }

    /// Returns the events of the actor's next instant.
    pub(super) fn next(&mut self) -> Option<&[StepEvent]> {
        self.instant_events.clear();
        let Reverse((time, ..)) = *self.active.peek()?;
        while let Some(mut top) = self.active.peek_mut()
            && top.0.0 == time
        {
            let index = top.0.2;
            let (matched, cursor) = (&self.runs[index], &mut self.cursors[index]);
            self.instant_events.push(matched.event(cursor.next, time));
            cursor.next += 1;
            match cursor.skip_to_match(matched, self.bounds) {
                Some(next) => *top = Reverse((next, matched.run.order.at(cursor.next), index)),
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        Some(&self.instant_events)
    }

    /// Collects all remaining events of the actor.
    pub(super) fn collect(&mut self, events: &mut Vec<StepEvent>) {
        events.clear();
        while let Some(instant_events) = self.next() {
            events.extend_from_slice(instant_events);
        }
    }
}

impl RunCursor {
    /// Skips to the next row that matches something, and returns its time; `None` if the actor has no more.
    #[inline]
    fn skip_to_match(&mut self, matched: &MatchedRun<'_>, bounds: (Micros, Micros)) -> Option<Micros> {
        while self.next < self.end {
            let time = matched.run.times[self.next];
            if time >= bounds.0 && !matched.matches.of_row(self.next).is_empty() {
                return (time <= bounds.1).then_some(time);
            }
            self.next += 1;
        }
        None
    }
}
