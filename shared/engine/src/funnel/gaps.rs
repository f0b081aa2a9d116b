//! The time between two steps of one actor in a strict funnel, and whether another event happened in it.
//!
//! Must stay true: gaps come by actor and time, and those of one actor do not overlap; what is found of a gap depends on
//! the rows of all runs together. A run and the gaps that are still open are gone through side by side, the one leaping
//! to where the other stands, so that the cost is that of the shorter list.

use super::merge::{MarkedRun, RowMarks, leap};
use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

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
pub(super) fn settle(gaps: &mut [Gap], runs: &[MarkedRun<'_>], work: &WorkBudget<'_>) -> CalcResult<()> {
    let mut open: Vec<usize> = (0..gaps.len()).collect();
    // The most frequent event breaks the most gaps.
    let mut order: Vec<&MarkedRun<'_>> = runs.iter().collect();
    order.sort_by_key(|marked| std::cmp::Reverse(marked.run.actors.len()));
    let mut settled = 0;
    for marked in order {
        let rows = marked.run.actors.len();
        match &marked.marks {
            RowMarks::Same(marks) if marks.steps() != 0 => continue,
            RowMarks::Same(_) => {
                work.consume(1 + open.len().min(rows))?;
                settled += settle_by(gaps, &open, marked, |_| true);
            }
            RowMarks::Each(marks) => {
                work.consume(1 + open.len().min(rows) + rows / 16)?;
                settled +=
                    settle_by(gaps, &open, marked, |row| !marks[row].is_empty() && marks[row].steps() == 0);
            }
        }
        // Not after each of thousands of names: all gaps are gone through once that pays.
        if settled > open.len() / 4 {
            work.consume(open.len())?;
            open.retain(|gap| gaps[*gap].fate == Fate::Open);
            settled = 0;
        }
    }
    Ok(())
}

/// What the rows of a run that `breaks` names say of the open gaps, and of how many it is said.
fn settle_by(
    gaps: &mut [Gap],
    open: &[usize],
    marked: &MarkedRun<'_>,
    breaks: impl Fn(usize) -> bool,
) -> usize {
    let (actors, times) = (marked.run.actors.as_ref(), marked.run.times.as_ref());
    let rows = actors.len().min(times.len());
    let (mut next, mut row, mut settled) = (0, 0, 0);
    while let Some(gap) = open.get(next).map(|gap| &mut gaps[*gap]) {
        let (actor, from) = (gap.actor, gap.from);
        row = leap(row, rows, |row| actors[row] < actor || (actors[row] == actor && times[row] < from));
        if row == rows {
            break;
        }
        let place = (actors[row], times[row]);
        if place > (actor, gap.to) {
            next = leap(next + 1, open.len(), |next| {
                let gap = &gaps[open[next]];
                (gap.actor, gap.to) < place
            });
        } else if breaks(row) {
            // The row may be at the beginning of the next gap too, so it stays.
            if gap.fate == Fate::Open {
                gap.fate = if from < place.1 && place.1 < gap.to { Fate::Broken } else { Fate::Tied };
                settled += 1;
            }
            next += 1;
        } else {
            row += 1;
        }
    }
    settled
}
