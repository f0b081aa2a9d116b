//! The time between two steps of one actor in a strict funnel, and whether another event happened in it.
//!
//! Must stay true: gaps come by actor and time, and those of one actor do not overlap; what is found of a gap depends on
//! the rows of all runs together. A run and the gaps that are still open are gone through side by side, the one leaping
//! to where the other stands, so that the cost is that of the shorter list.

use super::merge::{MarkedRun, RowMarks, leap};
use super::watch::Watch;
use crate::error::CalcResult;
use crate::scan::Micros;

/// What happens at the end of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The path takes its next step.
    Step,
    /// The event of the newest step is repeated.
    Repeat,
    /// An event of another step ends the path, unless something else happened at that very instant.
    Stop,
}

/// What other events say of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// There is none in it.
    Open,
    /// One lies in it.
    Broken,
    /// One has the instant of an end of it: what that means only the scan over instants knows.
    Tied,
}

/// The time from one event of a path to the next event of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) actor: u32,
    pub(super) from: Micros,
    pub(super) to: Micros,
    /// How many steps the path has before.
    pub(super) depth: u8,
    pub(super) end: End,
    pub(super) fate: Fate,
}

/// Finds out what became of the gaps. Rows that take a step are the ends of gaps; all others that are seen break them.
pub(super) fn settle(gaps: &mut [Gap], runs: &[MarkedRun<'_>], watch: &mut Watch<'_>) -> CalcResult<()> {
    let mut open: Vec<usize> = (0..gaps.len()).collect();
    // The most frequent event breaks the most gaps.
    let mut order: Vec<&MarkedRun<'_>> = runs.iter().collect();
    order.sort_by_key(|marked| std::cmp::Reverse(marked.run.actors.len()));
    for marked in order {
        let rows = marked.run.actors.len();
        match &marked.marks {
            RowMarks::Same(marks) if marks.steps() != 0 => continue,
            RowMarks::Same(_) => {
                watch.spend(open.len().min(rows))?;
                settle_by(gaps, &open, marked, |_| true);
            }
            RowMarks::Each(marks) => {
                watch.spend(open.len().min(rows) + rows / 16)?;
                settle_by(gaps, &open, marked, |row| !marks[row].is_empty() && marks[row].steps() == 0);
            }
        }
        open.retain(|gap| gaps[*gap].fate == Fate::Open);
    }
    Ok(())
}

/// What the rows of a run that `breaks` names say of the open gaps.
fn settle_by(gaps: &mut [Gap], open: &[usize], marked: &MarkedRun<'_>, breaks: impl Fn(usize) -> bool) {
    let (actors, times) = (marked.run.actors.as_ref(), marked.run.times.as_ref());
    let rows = actors.len().min(times.len());
    let (mut next, mut row) = (0, 0);
    while let Some(gap) = open.get(next).map(|gap| &mut gaps[*gap]) {
        let (actor, from) = (gap.actor, gap.from);
        row = leap(row, rows, |row| actors[row] < actor || (actors[row] == actor && times[row] < from));
        if row == rows {
            return;
        }
        let place = (actors[row], times[row]);
        if place > (actor, gap.to) {
            next = leap(next + 1, open.len(), |next| {
                let gap = &gaps[open[next]];
                (gap.actor, gap.to) < place
            });
        } else if breaks(row) {
            // The row may be at the beginning of the next gap too, so it stays.
            gap.fate = if from < place.1 && place.1 < gap.to { Fate::Broken } else { Fate::Tied };
            next += 1;
        } else {
            row += 1;
        }
    }
}
